/**
 * Server-sent events over fetch. EventSource would not show the service's lines that keep a connection alive, and
 * so could not notice a connection that is gone.
 */

export interface Message {
  id: string | null;
  event: string;
  data: string;
}

/** Cuts a stream of text into messages; what is incomplete waits for the rest. */
export class Splitter {
  #rest = "";
  #id: string | null = null;

  push(text: string): Message[] {
    const blocks = (this.#rest + text).split(/\r?\n\r?\n/);
    this.#rest = blocks.pop() ?? "";
    return blocks.map((block) => this.#message(block)).filter((message) => message !== null);
  }

  #message(block: string): Message | null {
    let event = "message";
    const data: string[] = [];
    for (const line of block.split(/\r?\n/)) {
      const colon = line.indexOf(":");
      // A comment, which keeps the connection alive.
      if (colon === 0) continue;
      const field = colon < 0 ? line : line.slice(0, colon);
      const value = colon < 0 ? "" : line.slice(colon + 1).replace(/^ /, "");
      if (field === "event") event = value;
      else if (field === "data") data.push(value);
      else if (field === "id") this.#id = value;
    }
    return data.length === 0 ? null : { id: this.#id, event, data: data.join("\n") };
  }
}

/** How long to wait for a sign of life. The service is never silent for so long. */
const SILENCE_MS = 20_000;

export interface Listener {
  opened: () => void;
  heard: (message: Message) => void;
}

/**
 * Reads events until the connection ends, by itself or by `stop`. Returns the status of the answer, or 0 if
 * there was no answer.
 */
export async function listen(
  url: string,
  lastId: string | null,
  listener: Listener,
  stop: AbortSignal,
): Promise<number> {
  const silence = new AbortController();
  let timer = setTimeout(() => silence.abort(), SILENCE_MS);
  const heard = () => {
    clearTimeout(timer);
    timer = setTimeout(() => silence.abort(), SILENCE_MS);
  };
  let status = 0;
  try {
    const headers: Record<string, string> = { accept: "text/event-stream" };
    if (lastId !== null) headers["last-event-id"] = lastId;
    const signal = AbortSignal.any([stop, silence.signal]);
    const answer = await fetch(url, { headers, credentials: "same-origin", cache: "no-store", signal });
    status = answer.status;
    if (!answer.ok || !answer.body) return status;
    listener.opened();
    const splitter = new Splitter();
    const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return status;
      heard();
      for (const message of splitter.push(value)) listener.heard(message);
    }
  } catch {
    return status;
  } finally {
    clearTimeout(timer);
  }
}
