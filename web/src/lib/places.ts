/** Places as jobs name them: `/path`, `[user@]host:path`, `fh://host[:port]/path`. */

function split(place: string): { host: string; path: string } {
  const daemon = /^(fh:\/\/[^/]*)(\/.*)?$/.exec(place);
  if (daemon) return { host: daemon[1]!, path: daemon[2] ?? "/" };
  const ssh = /^((?:[^/:@]+@)?(?:\[[^\]]*\]|[^/:]+):)(.*)$/.exec(place);
  if (ssh) return { host: ssh[1]!, path: ssh[2]! };
  return { host: "", path: place };
}

/** A name in a directory. */
export function join(place: string, name: string): string {
  return place.endsWith("/") || place.endsWith(":") ? `${place}${name}` : `${place}/${name}`;
}

/** The directory that a place is in; null at the top. */
export function parentOf(place: string): string | null {
  const { host, path } = split(place);
  const plain = path.replace(/\/+$/, "");
  if (plain === "") return null;
  const slash = plain.lastIndexOf("/");
  if (slash < 0) return host ? host : null;
  return `${host}${slash === 0 ? "/" : plain.slice(0, slash)}`;
}

/** Whether a place is at another host. */
export function isRemote(place: string): boolean {
  return split(place).host !== "";
}
