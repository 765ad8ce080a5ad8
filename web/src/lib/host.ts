/** What a host has done between two looks at its counters. */

import type { HostView } from "./api.ts";

export interface InterfaceUse {
  name: string;
  isUp: boolean;
  isPhysical: boolean;
  speedBps: number | null;
  receivedBps: number;
  sentBps: number;
  dropped: number;
}

export interface CoreUse {
  number: number;
  socket: number | null;
  busy: number;
  system: number;
}

export interface DiskUse {
  name: string;
  model: string | null;
  isMadeOfOthers: boolean;
  readBytesPerSecond: number;
  writtenBytesPerSecond: number;
  busy: number;
}

export interface HostUse {
  seconds: number;
  interfaces: InterfaceUse[];
  cores: CoreUse[];
  disks: DiskUse[];
  /** Content that this node has sent and received. */
  movedBps: number;
  /** The power of each part of the host. */
  power: { name: string; watts: number; partOf: string | null }[];
  /** The power of the whole host; null if nothing measures it. */
  watts: number | null;
  /** Null if nothing moves, or nothing measures power. */
  joulesPerGb: number | null;
}

/** How much a counter has grown. A counter that shows less than before began again at zero. */
function grown(now: number, before: number | undefined): number {
  if (before === undefined) return 0;
  return now >= before ? now - before : now;
}

/** As [grown], for a counter that goes back to zero when it reaches `end`. */
export function grownAround(now: number, before: number | undefined, end: number): number {
  if (before === undefined) return 0;
  return now >= before ? now - before : now + end - before;
}

export function useBetween(before: HostView, now: HostView): HostUse | null {
  const seconds = now.at_s - before.at_s;
  if (seconds <= 0) return null;
  const same = <T, K>(all: readonly T[], key: (one: T) => K, wanted: K) =>
    all.find((one) => key(one) === wanted);
  const interfaces = now.interfaces.map((one) => {
    const old = same(before.interfaces, (other) => other.name, one.name);
    return {
      name: one.name,
      isUp: one.is_up,
      isPhysical: one.is_physical,
      speedBps: one.speed_bps ?? null,
      receivedBps: (grown(one.received_bytes, old?.received_bytes) * 8) / seconds,
      sentBps: (grown(one.sent_bytes, old?.sent_bytes) * 8) / seconds,
      dropped:
        grown(one.received_dropped, old?.received_dropped) + grown(one.sent_dropped, old?.sent_dropped),
    };
  });
  const cores = now.cores.map((one) => {
    const old = same(before.cores, (other) => other.number, one.number);
    const busy = grown(one.busy_s, old?.busy_s);
    const all = busy + grown(one.idle_s, old?.idle_s);
    const system = grown(one.system_s, old?.system_s);
    const share = (part: number) => (all > 0 ? Math.min(1, part / all) : 0);
    return { number: one.number, socket: one.socket ?? null, busy: share(busy), system: share(system) };
  });
  const disks = now.disks.map((one) => {
    const old = same(before.disks, (other) => other.name, one.name);
    return {
      name: one.name,
      model: one.model ?? null,
      isMadeOfOthers: one.is_made_of_others,
      readBytesPerSecond: grown(one.read_bytes, old?.read_bytes) / seconds,
      writtenBytesPerSecond: grown(one.written_bytes, old?.written_bytes) / seconds,
      busy: Math.min(1, grown(one.busy_s, old?.busy_s) / seconds),
    };
  });
  const moved =
    grown(now.moved.sent_bytes, before.moved.sent_bytes) +
    grown(now.moved.received_bytes, before.moved.received_bytes);
  const used = now.energy.map((one) => {
    const old = same(before.energy, (other) => other.zone, one.zone);
    const watts = grownAround(one.joules, old?.joules, one.wraps_at_joules) / seconds;
    return { name: one.name, watts, partOf: one.part_of ?? null };
  });
  // A meter of the whole host counts alone. Without one, the parts that lie in no other part are added up.
  // The memory (dram) counts beside its package, although the kernel lists it as a part of the package.
  const meter = now.power.find((one) => one.chip === "power_meter");
  const parts = used.filter((one) => (one.partOf === null && one.name !== "psys") || one.name === "dram");
  const whole = used.find((one) => one.name === "psys");
  const sum = parts.reduce((all, one) => all + one.watts, 0);
  const watts = meter?.watts ?? whole?.watts ?? (parts.length > 0 ? sum : null);
  const gigabytes = moved / 1e9;
  return {
    seconds,
    interfaces,
    cores,
    disks,
    movedBps: (moved * 8) / seconds,
    power: [
      ...now.power.map((one) => ({
        name: `${one.chip} ${one.label}`.trim(),
        watts: one.watts,
        partOf: null,
      })),
      ...used,
    ],
    watts,
    joulesPerGb: watts === null || gigabytes < 0.001 ? null : (watts * seconds) / gigabytes,
  };
}
