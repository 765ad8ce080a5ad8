/** Who uses the page, and what they may do. */

import { ApiError, type CallerView, type DeedKind, lineOf, signedOut } from "./api.ts";

type Answer = { ok: true } | { ok: false; line: string };

async function post(path: string, body: unknown): Promise<Response> {
  return fetch(path, {
    method: "POST",
    credentials: "same-origin",
    headers: { "content-type": "application/json" },
    body: JSON.stringify(body),
  });
}

class Who {
  /** Null if nobody is signed in; undefined until that is known. */
  me = $state.raw<CallerView | null | undefined>(undefined);
  /** Why nobody is signed in. */
  reason = $state("");

  /** Whether the service says that they may do this. */
  may(deed: DeedKind): boolean {
    return this.me?.may.includes(deed) ?? false;
  }

  async find(): Promise<void> {
    const code = /^#code=([\w-]+)$/.exec(location.hash)?.[1];
    if (code) {
      // The link works only once, so it need not stay in the address.
      history.replaceState(null, "", "#/now");
      const answer = await this.signIn({ code });
      if (!answer.ok) this.reason = answer.line;
      return;
    }
    try {
      const answer = await fetch("/api/v1/me", { credentials: "same-origin" });
      this.me = answer.ok ? ((await answer.json()) as CallerView) : null;
    } catch {
      this.me = null;
      this.reason = "The service does not answer.";
    }
  }

  async signIn(shown: { token: string } | { code: string }): Promise<Answer> {
    try {
      const answer = await post("/api/v1/login", shown);
      const said = await answer.json();
      if (!answer.ok) throw new ApiError(answer.status, said.detail ?? said.title, said.code, said.hint);
      this.me = said as CallerView;
      this.reason = "";
      return { ok: true };
    } catch (error) {
      this.me = null;
      return { ok: false, line: lineOf(error) };
    }
  }

  async signOut(): Promise<void> {
    await post("/api/v1/logout", {}).catch(() => {});
    this.me = null;
    this.reason = "";
  }
}

export const who = new Who();

signedOut.call = () => {
  if (!who.me) return;
  who.me = null;
  who.reason = "The log-in has ended. Sign in again.";
};
