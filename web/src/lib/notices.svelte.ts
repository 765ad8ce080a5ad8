/** Short messages at the page's edge, some with a button for a few seconds. */

export interface Notice {
  id: number;
  text: string;
  kind: "info" | "error";
  action?: { label: string; run: () => void };
  /** Seconds until the notice closes; 0 for a notice that stays until somebody closes it. */
  left: number;
}

class Notices {
  all = $state<Notice[]>([]);
  #next = 1;

  tell(text: string, kind: Notice["kind"] = "info", action?: Notice["action"], seconds = 5): number {
    const id = this.#next++;
    // An error stays until somebody has read it.
    const left = kind === "error" ? 0 : seconds;
    this.all = [...this.all.slice(-4), { id, text, kind, action, left }];
    if (left > 0) this.#count(id);
    return id;
  }

  #count(id: number): void {
    const timer = setInterval(() => {
      const notice = this.all.find((one) => one.id === id);
      if (!notice || notice.left <= 1) {
        clearInterval(timer);
        this.close(id);
      } else {
        notice.left -= 1;
      }
    }, 1000);
  }

  close(id: number): void {
    this.all = this.all.filter((notice) => notice.id !== id);
  }
}

export const notices = new Notices();
