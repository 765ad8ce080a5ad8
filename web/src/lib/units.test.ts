import assert from "node:assert/strict";
import { test } from "node:test";
import {
  count,
  donePercent,
  milliseconds,
  nextMoment,
  percent,
  rate,
  readRate,
  readTime,
  size,
  span,
  writeRate,
} from "./units.ts";

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

test("a time is read as people type it, and a time of day is the next one", () => {
  assert.equal(readTime("22:00"), "22:00");
  assert.equal(readTime("6:05"), "06:05");
  assert.equal(readTime("2199-01-01T00:00:00Z"), "2199-01-01T00:00:00Z");
  assert.equal(readTime("2199-01-01 00:00"), new Date(2199, 0, 1).toISOString().replace(".000", ""));
  for (const wrong of ["24:00", "22", "tomorrow", "2199-13-01 00:00"])
    assert.equal(readTime(wrong), null, wrong);
  const now = new Date(2030, 5, 1, 21, 59, 30);
  const next = (time: string) => new Date(nextMoment(time, now)).getTime() - now.getTime();
  assert.equal(next("22:00"), 30_000);
  assert.equal(next("21:59"), 86_400_000 - 30_000);
  assert.equal(nextMoment("2199-01-01T00:00:00Z", now), "2199-01-01T00:00:00Z");
});
