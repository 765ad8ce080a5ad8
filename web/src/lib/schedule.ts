/** The windows of a cap's schedule, such as `mon-fri 09:00-18:00 2G`, as the service reads them. */

import { rate, readRate } from "./units.ts";

export const DAYS = ["mon", "tue", "wed", "thu", "fri", "sat", "sun"] as const;

export interface Window {
  /** Numbers of days, Monday is 0. */
  days: number[];
  /** Minutes since midnight. */
  from: number;
  to: number;
  /** Null for no limit. */
  bps: number | null;
}

function minutes(text: string): number | null {
  const found = /^(\d\d):([0-5]\d)$/.exec(text);
  const all = found ? Number(found[1]) * 60 + Number(found[2]) : Number.NaN;
  return all <= 1440 ? all : null;
}

function readDays(text: string): number[] | null {
  if (text === "daily") return [0, 1, 2, 3, 4, 5, 6];
  const days = new Set<number>();
  for (const part of text.split(",")) {
    const [first, last = first] = part.toLowerCase().split("-");
    let at = DAYS.indexOf(first as (typeof DAYS)[number]);
    const end = DAYS.indexOf(last as (typeof DAYS)[number]);
    if (at < 0 || end < 0) return null;
    days.add(at);
    while (at !== end) {
      at = (at + 1) % 7;
      days.add(at);
    }
  }
  return [...days].sort();
}

/** Reads one window; null if the text is not one. */
export function readWindow(text: string): Window | null {
  const [days, hours, bps, ...more] = text.trim().split(/\s+/);
  if (!days || !hours || !bps || more.length > 0) return null;
  const [from, to] = hours.split("-").map(minutes);
  const named = readDays(days);
  const limit = bps === "none" ? null : readRate(bps);
  if (named === null || from == null || to == null || from === to || from >= 1440) return null;
  if (bps !== "none" && limit === null) return null;
  return { days: named, from, to, bps: limit };
}

/** A stretch of one day with one rate. */
export interface Stretch {
  day: number;
  from: number;
  to: number;
  bps: number | null;
}

const SLOT = 5;
const SLOTS = 1440 / SLOT;

/** The rates over a week. Where windows overlap, the last one counts; outside of them, the usual rate. */
export function week(windows: readonly Window[], usual: number | null): Stretch[] {
  const slots: (number | null)[][] = DAYS.map(() => new Array(SLOTS).fill(usual));
  const fill = (day: number, from: number, to: number, bps: number | null) =>
    slots[day % 7]!.fill(bps, Math.floor(from / SLOT), Math.ceil(to / SLOT));
  for (const { days, from, to, bps } of windows) {
    for (const day of days) {
      if (from < to) {
        fill(day, from, to, bps);
      } else {
        fill(day, from, 1440, bps);
        fill(day + 1, 0, to, bps);
      }
    }
  }
  return slots.flatMap((slot, day) => {
    const stretches: Stretch[] = [];
    slot.forEach((bps, at) => {
      const last = stretches.at(-1);
      if (last && last.bps === bps) last.to = (at + 1) * SLOT;
      else stretches.push({ day, from: at * SLOT, to: (at + 1) * SLOT, bps });
    });
    return stretches;
  });
}

export function timeOfDay(minute: number): string {
  return `${String(Math.floor(minute / 60)).padStart(2, "0")}:${String(minute % 60).padStart(2, "0")}`;
}

export function stretchWords({ day, from, to, bps }: Stretch): string {
  const limit = bps === null ? "no limit" : rate(bps);
  return `${DAYS[day]} ${timeOfDay(from)}–${timeOfDay(to)}: ${limit}`;
}
