import assert from "node:assert/strict";
import { test } from "node:test";
import type { HostView } from "./api.ts";
import { grownAround, useBetween } from "./host.ts";

function view(at_s: number, more: Partial<HostView>): HostView {
  return {
    at_s,
    moved: { sent_bytes: 0, received_bytes: 0, local_bytes: 0 },
    interfaces: [],
    cores: [],
    disks: [],
    mounts: [],
    memory: null,
    temperatures: [],
    energy: [],
    energy_is_hidden: false,
    power: [],
    ...more,
  } as HostView;
}

test("rates are differences over the time between two looks", () => {
  const eth = { name: "eth0", is_up: true, is_physical: true, speed_bps: 1e10 };
  const counts = (received_bytes: number, sent_bytes: number) => ({
    ...eth,
    received_bytes,
    sent_bytes,
    received_dropped: 0,
    sent_dropped: 0,
  });
  const core = (busy_s: number, idle_s: number) => ({
    number: 0,
    socket: 0,
    busy_s,
    idle_s,
    system_s: busy_s / 2,
  });
  const before = view(10, { interfaces: [counts(1000, 5000)], cores: [core(1, 1)] });
  // The interface was made anew in between.
  const now = view(12, { interfaces: [counts(500, 7000)], cores: [core(2.5, 1.5)] });
  const use = useBetween(before, now)!;
  assert.deepEqual([use.interfaces[0]!.receivedBps, use.interfaces[0]!.sentBps], [2000, 8000]);
  assert.deepEqual([use.cores[0]!.busy, use.cores[0]!.system], [0.75, 0.375]);
  assert.equal(use.watts, null);
  assert.equal(useBetween(now, now), null);
});

test("energy: counters that wrap, parts of parts, joules per GB", () => {
  assert.equal(grownAround(5, 95, 100), 10);
  const zone = (name: string, zone: string, joules: number, part_of: string | null = null) => ({
    name,
    zone,
    joules,
    part_of,
    wraps_at_joules: 1000,
  });
  const before = view(0, {
    energy: [
      zone("package-0", "a", 990),
      zone("dram", "a0", 10, "a"),
      zone("core", "a1", 0, "a"),
      zone("package-1", "b", 0),
    ],
  });
  const now = view(10, {
    energy: [
      zone("package-0", "a", 490),
      zone("dram", "a0", 110, "a"),
      zone("core", "a1", 300, "a"),
      zone("package-1", "b", 500),
    ],
    moved: { sent_bytes: 4e9, received_bytes: 1e9, local_bytes: 0 },
  });
  const use = useBetween(before, now)!;
  // Each package has used 500 J in 10 s, the memory 100 J. The cores' joules are in their package's figure.
  assert.equal(use.watts, 110);
  assert.equal(use.joulesPerGb, 220);
  const metered = view(10, { ...now, power: [{ chip: "power_meter", label: "", watts: 300 }] });
  assert.equal(useBetween(before, metered)!.watts, 300);
});
