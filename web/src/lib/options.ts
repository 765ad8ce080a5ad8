/**
 * The options of a job that the form offers: one table, from which come the form's fields, the JSON document and
 * the command line.
 */

import type { JobSpec } from "./api.ts";
import { nextMoment, writeRate } from "./units.ts";

export type Value = boolean | number | string | string[] | null;

export interface Field {
  /** Where it stands in the job's document. */
  path: string;
  label: string;
  help?: string;
  kind: "switch" | "choice" | "number" | "rate" | "size" | "text" | "lines" | "time";
  /** The value that holds if the user chooses none. */
  usual: Value;
  choices?: readonly string[];
  /** The command line's words for a value that is not the usual one. */
  words: (value: never) => string[];
  /** The value in the document, if it is another one. */
  sent?: (value: never) => unknown;
  /** Only for a job of this kind. */
  only?: "copy" | "sync";
  /** The path of a switch without which it means nothing. */
  needs?: string;
}

export interface Group {
  name: string;
  fields: Field[];
}

const flag = (name: string) => (value: boolean) => (value ? [name] : []);
const option = (name: string) => (value: string | number) => [name, String(value)];
const each = (name: string) => (values: string[]) => values.flatMap((value) => [name, value]);

export const GROUPS: Group[] = [
  {
    name: "Job",
    fields: [
      {
        path: "priority",
        label: "Priority",
        help: "9 is first, 0 is last; under a cap it also decides the share",
        kind: "number",
        usual: 5,
        words: option("--priority"),
      },
      {
        path: "not_before",
        label: "Not before",
        help: "A time of day such as 22:00, or a date and time",
        kind: "time",
        usual: null,
        words: option("--not-before"),
        sent: (time: string) => nextMoment(time, new Date()),
      },
      {
        path: "finish_by",
        label: "Finish by",
        help: "At the latest; the job is sure of the rate that it needs, and takes what nobody else wants",
        kind: "time",
        usual: null,
        words: option("--finish-by"),
      },
      {
        path: "smooth",
        label: "As slow as the deadline allows",
        help: "The job goes only as fast as it must",
        kind: "switch",
        usual: false,
        words: flag("--smooth"),
      },
      {
        path: "anyway",
        label: "Also if it cannot be done in time",
        help: "Otherwise the service answers with the time that can be kept",
        kind: "switch",
        usual: false,
        words: flag("--anyway"),
      },
      {
        path: "repeat.every",
        label: "Repeat every",
        help: "Such as 15m or 1d; the job repeats until it is cancelled",
        kind: "text",
        usual: null,
        words: option("--every"),
      },
      {
        path: "receipt",
        label: "Both ends sign a receipt",
        kind: "switch",
        usual: false,
        words: flag("--with-receipt"),
      },
      {
        path: "webhook",
        label: "Call when it ends",
        help: "An https address that is told how the job ended",
        kind: "text",
        usual: null,
        words: option("--webhook"),
      },
      {
        path: "webhook_dry_run",
        label: "Call also for a dry run",
        kind: "switch",
        usual: false,
        words: flag("--webhook-dry-run"),
      },
    ],
  },
  {
    name: "Network",
    fields: [
      {
        path: "options.network.rate_bps",
        label: "Highest rate",
        help: "In bits a second: 800M, 2G",
        kind: "rate",
        usual: null,
        words: (bps: number) => ["--rate", writeRate(bps)],
      },
      {
        path: "options.network.policy",
        label: "Policy",
        kind: "choice",
        choices: ["fair", "high", "low", "fixed"],
        usual: "fair",
        words: option("--policy"),
      },
      {
        path: "options.network.cipher",
        label: "Cipher",
        kind: "choice",
        choices: ["aes-128-gcm", "aes-256-gcm", "chacha20-poly1305", "none"],
        usual: "aes-128-gcm",
        words: option("--cipher"),
      },
      {
        path: "options.network.flows",
        label: "Flows on each path",
        kind: "number",
        usual: 1,
        words: option("--flows"),
      },
      {
        path: "options.network.auto_paths",
        label: "Use all paths through the network at once",
        kind: "switch",
        usual: false,
        words: (all: boolean) => (all ? ["--path", "auto"] : []),
      },
      {
        path: "options.network.udp_only",
        label: "Fail rather than go on over TCP or SSH",
        kind: "switch",
        usual: false,
        words: flag("--udp-only"),
      },
    ],
  },
  {
    name: "Files",
    fields: [
      {
        path: "options.files.overwrite",
        label: "Replace files that exist",
        kind: "choice",
        choices: ["different", "content", "older", "always", "never"],
        usual: "different",
        words: option("--overwrite"),
      },
      {
        path: "options.files.follow",
        label: "Follow symbolic links",
        kind: "switch",
        usual: false,
        words: flag("--follow"),
      },
      {
        path: "options.files.no_links",
        label: "Skip symbolic links",
        kind: "switch",
        usual: false,
        words: flag("--no-links"),
      },
      {
        path: "options.files.xattrs",
        label: "Keep extended attributes",
        kind: "switch",
        usual: false,
        words: flag("--xattrs"),
      },
      {
        path: "options.files.acls",
        label: "Keep access control lists",
        kind: "switch",
        usual: false,
        words: flag("--acls"),
      },
      {
        path: "options.files.in_place",
        label: "Change large files where they are",
        help: "Needs no room for a second copy; an interruption leaves a file half new",
        kind: "switch",
        usual: false,
        words: flag("--inplace"),
      },
    ],
  },
  {
    name: "Select",
    fields: [
      {
        path: "options.select.rules",
        label: "Filter rules",
        help: "One rule a line, such as - *.tmp; the first that matches decides",
        kind: "lines",
        usual: [],
        words: each("--filter"),
      },
      {
        path: "options.select.size_min",
        label: "Files of at least",
        help: "Bytes",
        kind: "size",
        usual: null,
        words: option("--min-size"),
      },
      {
        path: "options.select.size_max",
        label: "Files of at most",
        help: "Bytes",
        kind: "size",
        usual: null,
        words: option("--max-size"),
      },
      {
        path: "options.select.age_max",
        label: "Files changed within",
        help: "Such as 12h or 7d",
        kind: "text",
        usual: null,
        words: option("--max-age"),
      },
      {
        path: "options.select.one_file_system",
        label: "Stay on one file system",
        kind: "switch",
        usual: false,
        words: flag("--one-file-system"),
      },
    ],
  },
  {
    name: "Integrity",
    fields: [
      {
        path: "options.integrity.verify",
        label: "Arrival is verified by",
        kind: "choice",
        choices: ["digest", "readback", "transit"],
        usual: "digest",
        words: option("--verify"),
      },
      {
        path: "options.integrity.durable",
        label: "Synced to the disk",
        kind: "choice",
        choices: ["no", "end", "file"],
        usual: "no",
        words: (when: string) => [`--durable=${when}`],
      },
    ],
  },
  {
    name: "Sync",
    fields: [
      {
        path: "options.sync.delete",
        label: "Delete what the source does not have",
        kind: "switch",
        usual: false,
        words: flag("--delete"),
        sent: () => ({}),
        only: "sync",
      },
      {
        path: "options.sync.delete.max",
        label: "Delete nothing if it would be more than",
        help: "A number of entries, or a share as 10%. Usually: more than half and more than 100",
        kind: "text",
        usual: null,
        words: option("--max-delete"),
        sent: (limit: string) => (/^\d+$/.test(limit) ? Number(limit) : limit),
        only: "sync",
        needs: "options.sync.delete",
      },
      {
        path: "options.select.require",
        label: "Do nothing unless the source has",
        help: "A path below the source, one a line: a file that shows that its disk is mounted",
        kind: "lines",
        usual: [],
        words: each("--require"),
      },
      {
        path: "options.sync.checksum",
        label: "Compare content, not times",
        kind: "switch",
        usual: false,
        words: flag("--checksum"),
        only: "sync",
      },
      {
        path: "options.sync.detect_renames",
        label: "Find renamed files",
        kind: "switch",
        usual: false,
        words: flag("--detect-renames"),
        only: "sync",
      },
      {
        path: "options.backup.dir",
        label: "Keep what is replaced or deleted in",
        help: "A directory at the destination's host; a relative path begins at the destination",
        kind: "text",
        usual: null,
        words: option("--backup-dir"),
      },
      {
        path: "options.backup.suffix",
        label: "Keep it with this end of its name",
        help: "Such as ~; without a directory it stays beside what replaces it",
        kind: "text",
        usual: null,
        words: (end: string) => ["--backup", "--suffix", end],
      },
    ],
  },
];

export interface Form {
  kind: "copy" | "sync";
  sources: string[];
  destination: string;
  labels: Record<string, string>;
  /** Values by the field's path. A field that is not in here has its usual value. */
  values: Record<string, Value>;
  dryRun: boolean;
}

export function emptyForm(): Form {
  return { kind: "copy", sources: [], destination: "", labels: {}, values: {}, dryRun: false };
}

function isUsual(field: Field, value: Value | undefined): boolean {
  if (value === undefined || value === null || value === "") return true;
  return JSON.stringify(value) === JSON.stringify(field.usual);
}

/** The fields with another value than the usual one. */
function chosen(form: Form): [Field, Value][] {
  const all = GROUPS.flatMap((group) => group.fields);
  return all
    .filter((field) => !field.only || field.only === form.kind)
    .filter((field) => !field.needs || form.values[field.needs] === true)
    .map((field): [Field, Value] => [field, form.values[field.path] ?? null])
    .filter(([field, value]) => !isUsual(field, value));
}

/** The job as a document, without the fields that have their usual value. */
export function documentOf(form: Form): JobSpec {
  const document: Record<string, unknown> = { schema: 1 };
  if (form.kind === "sync") document.kind = "sync";
  document.sources = form.sources;
  document.destination = form.destination;
  if (Object.keys(form.labels).length > 0) document.labels = form.labels;
  const put = (path: string, value: unknown) => {
    const names = path.split(".");
    const last = names.pop()!;
    let at = document;
    for (const name of names) {
      at[name] ??= {};
      at = at[name] as Record<string, unknown>;
    }
    at[last] = value;
  };
  if (form.kind === "sync") put("options.sync", {});
  for (const [field, value] of chosen(form)) {
    put(field.path, field.sent ? field.sent(value as never) : value);
  }
  if (form.dryRun) put("options.dry_run", true);
  return document as unknown as JobSpec;
}

/** A word as a POSIX shell takes it. */
export function quoted(word: string): string {
  return /^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`;
}

/** The same job as a command. */
export function commandOf(form: Form): string {
  const words = ["farhaul", "submit"];
  if (form.kind === "sync") words.push("--sync");
  for (const [field, value] of chosen(form)) words.push(...field.words(value as never));
  for (const [name, value] of Object.entries(form.labels)) words.push("--label", `${name}=${value}`);
  if (form.dryRun) words.push("--dry-run");
  const locations = [...form.sources, form.destination].filter((location) => location !== "");
  if (locations.some((location) => location.startsWith("-"))) words.push("--");
  return [...words, ...locations].map(quoted).join(" ");
}
