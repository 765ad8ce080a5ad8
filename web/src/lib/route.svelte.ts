/** Which view is shown: the part of the address behind `#/`. */

export interface Route {
  view: string;
  /** What the view is about, such as a job's id. */
  id: string | null;
  query: URLSearchParams;
}

export function readRoute(hash: string): Route {
  const [path = "", query = ""] = hash.replace(/^#\/?/, "").split("?");
  const [view = "", id] = path.split("/");
  return { view: view || "now", id: id ? decodeURIComponent(id) : null, query: new URLSearchParams(query) };
}

class Router {
  route = $state.raw(readRoute(location.hash));

  constructor() {
    addEventListener("hashchange", () => {
      this.route = readRoute(location.hash);
    });
  }

  /** Changes the search in the address, without another entry in the browser's history. */
  search(query: Record<string, string>): void {
    const { view, id } = this.route;
    const used = Object.entries(query).filter(([, value]) => value !== "");
    const text = new URLSearchParams(used).toString();
    const path = `#/${view}${id ? `/${encodeURIComponent(id)}` : ""}`;
    history.replaceState(null, "", text ? `${path}?${text}` : path);
    this.route = readRoute(location.hash);
  }
}

export const router = new Router();

export function go(hash: string): void {
  location.hash = hash;
}
