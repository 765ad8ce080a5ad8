import { live } from "./live.svelte.ts";

/**
 * Asks now, and again a pause behind each answer, so that no answer overtakes another; not while nobody looks or the connection
 * is lost. Yields what ends that.
 */
export function again(ask: () => Promise<unknown>, pauseMs: (times: number) => number): () => void {
  let timer: ReturnType<typeof setTimeout> | undefined;
  let isOver = false;
  async function go(times: number): Promise<void> {
    const isUseful = document.visibilityState === "visible" && live.connection === "live";
    if (times === 0 || isUseful) await ask();
    if (!isOver) timer = setTimeout(() => void go(times + 1), pauseMs(times));
  }
  void go(0);
  return () => {
    isOver = true;
    clearTimeout(timer);
  };
}
