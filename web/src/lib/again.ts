import { live } from "./live.svelte.ts";

/**
 * Calls `ask` at once, and again after a pause behind each answer, so that no answer overtakes another. Later
 * calls are left out while the page is hidden or the connection is lost. Returns a function that ends it.
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
