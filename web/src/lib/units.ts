/**
 * Figures as people read them. Each text of one kind has the same number of digits, so that numbers that change
 * do not move what stands beside them.
 */

const RATE_UNITS = ["bit/s", "kbit/s", "Mbit/s", "Gbit/s", "Tbit/s"];
const SIZE_UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];

/** Three significant digits. */
function digits(value: number): string {
  if (value >= 99.95) return value.toFixed(0);
  if (value >= 9.995) return value.toFixed(1);
  return value.toFixed(2);
}

function scaled(value: number, step: number, units: readonly string[]): string {
  let unit = 0;
  // What would be rounded to a thousand belongs to the next unit.
  while (value >= step * 0.9995 && unit < units.length - 1) {
    value /= step;
    unit += 1;
  }
  return `${unit === 0 ? value.toFixed(0) : digits(value)} ${units[unit]}`;
}

/** Bits a second, in decimal units: `452 Mbit/s`. */
export function rate(bps: number | null | undefined): string {
  return bps == null || !Number.isFinite(bps) ? "–" : scaled(Math.max(0, bps), 1000, RATE_UNITS);
}

/** Bytes, in binary units: `3.00 GiB`. */
export function size(bytes: number | null | undefined): string {
  return bytes == null || !Number.isFinite(bytes) ? "–" : scaled(Math.max(0, bytes), 1024, SIZE_UNITS);
}

/** Whole numbers, with a thin space between thousands. */
export function count(number: number): string {
  return Math.round(number)
    .toString()
    .replace(/\B(?=(\d{3})+$)/g, "\u2009");
}

/** A span of time: `8 min 10 s`, `2 d 3 h`. */
export function span(seconds: number | null | undefined): string {
  if (seconds == null || !Number.isFinite(seconds)) return "–";
  const whole = Math.max(0, Math.round(seconds));
  const pair = (large: number, big: string, small: number, little: string) =>
    `${large} ${big} ${small.toString().padStart(2, "0")} ${little}`;
  if (whole === 0 && seconds > 0) return "< 1 s";
  if (whole < 60) return `${whole} s`;
  if (whole < 3600) return pair(Math.floor(whole / 60), "min", whole % 60, "s");
  if (whole < 86_400) return pair(Math.floor(whole / 3600), "h", Math.floor((whole % 3600) / 60), "min");
  const hours = Math.floor((whole % 86_400) / 3600);
  return `${Math.floor(whole / 86_400)} d ${hours.toString().padStart(2, "0")} h`;
}

/** A share as a percentage. A share above zero is never shown as zero. */
export function percent(share: number | null | undefined): string {
  if (share == null || !Number.isFinite(share)) return "–";
  const value = share * 100;
  if (value === 0) return "0 %";
  if (value < 0.001) return "< 0.001 %";
  if (value < 0.1) return `${value.toFixed(3)} %`;
  return `${value < 10 ? value.toFixed(1) : value.toFixed(0)} %`;
}

/** The share that is done, from 0 to 1. */
export function done(bytes: number, total: number): number {
  return total <= 0 ? 0 : Math.min(1, bytes / total);
}

/** The share that is done as a percentage, rounded down: less than all is never 100 %. */
export function donePercent(bytes: number, total: number): string {
  return `${Math.floor(done(bytes, total) * 100)} %`;
}

/** A round trip. */
export function milliseconds(ms: number | null | undefined): string {
  return ms == null || !Number.isFinite(ms) || ms === 0 ? "–" : `${digits(ms)} ms`;
}

const DAY_TIME = new Intl.DateTimeFormat(undefined, {
  month: "2-digit",
  day: "2-digit",
  year: "numeric",
  hour: "2-digit",
  minute: "2-digit",
  second: "2-digit",
  hourCycle: "h23",
});
const TIME = new Intl.DateTimeFormat(undefined, {
  hour: "2-digit",
  minute: "2-digit",
  second: "2-digit",
  hourCycle: "h23",
});

/** A moment in the browser's time zone: `2026-11-28 18:02:09`. */
export function moment(at: string | number | null | undefined): string {
  if (at == null) return "–";
  const parts = Object.fromEntries(
    DAY_TIME.formatToParts(new Date(at)).map((part) => [part.type, part.value]),
  );
  return `${parts.year}-${parts.month}-${parts.day} ${parts.hour}:${parts.minute}:${parts.second}`;
}

const iso = (at: Date) => at.toISOString().replace(/\.\d+Z$/, "Z");

/** A time as people type it: `22:00`, or a date and time, in the browser's time zone where they name none. */
export function readTime(text: string): string | null {
  if (/^([01]?\d|2[0-3]):[0-5]\d$/.test(text)) return text.padStart(5, "0");
  const at = /^\d{4}-\d\d-\d\d[T ]\d\d:\d\d/.test(text) ? new Date(text.replace(" ", "T")) : null;
  return at && Number.isFinite(at.getTime()) ? iso(at) : null;
}

/** The next moment of a time of day; other times stay as they are. */
export function nextMoment(time: string, now: Date): string {
  const [hour, minute] = /^\d\d:\d\d$/.test(time) ? time.split(":").map(Number) : [];
  if (hour === undefined) return time;
  const at = new Date(now);
  at.setHours(hour, minute, 0, 0);
  if (at <= now) at.setDate(at.getDate() + 1);
  return iso(at);
}

/** Only the time of day. */
export function clock(at: string | number): string {
  return TIME.format(new Date(at));
}

/** The browser's time zone, which all moments are in: `Europe/Zurich`. */
export function zone(): string {
  return Intl.DateTimeFormat().resolvedOptions().timeZone;
}

const MULTIPLES: Record<string, number> = { "": 1, k: 1e3, m: 1e6, g: 1e9, t: 1e12 };

/** Reads a rate as people write it: `2G`, `500 Mbit/s`, `2.5g`. Null if the text is not a rate. */
export function readRate(text: string): number | null {
  const found = /^\s*(\d+(?:\.\d+)?)\s*([kmgt]?)(?:bit\/s|bps|bit)?\s*$/i.exec(text);
  if (!found) return null;
  return Math.round(Number(found[1]) * MULTIPLES[found[2]!.toLowerCase()]!);
}

/** A rate as options of commands take it, without loss: `2G`, `1500M`, `8001`. */
export function writeRate(bps: number): string {
  for (const [unit, factor] of [
    ["T", 1e12],
    ["G", 1e9],
    ["M", 1e6],
    ["k", 1e3],
  ] as const) {
    const value = bps / factor;
    if (value >= 1 && Number(value.toFixed(3)) * factor === bps) return `${Number(value.toFixed(3))}${unit}`;
  }
  return `${bps}`;
}
