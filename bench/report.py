"""What was measured, for reading: medians and spread, an HTML report with plots, a Markdown table.

`python3 bench/report.py bench/results/DATE.json` makes the report of an earlier measurement again.

Always true: a figure measured while the emulator was itself the bottleneck is in no median; a run that did not end in
time counts with what had arrived by then, and says so; the HTML report needs nothing but itself.
"""

import base64
import html
import io
import json
import pathlib
import statistics
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
DOCUMENT = ROOT / "docs/benchmarks.md"
BEGIN, END = "<!-- bench: begin, written by ./x bench -->", "<!-- bench: end -->"


def label(record):
    return record["tool"] + (f" ({record['congestion']})" if record["congestion"] else "")


def rate_text(rate):
    if rate is None:
        return "?"
    for unit, scale in (("Gbit/s", 1e9), ("Mbit/s", 1e6)):
        if rate >= scale:
            return f"{rate / scale:.3g} {unit}"
    return f"{rate / 1e3:.3g} kbit/s"


def figure(record):
    """One run in words."""
    note = f"  (does not count: {record['limited']})" if record["limited"] else ""
    cost = f"  {sum(record['cpu_per_gib']):.1f} CPU s/GiB" if record.get("cpu_per_gib") else ""
    if record["status"] == "ok":
        return f"{rate_text(record['rate_bps']):>12}  {record['seconds']:.2f} s{cost}{'' if record['verified'] else '  not a file'}{note}"
    if record["status"] == "timeout":
        arrived = record.get("arrived")
        told = "what arrived is not known" if arrived is None else f"{arrived / 1e6:.1f} MB of {record['bytes'] / 1e6:.0f} had arrived"
        return f"{rate_text(record['rate_bps']):>12}  not done in {record['limit_seconds']:g} s, {told}{note}"
    last = (record.get("error") or "").strip().split("\n")[-1]
    return f"{record['status'].upper()}: {last[:150]}"


def summarise(runs):
    """One row for each case and tool, in the order of the case's first run; the fastest first within a case."""
    groups = {}
    for record in runs:
        groups.setdefault((record["scenario"], record["case"], label(record)), []).append(record)
    rows = []
    for (scenario, case, name), records in groups.items():
        counted = [record for record in records if not record["limited"]]
        rates = [record["rate_bps"] for record in counted if record["status"] in ("ok", "timeout") and record["rate_bps"] is not None]
        spoiled = [record["rate_bps"] for record in records if record["limited"] and record["status"] in ("ok", "timeout")
                   and record["rate_bps"] is not None]
        costs = [record["cpu_per_gib"] for record in counted if record["status"] == "ok" and record.get("cpu_per_gib")]
        rows.append({
            "scenario": scenario, "case": case, "label": name, "first": records[0], "rounds": len(records),
            "rate": statistics.median(rates) if rates else None, "low": min(rates, default=None), "high": max(rates, default=None),
            "spoiled": statistics.median(spoiled) if spoiled else None,
            "timeouts": sum(record["status"] == "timeout" for record in counted),
            "failures": sum(record["status"] in ("failed", "wrong") for record in counted),
            "limited": len(records) - len(counted),
            "cpu": [statistics.median(cost[end] for cost in costs) for end in (0, 1)] if costs else None,
            "memory": [max(record["peak_bytes"][end] for record in records if "peak_bytes" in record) for end in (0, 1)]
            if any("peak_bytes" in record for record in records) else None,
            "error": next((record.get("error") for record in records if record["status"] in ("failed", "wrong")), None)})
    order = list(dict.fromkeys((row["scenario"], row["case"]) for row in rows))
    return sorted(rows, key=lambda row: (order.index((row["scenario"], row["case"])), -(row["rate"] or 0)))


def cell(row):
    """A row's figure: median, spread, what went wrong."""
    if row["rate"] is None:
        text = "no figure" if row["spoiled"] is None else f"({rate_text(row['spoiled'])})"
    else:
        spread = (row["high"] - row["low"]) / row["rate"] if row["rate"] else 0.0
        text = f"{rate_text(row['rate'])} ±{spread / 2:.0%}"
    for count, word in ((row["timeouts"], "not done in time"), (row["failures"], "failed"), (row["limited"], "emulator full")):
        if count:
            text += f", {count}/{row['rounds']} {word}"
    return text


def columns(rows):
    """What Markdown and the HTML tables have in common: cases as columns, tools as rows."""
    cases = list(dict.fromkeys(row["case"] for row in rows))
    names = list(dict.fromkeys(row["label"] for row in rows))
    ranked = sorted(names, key=lambda name: -sum((row["rate"] or 0) for row in rows if row["label"] == name))
    return cases, ranked, {(row["case"], row["label"]): row for row in rows}


def markdown(document, name):
    host = document["host"]
    rows = [row for row in summarise(document["runs"]) if row["scenario"] == "distance"]
    cases, tools, found = columns(rows)
    lines = [f"Measured {host['date'][:10]} at {host['commit']} on {host['cores']} cores ({host['cpu']}), Linux {host['kernel']}; "
             f"medians of {document['rounds']} rounds and half the spread; a run may take {document['limit_seconds']:g} s, one that "
             f"does not end counts with what had arrived. All data: `bench/results/{name}`. Take the ratios, not the rates.", "",
             "| tool | " + " | ".join(cases) + " |", "| --- |" + " --- |" * len(cases)]
    for tool in tools:
        cells = [cell(found[case, tool]) if (case, tool) in found else "" for case in cases]
        mark = " *" if document["tools"][found_first(found, tool)["tool"]]["yardstick"] else ""
        lines.append(f"| {tool}{mark} | " + " | ".join(cells) + " |")
    if any(document["tools"][row["first"]["tool"]]["yardstick"] for row in rows):
        lines += ["", "\\* memory to memory, nothing verified: a yardstick."]
    return "\n".join(lines)


def found_first(found, tool):
    return next(row["first"] for (_, name), row in found.items() if name == tool)


def put_between_marks(path, text):
    """Replaces what stands between the marks of a file that has them."""
    if not path.exists():
        return False
    old = path.read_text()
    if BEGIN not in old or END not in old:
        return False
    head, rest = old.split(BEGIN, 1)
    path.write_text(f"{head}{BEGIN}\n{text}\n{END}{rest.split(END, 1)[1]}")
    return True


def plotter():
    """matplotlib, or None."""
    try:
        import matplotlib
        matplotlib.use("svg")
        matplotlib.rcParams.update({"svg.fonttype": "none", "font.family": "sans-serif", "font.size": 9, "svg.hashsalt": "farhaul"})
        import matplotlib.pyplot
        return matplotlib.pyplot
    except ImportError:
        return None


OURS, TCP, UDP, YARD = "#c8401f", "#4878a8", "#5a9a68", "#b0b0b0"


def color(document, row):
    tool = document["tools"][row["first"]["tool"]]
    if row["first"]["tool"].startswith("farhaul"):
        return OURS
    return YARD if tool["yardstick"] else TCP if tool["over_tcp"] else UDP


def bars(plot, document, rows, value, unit, title):
    """Horizontal bars, the best on top; whiskers from the lowest to the highest round."""
    rows = list(reversed([row for row in rows if value(row) is not None]))
    if not rows:
        return ""
    figure_, axes = plot.subplots(figsize=(8, 0.9 + 0.24 * len(rows)))
    low_high = None
    if unit == "Gbit/s":
        low_high = [[max(0.0, (row["rate"] - row["low"]) / 1e9) for row in rows], [max(0.0, (row["high"] - row["rate"]) / 1e9) for row in rows]]
    axes.barh([row["label"] for row in rows], [value(row) for row in rows], xerr=low_high, color=[color(document, row) for row in rows],
              error_kw={"elinewidth": 1, "capsize": 2})
    rate = document["rate_bps"].get(rows[0]["first"]["profile"])
    if unit == "Gbit/s" and rate:
        axes.axvline(rate / 1e9, color="black", linewidth=0.8, linestyle=":")
    axes.set_xlabel(unit)
    axes.set_title(title, loc="left", fontsize=10)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    return svg(plot, figure_)


def curves(plot, document, rows, x, xlabel, title, logarithmic):
    """Lines over a quantity, one a tool: rate, or share of the link's rate where it has one."""
    points = {}
    for row in rows:
        if row["rate"] is not None:
            points.setdefault(row["label"], []).append((x(row), row["rate"], row))
    if not points:
        return ""
    figure_, axes = plot.subplots(figsize=(8, 4.5))
    rate = document["rate_bps"].get(rows[0]["first"]["profile"])
    for name, found in points.items():
        found.sort(key=lambda point: point[0])
        ours = name.startswith("farhaul")
        axes.plot([point[0] for point in found], [point[1] / (rate or 1e9) for point in found], marker="o", markersize=3,
                  linewidth=2.2 if ours else 1.0, label=name, color=OURS if ours and "daemon" in name else None)
    if rate:
        axes.axhline(0.9, color="black", linewidth=0.8, linestyle=":")
    axes.set_ylabel("share of the link" if rate else "Gbit/s")
    axes.set_xlabel(xlabel)
    if logarithmic:
        axes.set_xscale("log", base=2)
    axes.set_ylim(bottom=0)
    axes.set_title(title, loc="left", fontsize=10)
    axes.legend(fontsize=7, ncol=2, frameon=False)
    return svg(plot, figure_)


def svg(plot, figure_):
    text = io.StringIO()
    figure_.tight_layout()
    figure_.savefig(text, format="svg", metadata={"Date": None})
    plot.close(figure_)
    body = text.getvalue()
    return f'<figure>{body[body.index("<svg"):]}</figure>'


def threshold(rows, rate):
    """The smallest file size from which on a tool keeps 90 % of the link, in words."""
    sizes = sorted(((row["first"]["file_size"] or row["first"]["bytes"], row["rate"]) for row in rows), reverse=True)
    least = None
    for size, reached in sizes:
        if reached is None or reached < 0.9 * rate:
            break
        least = size
    return "never" if least is None else f"{least >> 20} MiB" if least >= 1 << 20 else f"{least >> 10} KiB"


STYLE = """body{font:15px/1.5 system-ui,sans-serif;max-width:64rem;margin:2rem auto;padding:0 1rem;color:#222}
table{border-collapse:collapse;font-size:13px;margin:1rem 0}td,th{border-bottom:1px solid #ddd;padding:.25rem .6rem;text-align:left;
vertical-align:top}th{background:#f4f4f4}figure{margin:1rem 0;overflow-x:auto}.scroll{overflow-x:auto}
.ours td:first-child{font-weight:600;color:#c8401f}code{font-size:12px}"""


def table(head, lines, ours=lambda line: False):
    body = "".join(f'<tr{" class=ours" if ours(line) else ""}>' + "".join(f"<td>{html.escape(str(part))}</td>" for part in line) + "</tr>"
                   for line in lines)
    return f'<div class=scroll><table><tr>{"".join(f"<th>{html.escape(part)}</th>" for part in head)}</tr>{body}</table></div>'


def page(document, name):
    plot = plotter()
    rows = summarise(document["runs"])
    host = document["host"]
    ours = lambda line: str(line[0]).startswith("farhaul")  # noqa: E731
    parts = [f"<h1>Farhaul beside other tools</h1><p>{html.escape(host['date'])}, commit {html.escape(host['commit'])}, "
             f"{host['cores']} cores ({html.escape(host['cpu'])}), {host['memory_bytes'] / 2**30:.0f} GiB, "
             f"{html.escape(host.get('release', ''))}, Linux {html.escape(host['kernel'])}. {document['rounds']} rounds in rotating order, "
             f"at most {document['limit_seconds']:g} s a run, every file verified by sha256sum after the clock had stopped. "
             "Bars are medians, whiskers go from the lowest round to the highest. A run that did not end in time counts with the bytes "
             "that had arrived. On a shared machine take the ratios, not the rates.</p>"
             "<p>Red: Farhaul. Blue: over TCP. Green: other UDP. Grey: yardsticks, memory to memory.</p>"]
    if plot is None:
        parts.append("<p>No plots: matplotlib is not installed (./x bench install).</p>")
    for scenario in dict.fromkeys(row["scenario"] for row in rows):
        parts.append(f"<h2>{html.escape(scenario.capitalize())}</h2>")
        mine = [row for row in rows if row["scenario"] == scenario]
        if scenario == "distance":
            for case in dict.fromkeys(row["case"] for row in mine):
                chosen = [row for row in mine if row["case"] == case]
                parts.append(f"<h3>{html.escape(case)} <small>({html.escape(document['profiles'][chosen[0]['first']['profile']])})</small></h3>")
                if plot:
                    parts.append(bars(plot, document, chosen, lambda row: None if row["rate"] is None else row["rate"] / 1e9, "Gbit/s", case))
                parts.append(table(["tool", "rate", "CPU s/GiB sender", "receiver", "peak memory A", "B", "note"], [
                    [row["label"], cell(row), *([f"{part:.2f}" for part in row["cpu"]] if row["cpu"] else ["", ""]),
                     *([f"{part / 2**20:.0f} MiB" for part in row["memory"]] if row["memory"] else ["", ""]), (row["error"] or "")[-160:]]
                    for row in chosen], ours))
        else:
            over_size = scenario == "file sizes"
            for profile in dict.fromkeys(row["first"]["profile"] for row in mine):
                chosen = [row for row in mine if row["first"]["profile"] == profile]
                parts.append(f"<h3>{html.escape(profile)} <small>({html.escape(document['profiles'][profile])})</small></h3>")
                x = (lambda row: row["first"]["file_size"] or row["first"]["bytes"]) if over_size else (lambda row: row["first"]["clients"])
                if plot:
                    parts.append(curves(plot, document, chosen, x, "bytes a file" if over_size else "clients at once", profile, True))
                cases, tools, found = columns(chosen)
                extra = document["rate_bps"].get(profile) if over_size else None
                parts.append(table(["tool", *cases, *(["90 % from"] if extra else [])], [
                    [tool, *(cell(found[case, tool]) if (case, tool) in found else "" for case in cases),
                     *([threshold([row for row in chosen if row["label"] == tool], extra)] if extra else [])] for tool in tools], ours))
    cost = [row for row in rows if row["scenario"] == "distance" and row["cpu"]]
    if cost:
        case = cost[0]["case"]
        chosen = sorted((row for row in cost if row["case"] == case), key=lambda row: sum(row["cpu"]))
        parts.append(f"<h2>Cost</h2><p>Processor seconds a GiB, both ends together, in {html.escape(case)}. The kernel's work on behalf "
                     "of a process is in it, what it does in interrupts is not.</p>")
        if plot:
            parts.append(bars(plot, document, chosen, lambda row: sum(row["cpu"]), "CPU seconds a GiB", case))
    parts.append("<h2>Tools and their options</h2>" + table(
        ["tool", "options", "its documentation", "on the wire", "packages"],
        [[tool, facts["options"], facts["reference"], "sealed" if facts["sealed"] else "in the clear", facts["version"]]
         for tool, facts in document["tools"].items()], ours))
    if document["skipped"]:
        parts.append("<h2>Not measured</h2>" + table(["what", "why"], document["skipped"].items()))
    parts.append("<h2>Hosts</h2><p>Set in both hosts: " + html.escape("; ".join(f"{key} = {value}" for key, value in document["buffers"].items()))
                 + ". Limits of UDP socket buffers are the machine's own.</p>")
    states = [record["link"] for record in document["runs"]]
    limited = [record for record in document["runs"] if record["limited"]]
    parts.append(f"<p>Link: {html.escape(states[0]['kind'])}; {len(limited)} of {len(states)} figures were measured while it was itself "
                 "the bottleneck, and do not count.</p>")
    data = base64.b64encode(json.dumps(document).encode()).decode()
    parts.append(f'<p><a download="{html.escape(name)}" href="data:application/json;base64,{data}">All data (JSON)</a></p>')
    return f"<!doctype html><html lang=en><meta charset=utf-8><title>Farhaul beside other tools</title><style>{STYLE}</style>{''.join(parts)}</html>\n"


def write(document, path):
    """The HTML report beside the JSON, and the table in the documents that have a place for it."""
    page_path = path.with_suffix(".html")
    page_path.write_text(page(document, path.name))
    print(f"saved {page_path.relative_to(ROOT)}", file=sys.stderr)
    for target in (DOCUMENT, ROOT / "README.md"):
        if put_between_marks(target, markdown(document, path.name)):
            print(f"wrote the table in {target.relative_to(ROOT)}", file=sys.stderr)


if __name__ == "__main__":
    for argument in sys.argv[1:]:
        source = pathlib.Path(argument).resolve()
        write(json.loads(source.read_text()), source)
