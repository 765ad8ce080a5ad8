import assert from "node:assert/strict";
import { test } from "node:test";
import { Ring } from "./ring.ts";

test("a ring keeps the last values in order", () => {
  const ring = new Ring(3);
  assert.deepEqual([ring.length, ring.last, ring.max()], [0, 0, 0]);
  for (const value of [1, 9, 2, 3, 4]) ring.push(value);
  assert.deepEqual(ring.toArray(), [2, 3, 4]);
  assert.deepEqual([ring.last, ring.max()], [4, 4]);
});
