/** What the page does to jobs, and the notices that it shows about that. */

import { client, got, type JobChange, lineOf } from "./api.ts";
import type { LiveJob } from "./live.svelte.ts";
import { notices } from "./notices.svelte.ts";
import { shortName, sourcesWords } from "./words.ts";

/** How long a cancellation can be taken back. */
const UNDO_SECONDS = 5;

type Verb = "pause" | "resume" | "retry" | "retry_and_delete" | "take" | "cancel";

async function ask(id: string, verb: Verb): Promise<void> {
  const params = { path: { id } };
  switch (verb) {
    case "pause":
      await got(client.POST("/api/v1/jobs/{id}/pause", { params }));
      break;
    case "resume":
      await got(client.POST("/api/v1/jobs/{id}/resume", { params }));
      break;
    case "retry":
      await got(client.POST("/api/v1/jobs/{id}/retry", { params }));
      break;
    case "retry_and_delete":
      await got(
        client.POST("/api/v1/jobs/{id}/retry", { params: { ...params, query: { delete_anyway: true } } }),
      );
      break;
    case "take":
      await got(client.POST("/api/v1/jobs/{id}/take", { params }));
      break;
    case "cancel":
      await got(client.POST("/api/v1/jobs/{id}/cancel", { params }));
  }
}

function nameOf(job: LiveJob["view"]): string {
  return shortName(sourcesWords(job.sources));
}

/** Sends the request, and shows a notice if it fails. */
export async function steer(id: string, verb: Verb): Promise<boolean> {
  try {
    await ask(id, verb);
    return true;
  } catch (error) {
    notices.tell(lineOf(error), "error");
    return false;
  }
}

export async function change(id: string, what: JobChange): Promise<boolean> {
  try {
    await got(client.PATCH("/api/v1/jobs/{id}", { params: { path: { id } }, body: what }));
    return true;
  } catch (error) {
    notices.tell(lineOf(error), "error");
    return false;
  }
}

/** Cancellations that can still be taken back; without a timer while the job is being paused. */
const pending = new Map<string, ReturnType<typeof setTimeout> | undefined>();

/**
 * Cancels a job after five seconds. Until then the job is paused, so that nothing more of it moves, and the
 * user can undo the cancellation.
 */
export async function cancelSoon(job: LiveJob["view"]): Promise<void> {
  if (pending.has(job.id)) return;
  const wasHeld = !job.may.includes("pause");
  pending.set(job.id, undefined);
  if (!wasHeld && !(await steer(job.id, "pause"))) {
    pending.delete(job.id);
    return;
  }
  // The user has left the page meanwhile, which has sent the cancellation.
  if (!pending.has(job.id)) return;
  const undo = async () => {
    clearTimeout(pending.get(job.id));
    pending.delete(job.id);
    notices.close(notice);
    if (!wasHeld && (await steer(job.id, "resume"))) notices.tell(`${nameOf(job)} goes on`);
  };
  const notice = notices.tell(
    `${nameOf(job)} is being cancelled`,
    "info",
    { label: "Undo", run: undo },
    UNDO_SECONDS,
  );
  const timer = setTimeout(() => {
    pending.delete(job.id);
    void steer(job.id, "cancel");
  }, UNDO_SECONDS * 1000);
  pending.set(job.id, timer);
}

// A user who closes the page has not undone the cancellations, so they are sent now.
if (typeof addEventListener === "function") {
  addEventListener("pagehide", () => {
    for (const [id, timer] of pending) {
      clearTimeout(timer);
      void fetch(`/api/v1/jobs/${id}/cancel`, {
        method: "POST",
        keepalive: true,
        credentials: "same-origin",
      });
    }
    pending.clear();
  });
}
