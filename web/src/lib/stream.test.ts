import assert from "node:assert/strict";
import { test } from "node:test";
import { Splitter } from "./stream.ts";

test("messages are put together wherever the stream is cut", () => {
  const text = ': alive\n\nid: 7\nevent: job\ndata: {"a":\ndata: 1}\n\nevent: gap\ndata: {}\n\n';
  const whole = new Splitter().push(text);
  assert.deepEqual(whole, [
    { id: "7", event: "job", data: '{"a":\n1}' },
    { id: "7", event: "gap", data: "{}" },
  ]);
  for (let at = 0; at <= text.length; at += 1) {
    const splitter = new Splitter();
    assert.deepEqual([...splitter.push(text.slice(0, at)), ...splitter.push(text.slice(at))], whole);
  }
});
