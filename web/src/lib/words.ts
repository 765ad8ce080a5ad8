/** Words for the short names that the service uses. */

import type { Job, JobProgress, JobState, Stage } from "./api.ts";
import { rate } from "./units.ts";

export const STATE_WORDS: Record<JobState, string> = {
  queued: "queued",
  waiting: "waiting",
  running: "running",
  pausing: "pausing",
  paused: "paused",
  retrying: "retrying",
  done: "done",
  partly_failed: "partly failed",
  failed: "failed",
  cancelled: "cancelled",
  stopped: "stopped",
};

/** The priorities of jobs, the highest first, as the service describes them. */
export const PRIORITIES = Array.from({ length: 10 }, (_, index) => 9 - index);

export function stateWords(job: Pick<Job, "state" | "is_stopping">): string {
  return job.is_stopping ? "stopping" : STATE_WORDS[job.state];
}

/** What a job does, in the service's words, with the rate if something moves: `The network is the limit: 480 Mbit/s`. */
export function nowWords(progress: Pick<JobProgress, "now" | "goodput_bps"> | null | undefined): string {
  const words = progress?.now || "beginning";
  const at = progress && progress.goodput_bps >= 1 ? `: ${rate(progress.goodput_bps)}` : "";
  return words.charAt(0).toUpperCase() + words.slice(1) + at;
}

/** The stages in the order in which content passes them. Stages that wait come last. */
const WAY = [
  "scan",
  "fill",
  "read",
  "compare",
  "digest",
  "seal",
  "send",
  "receive",
  "open",
  "park",
  "write",
  "finish",
  "use",
];

const STAGE_NAMES: Record<string, string> = {
  "wait-content": "waits for content",
  "wait-receiver": "waits for the receiver",
  "wait-network": "waits for the network",
  "wait-rate": "waits for the allowed rate",
};

export function stageName(name: string): string {
  return STAGE_NAMES[name] ?? name;
}

/** The stages of one end in the order in which content passes them. */
export function stagesOf(stages: readonly Stage[], end: string): Stage[] {
  const place = (stage: Stage) => {
    const at = WAY.indexOf(stage.name);
    return at < 0 ? WAY.length : at;
  };
  // Only a sender waits for others.
  const isOf = (stage: Stage) => stage.end === end && (end === "sender" || !stage.name.startsWith("wait"));
  return stages.filter(isOf).sort((a, b) => place(a) - place(b));
}

export const POLICY_WORDS = {
  fair: "fair: shares with others as TCP does",
  high: "high: takes what the path carries",
  low: "low: yields to everything else",
  fixed: "fixed: the rate that is set, whatever happens",
} as const;

/** The last name of a location, for headings: `fh://hpc/in/run7/` is `run7`. */
export function shortName(location: string): string {
  const name = location.replace(/\/+$/, "").split("/").pop();
  return name || location;
}

/** The sources in one line: the first one, and how many more there are. */
export function sourcesWords(sources: readonly string[]): string {
  const [first = "", ...more] = sources;
  return more.length === 0 ? first : `${first} and ${more.length} more`;
}
