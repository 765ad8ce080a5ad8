import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { commandOf, documentOf, emptyForm, GROUPS, quoted } from "./options.ts";

const schemas = JSON.parse(
  readFileSync(new URL("../../../docs/reference/openapi.json", import.meta.url), "utf8"),
).components.schemas;

/** What the service's description says of a path in the document. */
function described(path: string): { default?: unknown; enum?: string[] } {
  let at = schemas.JobSpec;
  for (const name of path.split(".")) {
    at = at.properties[name];
    assert.ok(at, `${path}: the description has no ${name}`);
    const ref = at.$ref ?? at.oneOf?.find((one: { $ref?: string }) => one.$ref)?.$ref;
    if (ref) at = { ...schemas[ref.split("/").pop()], default: at.default };
  }
  return at;
}

test("every field is in the service's description, with the same usual value and the same choices", () => {
  for (const field of GROUPS.flatMap((group) => group.fields)) {
    const { default: usual, enum: choices } = described(field.path);
    // A switch that the document has as an object is off by default.
    if (usual !== undefined && typeof usual !== "object") assert.deepEqual(field.usual, usual, field.path);
    if (choices) assert.deepEqual([...(field.choices ?? [])].sort(), [...choices].sort(), field.path);
  }
});

test("a form with nothing but locations is the smallest document and the shortest command", () => {
  const form = { ...emptyForm(), sources: ["/data/run 7"], destination: "fh://hpc/in/" };
  form.values = { priority: 5, "options.network.policy": "fair", "options.select.rules": [] };
  assert.deepEqual(documentOf(form), { schema: 1, sources: ["/data/run 7"], destination: "fh://hpc/in/" });
  assert.equal(commandOf(form), "farhaul submit '/data/run 7' fh://hpc/in/");
});

test("what is chosen stands in both", () => {
  const form = { ...emptyForm(), kind: "sync" as const, sources: ["/a/"], destination: "h:/b" };
  form.labels = { run: "7" };
  form.values = {
    "options.network.rate_bps": 1_500_000_000,
    "options.sync.delete": true,
    "options.select.rules": ["- *.tmp", "+ it's"],
    "options.integrity.durable": "end",
  };
  assert.deepEqual(documentOf(form).options, {
    sync: { delete: {} },
    network: { rate_bps: 1_500_000_000 },
    select: { rules: ["- *.tmp", "+ it's"] },
    integrity: { durable: "end" },
  });
  assert.equal(
    commandOf(form),
    "farhaul submit --sync --rate 1.5G --filter '- *.tmp' --filter '+ it'\\''s' --durable=end --delete " +
      "--label run=7 /a/ h:/b",
  );
});

test("a limit of deletions does not make a job delete", () => {
  const form = { ...emptyForm(), kind: "sync" as const, sources: ["/a/"], destination: "/b" };
  form.values = { "options.sync.delete.max": "10%" };
  assert.deepEqual(documentOf(form).options, { sync: {} });
  form.values["options.sync.delete"] = true;
  assert.deepEqual(documentOf(form).options, { sync: { delete: { max: "10%" } } });
  form.values["options.sync.delete.max"] = "7";
  assert.deepEqual(documentOf(form).options, { sync: { delete: { max: 7 } } });
  assert.equal(commandOf(form), "farhaul submit --sync --delete --max-delete 7 /a/ /b");
});

test("words for a shell", () => {
  assert.equal(quoted("a b"), "'a b'");
  assert.equal(quoted("fh://h:1/x_y-z"), "fh://h:1/x_y-z");
  assert.equal(quoted(""), "''");
});
