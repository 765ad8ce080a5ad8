import assert from "node:assert/strict";
import { test } from "node:test";
import { readWindow, stretchWords, week } from "./schedule.ts";

test("windows are read as the service reads them", () => {
  assert.deepEqual(readWindow("mon-wed,sun 09:00-18:00 2G"), {
    days: [0, 1, 2, 6],
    from: 540,
    to: 1080,
    bps: 2e9,
  });
  assert.deepEqual(readWindow("sat-mon 00:00-24:00 none")?.days, [0, 5, 6]);
  for (const wrong of [
    "",
    "mon 09:00 2G",
    "mon 09:00-09:00 2G",
    "moon 09:00-10:00 2G",
    "mon 9:00-10:00 2G",
  ]) {
    assert.equal(readWindow(wrong), null, wrong);
  }
});

test("a week has the last of the windows that overlap, also over midnight and over the week's end", () => {
  const windows = ["sun 22:00-06:00 8G", "mon 05:00-07:00 1G"].map((text) => readWindow(text)!);
  const words = week(windows, null).map(stretchWords);
  assert.deepEqual(
    words.filter((text) => text.startsWith("mon")),
    ["mon 00:00–05:00: 8.00 Gbit/s", "mon 05:00–07:00: 1.00 Gbit/s", "mon 07:00–24:00: no limit"],
  );
  assert.ok(words.includes("sun 22:00–24:00: 8.00 Gbit/s"));
});
