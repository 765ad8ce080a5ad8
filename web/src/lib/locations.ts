/** Locations as jobs name them: `/path`, `[user@]host:path`, `fh://host[:port]/path`. */

function split(location: string): { host: string; path: string } {
  const daemon = /^(fh:\/\/[^/]*)(\/.*)?$/.exec(location);
  if (daemon) return { host: daemon[1]!, path: daemon[2] ?? "/" };
  const ssh = /^((?:[^/:@]+@)?(?:\[[^\]]*\]|[^/:]+):)(.*)$/.exec(location);
  if (ssh) return { host: ssh[1]!, path: ssh[2]! };
  return { host: "", path: location };
}

/** A name in a directory. */
export function join(location: string, name: string): string {
  return location.endsWith("/") || location.endsWith(":") ? `${location}${name}` : `${location}/${name}`;
}

/** The directory that a location is in; null at the top. */
export function parentOf(location: string): string | null {
  const { host, path } = split(location);
  const plain = path.replace(/\/+$/, "");
  if (plain === "") return null;
  const slash = plain.lastIndexOf("/");
  if (slash < 0) return host ? host : null;
  return `${host}${slash === 0 ? "/" : plain.slice(0, slash)}`;
}

/** Whether a location is at another host. */
export function isRemote(location: string): boolean {
  return split(location).host !== "";
}
