import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { PRIORITIES, shortName, sourcesWords, stagesOf, stateWords, verdict } from "./words.ts";

test("verdicts are sentences", () => {
  assert.equal(verdict("receiver write", 480e6), "The receiver's disk is the limit: 480 Mbit/s");
  assert.equal(verdict("sender digest"), "The sender's digests are the limit");
  assert.equal(verdict("network", 1e9), "The network is the limit: 1.00 Gbit/s");
  assert.equal(verdict(""), "The limit is not known yet");
  assert.equal(verdict("something new"), "something new");
});

test("stages stand in the order in which content passes them", () => {
  const stage = (name: string, end = "sender") => ({ name, end, busy: 0.1 });
  const stages = [stage("wait-rate"), stage("send"), stage("write", "receiver"), stage("read")];
  assert.deepEqual(
    stagesOf(stages, "sender").map((one) => one.name),
    ["read", "send", "wait-rate"],
  );
});

test("names and states", () => {
  assert.equal(shortName("fh://hpc/in/run7/"), "run7");
  assert.equal(shortName("/"), "/");
  assert.equal(sourcesWords(["/a", "/b", "/c"]), "/a and 2 more");
  assert.equal(stateWords({ state: "running", is_stopping: true }), "stopping");
  assert.equal(stateWords({ state: "cancelled", is_stopping: false }), "cancelled");
  assert.equal(stateWords({ state: "partly_failed", is_stopping: false }), "partly failed");
});

test("the page offers the priorities that the service takes", () => {
  const description = readFileSync(new URL("../../../docs/reference/openapi.json", import.meta.url), "utf8");
  const { minimum, maximum } = JSON.parse(description).components.schemas.JobChange.properties.priority;
  assert.deepEqual([PRIORITIES.at(-1), PRIORITIES[0]], [minimum, maximum]);
});
