import assert from "node:assert/strict";
import { test } from "node:test";
import { count, donePercent, milliseconds, percent, rate, readRate, size, span, writeRate } from "./units.ts";

test("figures have three digits and the right unit", () => {
  assert.equal(rate(0), "0 bit/s");
  assert.equal(rate(999.6), "1.00 kbit/s");
  assert.equal(rate(452_300_000), "452 Mbit/s");
  assert.equal(rate(99_960_000), "100 Mbit/s");
  assert.equal(rate(1.6e9), "1.60 Gbit/s");
  assert.equal(rate(null), "–");
  assert.equal(size(1023), "1023 B");
  assert.equal(size(3 * 2 ** 30), "3.00 GiB");
  assert.equal(size(1024 * 1024 - 1), "1.00 MiB");
  assert.equal(milliseconds(40.23), "40.2 ms");
  assert.equal(milliseconds(0), "–");
  assert.equal(count(1234567), "1\u2009234\u2009567");
});

test("spans of time", () => {
  assert.equal(span(0.4), "< 1 s");
  assert.equal(span(0), "0 s");
  assert.equal(span(59.7), "1 min 00 s");
  assert.equal(span(490), "8 min 10 s");
  assert.equal(span(3 * 3600 + 65), "3 h 01 min");
  assert.equal(span(2 * 86_400 + 3 * 3600), "2 d 03 h");
  assert.equal(span(undefined), "–");
});

test("less than all is never 100 %, more than nothing never 0 %", () => {
  assert.equal(donePercent(999_999, 1_000_000), "99 %");
  assert.equal(donePercent(7, 7), "100 %");
  assert.equal(donePercent(0, 0), "0 %");
  assert.equal(percent(0), "0 %");
  assert.equal(percent(1e-7), "< 0.001 %");
  assert.equal(percent(0.0004), "0.040 %");
  assert.equal(percent(0.5), "50 %");
});

test("rates as people write them are read, and written back without loss", () => {
  assert.equal(readRate("2G"), 2e9);
  assert.equal(readRate(" 2.5 gbit/s"), 2.5e9);
  assert.equal(readRate("800k"), 8e5);
  for (const wrong of ["", "fast", "-1", "2 X", "1e9"]) assert.equal(readRate(wrong), null, wrong);
  for (const bps of [8000, 8001, 1_500_000, 2_000_000_000, 123_456_789]) {
    assert.equal(readRate(writeRate(bps)), bps);
  }
  assert.equal(writeRate(1_500_000_000), "1.5G");
});
