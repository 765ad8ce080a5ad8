/**
 * What the page knows of the node: its jobs as they are now, kept by the stream of events.
 *
 * Always true: when the stream has missed something, or was cut, the page asks for everything again.
 */

import { SvelteMap } from "svelte/reactivity";
import {
  type CapView,
  client,
  got,
  type Job,
  type JobProgress,
  type JobState,
  type LiveCurve,
} from "./api.ts";
import { Ring } from "./ring.ts";
import { listen, type Message } from "./stream.ts";

/** Seconds that curves show. */
export const CURVE_SECONDS = 300;
/** How long a job that has ended stays in sight. */
const ENDED_STAYS_MS = 60_000;
const RETRY_MS = [250, 1000, 2000, 5000];
/** How long a hidden page keeps its connection. A browser has only few connections for one host. */
const HIDDEN_MS = 60_000;

export type Connection = "connecting" | "live" | "lost";

/** The curves of one path. */
export class PathCurves {
  readonly name: string;
  readonly moved = new Ring(CURVE_SECONDS);

  constructor(name: string) {
    this.name = name;
  }
}

const pathName = ({ local, remote }: { local: string; remote: string }) => `${local} → ${remote}`;

/** The curves of a job over the last five minutes. */
export class Curves {
  readonly goodput = new Ring(CURVE_SECONDS);
  readonly target = new Ring(CURVE_SECONDS);
  readonly rtt = new Ring(CURVE_SECONDS);
  readonly loss = new Ring(CURVE_SECONDS);
  readonly inFlight = new Ring(CURVE_SECONDS);
  readonly paths: PathCurves[] = [];
  /** Grows with each value, so that what draws them sees that they have changed. */
  version = $state(0);

  push(progress: JobProgress): void {
    this.goodput.push(progress.goodput_bps);
    this.target.push(progress.target_bps ?? Number.NaN);
    this.rtt.push(progress.rtt_ms || Number.NaN);
    this.loss.push(progress.loss_now_fraction);
    this.inFlight.push(progress.in_flight_bytes);
    for (const path of progress.paths) this.#path(pathName(path)).moved.push(path.moved_bps);
    this.version += 1;
  }

  /** Replaces the values that the page has seen by those that the service has kept. */
  fill(kept: LiveCurve): void {
    this.goodput.fill(kept.goodput_bps);
    this.target.fill(kept.target_bps.map((bps) => bps ?? Number.NaN));
    this.rtt.fill(kept.rtt_ms.map((ms) => ms || Number.NaN));
    this.loss.fill(kept.loss_fraction);
    this.inFlight.fill(kept.in_flight_bytes);
    for (const path of kept.paths) this.#path(pathName(path)).moved.fill(path.moved_bps);
    this.version += 1;
  }

  #path(name: string): PathCurves {
    let path = this.paths.find((one) => one.name === name);
    if (!path) {
      path = new PathCurves(name);
      this.paths.push(path);
    }
    return path;
  }
}

/** One job. Its progress changes more often than the rest, and by itself. */
export class LiveJob {
  view = $state.raw() as Job;
  progress = $state.raw<JobProgress | null>(null);
  curves = $state.raw<Curves | null>(null);
  /** When the page saw the job end; 0 before that. */
  endedAt = 0;

  constructor(view: Job) {
    this.view = view;
    this.progress = view.progress ?? null;
  }

  get curve(): Curves {
    this.curves ??= new Curves();
    return this.curves;
  }
}

class Live {
  connection = $state<Connection>("connecting");
  /** The jobs that have not ended, and those that ended a short time ago, by their ids. */
  readonly jobs = new SvelteMap<string, LiveJob>();
  /** The rate of content of all jobs together. */
  readonly total = new Curves();
  /** Grows when a cap or a watched folder has changed. */
  capsVersion = $state(0);
  watchesVersion = $state(0);
  /** Grows when a job has ended, so that the history has something new. */
  endedVersion = $state(0);
  /** Whether the list of jobs has arrived. */
  isKnown = $state(false);

  #stop: AbortController | null = null;
  #lastId: string | null = null;
  #hidden: ReturnType<typeof setTimeout> | undefined;
  #ticker: ReturnType<typeof setInterval> | undefined;

  /** Begins to follow the events; does nothing if it follows them already. */
  begin(): void {
    if (this.#stop) return;
    this.#stop = new AbortController();
    void this.#follow(this.#stop.signal);
    this.#ticker = setInterval(() => this.#tick(), 1000);
    document.addEventListener("visibilitychange", this.#seen);
  }

  /** Stops following the events, and forgets all jobs. */
  end(): void {
    this.#pause();
    document.removeEventListener("visibilitychange", this.#seen);
    clearInterval(this.#ticker);
    this.#lastId = null;
    this.jobs.clear();
    this.isKnown = false;
  }

  #pause(): void {
    this.#stop?.abort();
    this.#stop = null;
  }

  readonly #seen = () => {
    clearTimeout(this.#hidden);
    if (document.visibilityState === "hidden") {
      this.#hidden = setTimeout(() => this.#pause(), HIDDEN_MS);
    } else if (!this.#stop) {
      this.#stop = new AbortController();
      void this.#follow(this.#stop.signal);
    }
  };

  async #follow(stop: AbortSignal): Promise<void> {
    for (let attempt = 0; !stop.aborted; attempt += 1) {
      // Events that arrive before the list of jobs are applied after it.
      const queue: Message[] = [];
      let isKnown = false;
      const opened = async () => {
        try {
          await this.#askAll();
          isKnown = true;
          for (const message of queue) this.#heard(message);
          this.connection = "live";
          attempt = 0;
        } catch {
          again.abort();
        }
      };
      const again = new AbortController();
      const heard = (message: Message) => {
        if (isKnown) this.#heard(message);
        else queue.push(message);
      };
      const ends = AbortSignal.any([stop, again.signal]);
      const status = await listen("/api/v1/events", this.#lastId, { opened, heard }, ends);
      if (stop.aborted) return;
      // If these requests are refused, too, the log-in has ended: `got` then signs the page out.
      if (status === 401) {
        await got(client.GET("/api/v1/version")).catch(() => {});
        await this.#askAll().catch(() => {});
      }
      this.connection = "lost";
      const wait = RETRY_MS[Math.min(attempt, RETRY_MS.length - 1)]!;
      await new Promise((resolve) => setTimeout(resolve, wait * (0.75 + Math.random() / 2)));
    }
  }

  /** Asks for all jobs that have not ended. */
  async #askAll(): Promise<void> {
    const seen = new Set<string>();
    let cursor: string | undefined;
    do {
      const page = await got(
        client.GET("/api/v1/jobs", { params: { query: { state: "unfinished", limit: 1000, cursor } } }),
      );
      for (const job of page.jobs) {
        seen.add(job.id);
        this.#put(job);
      }
      cursor = page.next_cursor ?? undefined;
    } while (cursor);
    for (const [id, job] of this.jobs) {
      if (!seen.has(id) && !job.view.is_over) this.jobs.delete(id);
    }
    await this.#askCurves();
    this.isKnown = true;
  }

  /** Asks for the last minutes of running jobs: else their curves would begin when the page was opened. */
  async #askCurves(): Promise<void> {
    const without = [...this.jobs.values()].filter((job) => job.view.state === "running" && !job.curves);
    if (without.length === 0) return;
    const { curves } = await got(client.GET("/api/v1/curves"));
    const sums: number[] = [];
    for (const { job: id, goodput_bps } of curves) {
      goodput_bps.forEach((bps, index) => {
        const age = goodput_bps.length - index;
        sums[age] = (sums[age] ?? 0) + bps;
      });
      const job = this.jobs.get(id);
      if (!job || job.curves) continue;
      job.curve.goodput.fill(goodput_bps);
      job.curve.version += 1;
    }
    if (this.total.goodput.length === 0) {
      for (let age = sums.length - 1; age > 0; age -= 1) this.total.goodput.push(sums[age] ?? 0);
    }
  }

  #put(view: Job): void {
    const job = this.jobs.get(view.id);
    if (!job) {
      if (!view.is_over) this.jobs.set(view.id, new LiveJob(view));
      return;
    }
    const wasOver = job.view.is_over;
    job.view = view;
    if (view.progress) job.progress = view.progress;
    if (!["running", "pausing", "paused"].includes(view.state)) job.progress = view.progress ?? null;
    if (view.is_over && !wasOver) {
      job.endedAt = Date.now();
      this.endedVersion += 1;
    }
  }

  #heard({ id, event, data }: Message): void {
    if (id !== null) this.#lastId = id;
    switch (event) {
      case "job":
        this.#put(JSON.parse(data) as Job);
        break;
      case "progress":
        for (const progress of JSON.parse(data) as JobProgress[]) {
          const job = this.jobs.get(progress.job);
          if (!job) continue;
          job.progress = progress;
          job.curve.push(progress);
        }
        break;
      case "cap":
        this.capsVersion += 1;
        break;
      case "watch":
        this.watchesVersion += 1;
        break;
      case "gap":
        void this.#askAll().catch(() => {});
        break;
    }
  }

  /** Once a second, adds the sum of all rates to the curve and removes jobs that ended long enough ago. */
  #tick(): void {
    if (this.connection !== "live") return;
    let sum = 0;
    let running = 0;
    for (const [id, job] of this.jobs) {
      if (job.endedAt > 0 && Date.now() - job.endedAt > ENDED_STAYS_MS) this.jobs.delete(id);
      if (job.view.state !== "running") continue;
      running += 1;
      sum += job.progress?.goodput_bps ?? 0;
    }
    // While nothing runs and the curve is flat, it need not be drawn again.
    if (running === 0 && this.total.goodput.max() === 0) return;
    this.total.goodput.push(sum);
    this.total.version += 1;
  }

  counts = $derived.by(() => {
    const counts: Partial<Record<JobState, number>> = {};
    for (const { view } of this.jobs.values()) counts[view.state] = (counts[view.state] ?? 0) + 1;
    return counts;
  });
}

export const live = new Live();

/** The caps, asked for again whenever one has changed. */
export async function capList(): Promise<CapView[]> {
  return (await got(client.GET("/api/v1/caps"))).caps;
}
