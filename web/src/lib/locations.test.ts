import assert from "node:assert/strict";
import { test } from "node:test";
import { isRemote, join, parentOf } from "./locations.ts";

test("up and down, at each kind of location", () => {
  const cases: [string, string | null][] = [
    ["/data/run7", "/data"],
    ["/data/", "/"],
    ["/", null],
    ["fh://hpc/in/run7/", "fh://hpc/in"],
    ["fh://hpc:4000/in", "fh://hpc:4000/"],
    ["fh://[fd00::2]/in", "fh://[fd00::2]/"],
    ["fh://hpc", null],
    ["me@host:/data/x", "me@host:/data"],
    ["host:data/x", "host:data"],
    ["host:data", "host:"],
    ["host:", null],
  ];
  for (const [location, parent] of cases) assert.equal(parentOf(location), parent, location);
  assert.equal(join("/data", "a b"), "/data/a b");
  assert.equal(join("fh://hpc/", "in"), "fh://hpc/in");
  assert.equal(join("host:", "data"), "host:data");
  assert.deepEqual(["/a", "h:/a", "fh://h/a"].map(isRemote), [false, true, true]);
});
