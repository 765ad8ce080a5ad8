import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { nowWords, PRIORITIES, shortName, sourcesWords, stagesOf, stateWords } from "./words.ts";

test("what a job does is a sentence, and no rate of 0 stands in it", () => {
  const words = (now: string, goodput_bps: number) => nowWords({ now, goodput_bps });
  assert.equal(
    words("the receiver's disk is the limit", 480e6),
    "The receiver's disk is the limit: 480 Mbit/s",
  );
  assert.equal(words("scanning the source", 0), "Scanning the source");
  assert.equal(words("the allowed rate is the limit", 0), "The allowed rate is the limit");
  assert.equal(nowWords(null), "Beginning");
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
