#!/usr/bin/env python3
"""Makes the modules of the package that follow from the API's description, docs/reference/openapi.json: the types of all
documents and the calls of the service (farhaul/_api.py), and the options of copies and syncs (farhaul/_options.py). Also
makes docs/reference/python.md from the package itself. `--check` writes nothing and fails if a file is not as it would
be made.
"""

import ast
import json
import keyword
import pathlib
import re
import sys
import textwrap
from typing import Any

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
DESCRIPTION = ROOT / "docs/reference/openapi.json"
MADE = "Made by bindings/python/generate.py from docs/reference/openapi.json: change that, and run it again."
WIDTH = 118
#: The schemas whose fields are keywords of `copy` and `sync`, and where a document has them.
OPTION_GROUPS = {"NetworkOptions": "network", "FileOptions": "files", "SelectRules": "select", "IntegrityOptions": "integrity"}
#: Fields that stand by themselves in the options.
OPTION_FIELDS = ["dry_run", "spread", "earlier", "owners", "backup"]
#: A flattened field that would not say what it is.
RENAMED = {"manifest": "manifest_digests"}


def python_name(schema: str) -> str:
    return schema.replace("_", "Of") if "_" in schema else schema


def python_type(schema: Any) -> str:
    """The annotation for a schema."""
    if not isinstance(schema, dict) or not schema:
        return "Any"
    if "$ref" in schema:
        return python_name(schema["$ref"].rsplit("/", 1)[1])
    for key in ("oneOf", "anyOf"):
        if key in schema:
            return " | ".join(dict.fromkeys(python_type(part) for part in schema[key]))
    if "enum" in schema:
        return "Literal[" + ", ".join(json.dumps(word) for word in schema["enum"]) + "]"
    kinds = schema.get("type", "object")
    names = []
    for kind in [kinds] if isinstance(kinds, str) else kinds:
        if kind == "array" and "prefixItems" in schema:
            names.append("list[" + " | ".join(dict.fromkeys(python_type(part) for part in schema["prefixItems"])) + "]")
        elif kind == "array":
            names.append(f"list[{python_type(schema.get('items'))}]")
        elif kind == "object":
            values = schema.get("additionalProperties")
            names.append(f"dict[str, {python_type(values) if isinstance(values, dict) else 'Any'}]")
        else:
            names.append({"string": "str", "integer": "int", "number": "float", "boolean": "bool", "null": "None"}[kind])
    return " | ".join(dict.fromkeys(names))


def comment(text: str | None, indent: str = "    ") -> str:
    lines = textwrap.wrap(" ".join((text or "").split()), WIDTH - len(indent) - 2)
    return "".join(f"{indent}#: {line}\n" for line in lines)


def docstring(text: str | None, indent: str = "    ") -> str:
    words = " ".join((text or "").split()).replace("\\", "\\\\").replace('"""', "'''")
    if len(words) + len(indent) + 6 <= WIDTH:
        return f'{indent}"""{words}"""\n'
    lines = textwrap.wrap(words, WIDTH - len(indent))
    return f'{indent}"""' + f"\n{indent}".join(lines) + f'\n{indent}"""\n'


def fields_of(schema: dict[str, Any]) -> str:
    required = set(schema.get("required", ()))
    text = ""
    for name, field in schema.get("properties", {}).items():
        if not name.isidentifier() or keyword.iskeyword(name):
            raise SystemExit(f"error: a field is called {name}: no class of Python can have it")
        kind = python_type(field)
        said = field.get("description") or next((part.get("description") for part in field.get("oneOf", ()) if "description" in part), None)
        text += comment(said) + f"    {name}: {f'Required[{kind}]' if name in required else kind}\n"
    return text


def typed_dict(name: str, schema: dict[str, Any]) -> str:
    """A schema as a class, or as another name for a type."""
    bases, body = ["TypedDict"], ""
    if "allOf" in schema:
        bases = [python_name(part["$ref"].rsplit("/", 1)[1]) for part in schema["allOf"] if "$ref" in part]
        body = "".join(fields_of(part) for part in schema["allOf"] if "$ref" not in part)
    elif "properties" in schema:
        body = fields_of(schema)
    else:
        return f"{comment(schema.get('description'), '')}{name}: TypeAlias = {python_type_quoted(schema)}\n"
    return f"class {name}({', '.join(bases)}, total=False):\n{docstring(schema.get('description') or name)}\n{body}".rstrip() + "\n"


def python_type_quoted(schema: dict[str, Any]) -> str:
    kind = python_type(schema)
    return kind if kind.startswith("Literal") else f'"{kind}"'


def in_order(schemas: dict[str, Any]) -> list[str]:
    """The names, so that each class stands below those that it is based on."""
    done: list[str] = []

    def add(name: str) -> None:
        for part in schemas[name].get("allOf", ()):
            if "$ref" in part:
                add(part["$ref"].rsplit("/", 1)[1])
        if name not in done:
            done.append(name)

    for name in sorted(schemas):
        add(name)
    return done


def call(method: str, path: str, operation: dict[str, Any]) -> str:
    """A request of the API as a method."""
    name = operation["operationId"].replace("__", "_")
    places = [p["name"] for p in operation.get("parameters", ()) if p["in"] == "path"]
    queries = [p for p in operation.get("parameters", ()) if p["in"] == "query"]
    headers = {"Idempotency-Key": "idempotency_key"}
    keyed = [p["name"] for p in operation.get("parameters", ()) if p["in"] == "header" and p["name"] in headers]
    body = operation.get("requestBody", {}).get("content", {}).get("application/json")
    arguments = ["self"] + [f"{place}: str" for place in places]
    if body:
        arguments.append(f"body: {python_type(body['schema'])}")
    named = [f"{p['name']}: {optional(python_type(p.get('schema', {})))} = None" for p in queries]
    named += [f"{headers[key]}: str | None = None" for key in keyed]
    answer, returns = next(
        ((content, content[kind]) for code, r in operation["responses"].items() if code.startswith("2") for content in [r.get("content", {})] for kind in content),
        (None, None),
    )
    kind = "None"
    if answer is not None:
        kind = python_type(returns["schema"]) if "application/json" in answer else "str"
    if named:
        arguments += ["*", *named]
    target = re.sub(r"\{(\w+)\}", r"{part(\1)}", path)
    given = [f'"{method.upper()}"', f'f"{target}"' if places else f'"{path}"']
    if queries:
        given.append("query={" + ", ".join(f'"{p["name"]}": {p["name"]}' for p in queries) + "}")
    if body:
        given.append("body=body")
    if keyed:
        given.append("headers={" + ", ".join(f'"{key}": {headers[key]}' for key in keyed) + "}")
    text = f"    def {name}({', '.join(arguments)}) -> {kind}:\n"
    text += docstring(operation.get("summary") or operation.get("description") or name, " " * 8)
    request = f"self._ask({', '.join(given)})"
    if kind == "None":
        return text + f"        {request}\n"
    cast = f'cast("{kind}", {request})' if kind != "str" else f"str({request})"
    return text + f"        return {cast}\n"


def optional(kind: str) -> str:
    return kind if "None" in kind.split(" | ") else f"{kind} | None"


def api_module(api: dict[str, Any]) -> str:
    schemas = api["components"]["schemas"]
    text = f'"""The documents and calls of the service\'s API.\n\n{MADE}\n"""\n\nfrom __future__ import annotations\n\n'
    text += "from typing import Any, Literal, Required, TypeAlias, TypedDict, cast\nfrom urllib.parse import quote\n\n\n"
    parts = [typed_dict(python_name(name), schemas[name]) for name in in_order(schemas)]
    text += "\n\n".join(parts)
    text += '\n\ndef part(text: str) -> str:\n    """A part of a path, in which a slash is no slash."""\n    return quote(text, safe="")\n'
    text += '\n\nclass Calls:\n    """One method for each request of the API."""\n\n'
    text += "    def _ask(self, method: str, path: str, *, query: dict[str, Any] | None = None, body: Any = None,\n"
    text += "             headers: dict[str, str | None] | None = None) -> Any:\n        raise NotImplementedError\n"
    for path, operations in api["paths"].items():
        for method, operation in operations.items():
            endless = any("event-stream" in kind for r in operation["responses"].values() for kind in r.get("content", {}))
            if not endless:
                text += "\n" + call(method, path, operation)
    return text


def options_module(api: dict[str, Any]) -> str:
    schemas = api["components"]["schemas"]
    text = f'"""The options of copies and syncs as keywords.\n\n{MADE}\n"""\n\nfrom __future__ import annotations\n\n'
    rows: list[tuple[str, str, str, str | None]] = []
    for schema, group in OPTION_GROUPS.items():
        for name, field in schemas[schema]["properties"].items():
            said = field.get("description") or next((p.get("description") for p in field.get("oneOf", ()) if "description" in p), None)
            kind = python_type(field)
            if name == "verify":
                kind, said = f'{kind} | Literal["end-to-end"]', f"{said} `end-to-end` is what `digest` does, the default."
            rows.append((RENAMED.get(name, name), f"{group}.{name}", kind, said))
    for name in OPTION_FIELDS:
        field = schemas["JobOptions"]["properties"][name]
        said = field.get("description") or next((p.get("description") for p in field.get("oneOf", ()) if "description" in p), None)
        rows.append((name, name, python_type(field), said))
    sync = []
    for name, field in schemas["SyncOptions"]["properties"].items():
        said = field.get("description") or next((p.get("description") for p in field.get("oneOf", ()) if "description" in p), None)
        kind = python_type(field)
        sync.append((name, f"sync.{name}", f"{kind} | bool" if name == "delete" else kind, said))
    names = [name for name, *_ in rows + sync]
    doubled = {name for name in names if names.count(name) > 1}
    if doubled:
        raise SystemExit(f"error: two options are called {doubled}")
    used = sorted({word for _, _, kind, _ in rows + sync for word in re.findall(r"\b[A-Z]\w+", kind)} & {python_name(name) for name in schemas})
    literals = "from typing import Literal, TypedDict\n\n" if any("Literal" in kind for _, _, kind, _ in rows) else "from typing import TypedDict\n\n"
    text += literals + f"from ._api import {', '.join(used)}\n\n\n"
    text += 'class CopyOptions(TypedDict, total=False):\n    """The options of a copy: those of `farhaul cp`."""\n\n'
    text += "    #: The rate as `rate_bps`, or as a text: `2G`, `300M`.\n    rate: str | int | None\n"
    text += "    #: Patterns of what is left out, as `--exclude`.\n    exclude: list[str]\n"
    text += "    #: Patterns of what is taken although it would be left out, as `--include`.\n    include: list[str]\n"
    for name, _, kind, said in rows:
        text += comment(said) + f"    {name}: {kind}\n"
    text += '\n\nclass SyncOptionsOfCall(CopyOptions, total=False):\n    """The options of a sync: those of a copy, and its own. `delete=True` removes what the source has not."""\n\n'
    for name, _, kind, said in sync:
        text += comment(said) + f"    {name}: {kind}\n"
    text += "\n\n#: Where a document has each option.\nPLACES: dict[str, str] = {\n"
    text += "".join(f'    "{name}": "{place}",\n' for name, place, *_ in rows + sync) + "}\n"
    return text


# ---- the reference page ------------------------------------------------------------------------------------------


MODULES = ["__init__", "aio", "service"]
#: The modules whose names `farhaul` passes on.
INNER = ["_transfers", "_reads", "_streams", "_errors"]


def page() -> str:
    """docs/reference/python.md: what the package's modules show, as their source has it."""
    text = (
        "# Python\n\nThe package `farhaul`, as it is in the wheel. [From Python](../guide/from-python.md) shows how to use it.\n\n"
        "<!-- Made by bindings/python/generate.py from the package. -->\n"
    )
    shown = exported(HERE / "farhaul/__init__.py")
    definitions: dict[str, tuple[ast.AST, list[str]]] = {}
    for module in INNER:
        source = (HERE / f"farhaul/{module}.py").read_text()
        for node in ast.parse(source).body:
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                definitions[node.name] = (node, source.splitlines())
    text += "\n## farhaul\n"
    for name in shown:
        if name in definitions:
            text += described(*definitions[name], 3)
    text += options_table()
    for module in ("aio", "service"):
        source = (HERE / f"farhaul/{module}.py").read_text()
        tree = ast.parse(source)
        text += f"\n## farhaul.{module}\n\n{plain(ast.get_docstring(tree) or '')}\n"
        for name in exported(HERE / f"farhaul/{module}.py"):
            node = next((n for n in tree.body if getattr(n, "name", None) == name), None)
            if node is not None:
                text += described(node, source.splitlines(), 3)
    return text


def exported(path: pathlib.Path) -> list[str]:
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and node.targets[0].id == "__all__":
            return list(ast.literal_eval(node.value))
    raise SystemExit(f"error: {path} has no __all__")


def plain(text: str) -> str:
    return text.strip()


def signature(node: ast.FunctionDef | ast.AsyncFunctionDef) -> str:
    arguments = ast.unparse(node.args)
    arguments = re.sub(r"^self(, )?|^cls(, )?", "", arguments)
    returns = f" -> {ast.unparse(node.returns)}" if node.returns else ""
    return f"{node.name}({arguments}){returns}".replace("builtins.", "")


def said_above(lines: list[str], number: int) -> str:
    """The comment above a field, which begins with `#:`."""
    said: list[str] = []
    while lines[number - 2 - len(said)].strip().startswith("#: "):
        said.insert(0, lines[number - 2 - len(said)].strip()[3:])
    return " ".join(said)


def described(node: ast.AST, lines: list[str], level: int) -> str:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        prefix = "await " if isinstance(node, ast.AsyncFunctionDef) else ""
        return f"\n{'#' * level} {node.name}\n\n```python\n{prefix}{signature(node)}\n```\n\n{plain(ast.get_docstring(node) or '')}\n"
    assert isinstance(node, ast.ClassDef)
    bases = ", ".join(ast.unparse(base) for base in node.bases)
    text = f"\n{'#' * level} {node.name}\n\n{plain(ast.get_docstring(node) or '')}\n"
    if bases and not bases.startswith(("NamedTuple", "Mapping")):
        text += f"\nA kind of `{bases}`.\n"
    rows = []
    for member in node.body:
        if isinstance(member, ast.AnnAssign) and isinstance(member.target, ast.Name) and not member.target.id.startswith("_"):
            rows.append((f"{member.target.id}: {ast.unparse(member.annotation)}", said_above(lines, member.lineno)))
        if not isinstance(member, ast.FunctionDef | ast.AsyncFunctionDef) or member.name.startswith("_") and member.name != "__init__":
            continue
        is_property = any(isinstance(d, ast.Name) and d.id == "property" for d in member.decorator_list)
        said = " ".join((ast.get_docstring(member) or "").split())
        if is_property:
            rows.append((f"{member.name}: {ast.unparse(member.returns) if member.returns else ''}", said))
        elif member.name == "__init__":
            # Objects without a word on how they are made come from calls.
            if not said:
                continue
            rows.append((f"{node.name}({signature(member).split('(', 1)[1].removesuffix(' -> None')}", said))
        else:
            prefix = "await " if isinstance(member, ast.AsyncFunctionDef) else ""
            rows.append((prefix + signature(member), said))
    if rows:
        text += "\n| member | |\n| --- | --- |\n" + "".join(f"| `{cell(name)}` | {cell(said)} |\n" for name, said in rows)
    return text


def cell(text: str) -> str:
    return text.replace("|", "\\|")


def options_table() -> str:
    text = "\n### Options of copy and sync\n\nKeywords of `copy`, `start_copy`, `sync` and `start_sync`; the last ones are for syncs only.\n\n| option | |\n| --- | --- |\n"
    said: list[str] = []
    for line in (HERE / "farhaul/_options.py").read_text().splitlines():
        if line.startswith("    #: "):
            said.append(line[7:])
        elif found := re.fullmatch(r"    (\w+): (.*)", line):
            text += f"| `{found[1]}: {cell(found[2])}` | {cell(' '.join(said))} |\n"
            said = []
        elif line.startswith("PLACES"):
            break
    return text


def main() -> int:
    api = json.loads(DESCRIPTION.read_text())
    made = {HERE / "farhaul/_api.py": lambda: api_module(api), HERE / "farhaul/_options.py": lambda: options_module(api),
            ROOT / "docs/reference/python.md": page}
    faults = []
    for path, make in made.items():
        text = make()
        if "--check" not in sys.argv:
            path.write_text(text)
        elif not path.exists() or path.read_text() != text:
            faults.append(str(path.relative_to(ROOT)))
    if faults:
        print(f"error: run bindings/python/generate.py, as it would change {', '.join(faults)}", file=sys.stderr)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
