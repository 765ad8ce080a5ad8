"""The report of a measurement: one HTML file that needs nothing but itself, and the table in docs/design/benchmarks.md.

`python3 bench/report.py bench/results/DATE.json` makes the report of an earlier measurement again; with `--docs` the table, too.
"""

import base64
import html
import json
import pathlib
import sys

import plots
from summary import cell, columns, markdown, summarise, threshold

ROOT = pathlib.Path(__file__).resolve().parents[1]
DOCUMENT = ROOT / "docs/design/benchmarks.md"
BEGIN, END = "<!-- bench: begin, written by ./x bench -->", "<!-- bench: end -->"

STYLE = """body{font:15px/1.5 system-ui,sans-serif;max-width:64rem;margin:2rem auto;padding:0 1rem;color:#222}
table{border-collapse:collapse;font-size:13px;margin:1rem 0}th{background:#f4f4f4}
td,th{border-bottom:1px solid #ddd;padding:.25rem .6rem;text-align:left;vertical-align:top}
figure{margin:1rem 0;overflow-x:auto}.scroll{overflow-x:auto}.ours td:first-child{font-weight:600;color:#c8401f}"""


def table(head, lines):
    """An HTML table; lines that begin with Farhaul stand out."""
    def row(line):
        mark = " class=ours" if str(line[0]).startswith("farhaul") else ""
        return f"<tr{mark}>" + "".join(f"<td>{html.escape(str(part))}</td>" for part in line) + "</tr>"
    titles = "".join(f"<th>{html.escape(title)}</th>" for title in head)
    return f"<div class=scroll><table><tr>{titles}</tr>{''.join(map(row, lines))}</table></div>"


def heading(document, text, profile):
    return f"<h3>{html.escape(text)} <small>({html.escape(document['profiles'][profile])})</small></h3>"


def introduction(document):
    host = document["host"]
    where = (f"{host['date']}, commit {host['commit']}, {host['cores']} cores ({host['cpu']}), "
             f"{host['memory_bytes'] / 2**30:.0f} GiB, {host.get('release', '')}, Linux {host['kernel']}.")
    how = (f"{document['rounds']} rounds in rotating order, at most {document['limit_seconds']:g} s a run, every file verified "
           "by sha256sum after the clock had stopped. Bars are medians, whiskers go from the lowest round to the highest. A "
           "run that did not end in time counts with the bytes that had arrived. A figure in parentheses was measured while "
           "the emulator was itself the bottleneck, and is in no median. On a shared machine take the ratios, not the rates.")
    drawn = plots.LEGEND if plots.plot else "No plots: matplotlib is not installed (./x bench install)."
    return f"<h1>Farhaul beside other tools</h1><p>{html.escape(where)} {html.escape(how)}</p><p>{drawn}</p>"


def distances(document, rows):
    parts = []
    for case in dict.fromkeys(row["case"] for row in rows):
        chosen = [row for row in rows if row["case"] == case]
        lines = []
        for row in chosen:
            cpu = [f"{part:.2f}" for part in row["cpu"]] if row["cpu"] else ["", ""]
            memory = [f"{part / 2**20:.0f} MiB" for part in row["memory"]] if row["memory"] else ["", ""]
            lines.append([row["label"], cell(row), *cpu, *memory, (row["error"] or "")[-160:]])
        head = ["tool", "rate", "CPU s/GiB on A", "on B", "peak memory on A", "on B", "note"]
        parts.append(heading(document, case, chosen[0]["first"]["profile"]) + plots.rates(document, chosen, case))
        parts.append(table(head, lines))
    return "".join(parts)


def over_a_quantity(document, rows, over, unit, with_threshold):
    parts = []
    for profile in dict.fromkeys(row["first"]["profile"] for row in rows):
        chosen = [row for row in rows if row["first"]["profile"] == profile]
        cases, tools, found = columns(chosen)
        link = document["rate_bps"].get(profile) if with_threshold else None
        lines = []
        for tool in tools:
            cells = [cell(found[case, tool]) if (case, tool) in found else "" for case in cases]
            last = [threshold([row for row in chosen if row["label"] == tool], link)] if link else []
            lines.append([tool, *cells, *last])
        head = ["tool", *cases, *(["90 % of the link from"] if link else [])]
        parts.append(heading(document, profile, profile) + plots.curves(document, chosen, over, unit, profile))
        parts.append(table(head, lines))
    return "".join(parts)


def costs(document, rows):
    with_cost = [row for row in rows if row["scenario"] == "distance" and row["cpu"]]
    if not with_cost:
        return ""
    case = with_cost[0]["case"]
    chosen = sorted((row for row in with_cost if row["case"] == case), key=lambda row: sum(row["cpu"]))
    return (f"<h2>Cost</h2><p>Processor seconds a GiB, both ends together, in {html.escape(case)}. The kernel's work on behalf "
            f"of a process is in it, what it does in interrupts is not.</p>{plots.costs(document, chosen, case)}")


def tools(document):
    lines = [[name, facts["options"], facts["reference"], "sealed" if facts["sealed"] else "in the clear", facts["version"]]
             for name, facts in document["tools"].items()]
    return "<h2>Tools and their options</h2>" + table(["tool", "options", "its documentation", "on the wire", "packages"], lines)


def surroundings(document, name):
    settings = "; ".join(f"{key} = {value}" for key, value in document["buffers"].items())
    runs = document["runs"]
    limited = sum(bool(record["limited"]) for record in runs)
    skipped = f"<h2>Not measured</h2>{table(['what', 'why'], document['skipped'].items())}" if document["skipped"] else ""
    data = base64.b64encode(json.dumps(document).encode()).decode()
    return (f"{skipped}<h2>Hosts and link</h2><p>Set in both hosts: {html.escape(settings)}. Limits of UDP socket buffers are the "
            f"machine's own.</p><p>Link: {html.escape(runs[0]['link']['kind'])}; {limited} of {len(runs)} figures were measured "
            "while it was itself the bottleneck, and do not count.</p>"
            f'<p><a download="{html.escape(name)}" href="data:application/json;base64,{data}">All data (JSON)</a></p>')


def page(document, name):
    rows = summarise(document["runs"])
    parts = [introduction(document)]
    for scenario in dict.fromkeys(row["scenario"] for row in rows):
        mine = [row for row in rows if row["scenario"] == scenario]
        parts.append(f"<h2>{html.escape(scenario.capitalize())}</h2>")
        if scenario == "file sizes":
            size = lambda row: row["first"]["file_size"] or row["first"]["bytes"]  # noqa: E731
            parts.append(over_a_quantity(document, mine, size, "bytes a file", True))
        elif scenario in ("clients", "all to all"):
            parts.append(over_a_quantity(document, mine, lambda row: row["first"]["clients"], "clients at once", False))
        else:
            parts.append(distances(document, mine))
    parts += [costs(document, rows), tools(document), surroundings(document, name)]
    title = "<meta charset=utf-8><title>Farhaul beside other tools</title>"
    return f"<!doctype html><html lang=en>{title}<style>{STYLE}</style>{''.join(parts)}</html>\n"


def put_between_marks(path, text):
    """Replaces the text between the marks of a file."""
    if not path.exists():
        return False
    old = path.read_text()
    if BEGIN not in old or END not in old:
        return False
    head, rest = old.split(BEGIN, 1)
    path.write_text(f"{head}{BEGIN}\n{text}\n{END}{rest.split(END, 1)[1]}")
    return True


def write(document, path, in_document):
    """Writes the HTML report beside the JSON, and the table in docs/design/benchmarks.md if `in_document` is
    set."""
    page_path = path.with_suffix(".html")
    page_path.write_text(page(document, path.name))
    print(f"saved {page_path}", file=sys.stderr)
    if in_document and put_between_marks(DOCUMENT, markdown(document, path.name)):
        print(f"wrote the table in {DOCUMENT}", file=sys.stderr)


if __name__ == "__main__":
    for argument in sys.argv[1:]:
        if argument != "--docs":
            source = pathlib.Path(argument).resolve()
            write(json.loads(source.read_text()), source, "--docs" in sys.argv)
