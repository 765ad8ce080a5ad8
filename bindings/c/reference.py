#!/usr/bin/env python3
"""Makes docs/reference/c.md from the header: `./x bindings --header` runs it, and tests/test_c.py compares."""

import pathlib
import re

HERE = pathlib.Path(__file__).resolve().parent
HEADER = HERE / "include/farhaul.h"
PAGE = HERE.parents[1] / "docs/reference/c.md"

BEGIN = """# C API

`farhaul.h` as a page. It is made by `./x bindings --header`; [the guide](../guide/from-c.md) begins with two programs.

{rules}

## Further options

`options_json` of `fh_copy` and `fh_sync` is a JSON object with the fields `options`, `connection`, `manifest` and `receipt`. `options` has the groups of a job of the service
(`network`, `files`, `select`, `integrity`, `owners`, `sync`, ...; the schema `JobOptions` in [openapi.json](openapi.json)). That of `fh_connect` and `fh_remote_open` has `network` and `connection`. A field that is not known is an error.

`connection` says how to get to the far host: `port`, `identity` (a list of files), `fingerprint`, `accept_new`, `known_hosts`, `busy_wait` for daemons; `ssh_config`, `jump`, `ssh_options`, `ssh_program`,
`remote_program`, `bring`, `answer_wait` for SSH. Nobody is asked on a terminal unless `prompts` is true.

```json
{{"options": {{"network": {{"rate_bps": 2000000000}}, "integrity": {{"verify": "digest"}}}},
 "connection": {{"fingerprint": "SHA256:..."}}}}
```
"""


def rules(header):
    """The paragraphs of the header's first comment."""
    lines = [line.removeprefix(" *").strip() for line in header.split("*/")[0].splitlines()[2:]]
    return re.sub(r" ?(Errors|Handles|Threads|Memory): ", r"\n- \1: ", " ".join(lines)).strip()


def plain(lines):
    return " ".join(line.strip().removeprefix("//").strip() for line in lines)


def parts(header):
    """(comment, declaration) of each thing in the header."""
    comment, declaration = [], []
    for line in header.split("*/", 1)[1].splitlines():
        if declaration:
            declaration.append(line)
            if line.startswith("}"):
                yield plain(comment), "\n".join(declaration)
                comment, declaration = [], []
        elif line.startswith("//"):
            comment.append(line)
        elif line.startswith(("#define FH_", "typedef struct")) and " // " in line:
            line, behind = line.split("//", 1)
            yield behind.strip(), line.strip()
        elif line.startswith("typedef struct") and line.endswith("{"):
            declaration = [line]
        elif line.startswith(("int32_t", "size_t", "void", "const", "typedef", "#define FH")):
            yield plain(comment), line
            comment = []


def page(header):
    sections = {"Codes and numbers": [], "Handles": [], "Structs": [], "Callbacks": [], "Functions": []}
    for comment, declaration in parts(header):
        if declaration.startswith("#define"):
            _, name, value = declaration.split(maxsplit=2)
            sections["Codes and numbers"].append(f"| `{name}` | {value} | {comment} |")
        elif declaration.startswith("typedef struct") and "{" not in declaration:
            sections["Handles"].append(f"| `{declaration.split()[-1].rstrip(';')}` | {comment} |")
        elif declaration.startswith("typedef struct"):
            sections["Structs"].append(f"### {declaration.split()[2]}\n\n{comment}\n\n```c\n{declaration}\n```\n")
        elif "(*" in declaration:
            name = re.search(r"\(\*(\w+)\)", declaration)[1]
            sections["Callbacks"].append(f"### {name}\n\n{comment}\n\n```c\n{declaration}\n```\n")
        else:
            name = re.search(r"(fh_\w+)\(", declaration)[1]
            sections["Functions"].append(f"### {name}\n\n{comment}\n\n```c\n{declaration}\n```\n")
    tables = {"Codes and numbers": "| name | number | |\n| --- | --- | --- |\n", "Handles": "| type | |\n| --- | --- |\n"}
    text = BEGIN.format(rules=rules(header))
    for name in ("Codes and numbers", "Handles", "Functions", "Structs", "Callbacks"):
        text += f"\n## {name}\n\n{tables.get(name, '')}" + "\n".join(sections[name]).rstrip("\n") + "\n"
    return text


if __name__ == "__main__":
    PAGE.write_text(page(HEADER.read_text()))
