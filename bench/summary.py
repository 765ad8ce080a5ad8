"""Sums up many runs: medians and spread, in words and as a Markdown table.

Always true: no median contains a figure that was measured while the emulator itself was the bottleneck; a run
that did not end in time counts with the bytes that had arrived by then, and says so.
"""

import statistics

ENDED = ("ok", "timeout")


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
    rate = f"{rate_text(record.get('rate_bps')):>12}"
    note = f"  (does not count: {record['limited']})" if record["limited"] else ""
    if record["status"] == "ok":
        cost = f"  {sum(record['cpu_per_gib']):.1f} CPU s/GiB" if record.get("cpu_per_gib") else ""
        return f"{rate}  {record['seconds']:.2f} s{cost}{'' if record['verified'] else '  not a file'}{note}"
    if record["status"] == "timeout":
        arrived = record.get("arrived")
        of_all = f"of {record['bytes'] / 1e6:.0f} MB"
        told = "what arrived is not known" if arrived is None else f"{arrived / 1e6:.1f} {of_all} had arrived"
        return f"{rate}  not done in {record['limit_seconds']:g} s, {told}{note}"
    last = (record.get("error") or "").strip().split("\n")[-1]
    return f"{record['status'].upper()}: {last[:150]}"


def summarise(runs):
    """One row for each case and tool: cases in the order in which they ran, within a case the fastest tool
    first."""
    groups = {}
    for record in runs:
        groups.setdefault((record["scenario"], record["case"], label(record)), []).append(record)
    rows = [_row(*key, records) for key, records in groups.items()]
    order = list(dict.fromkeys((row["scenario"], row["case"]) for row in rows))
    return sorted(rows, key=lambda row: (order.index((row["scenario"], row["case"])), -(row["rate"] or 0)))


def _row(scenario, case, name, records):
    bad = [record for record in records if record["status"] not in ENDED]
    counted = [record for record in records if not record["limited"]]
    spoiled = [record for record in records if record["limited"] and record["status"] in ENDED]
    rates = _rates(counted)
    costs = [record["cpu_per_gib"] for record in counted if record["status"] == "ok" and record.get("cpu_per_gib")]
    peaks = [record["peak_bytes"] for record in records if "peak_bytes" in record]
    return {
        "scenario": scenario, "case": case, "label": name, "first": records[0], "rounds": len(records),
        "rate": statistics.median(rates) if rates else None,
        "low": min(rates, default=None),
        "high": max(rates, default=None),
        "spoiled": statistics.median(_rates(spoiled)) if _rates(spoiled) else None,
        "timeouts": sum(record["status"] == "timeout" for record in counted),
        "failures": len(bad),
        "limited": len(spoiled),
        "cpu": [statistics.median(cost[end] for cost in costs) for end in (0, 1)] if costs else None,
        "memory": [max(peak[end] for peak in peaks) for end in (0, 1)] if peaks else None,
        "error": bad[0].get("error") if bad else None,
    }


def _rates(records):
    return [record["rate_bps"] for record in records if record["status"] in ENDED and record["rate_bps"] is not None]


def cell(row):
    """The figure of a row: median, spread, failures."""
    if row["rate"] is not None:
        spread = (row["high"] - row["low"]) / row["rate"] if row["rate"] else 0.0
        text = rate_text(row["rate"]) + (f" ±{spread / 2:.0%}" if row["rounds"] > 1 else "")
    else:
        text = "no figure" if row["spoiled"] is None else f"({rate_text(row['spoiled'])})"
    for name, word in (("timeouts", "not done in time"), ("failures", "failed"), ("limited", "emulator full")):
        if row[name]:
            text += f", {row[name]}/{row['rounds']} {word}"
    return text


def columns(rows):
    """The parts of a table: cases, tools (the fastest over all cases first) and (case, tool) -> row."""
    cases = list(dict.fromkeys(row["case"] for row in rows))
    total = {}
    for row in rows:
        total[row["label"]] = total.get(row["label"], 0) + (row["rate"] or row["spoiled"] or 0)
    tools = sorted(total, key=lambda tool: -total[tool])
    return cases, tools, {(row["case"], row["label"]): row for row in rows}


def threshold(rows, rate):
    """The smallest file size from which on a tool keeps 90 % of the link, in words."""
    sizes = sorted(((row["first"]["file_size"] or row["first"]["bytes"], row["rate"]) for row in rows), reverse=True)
    least = None
    for size, reached in sizes:
        if reached is None or reached < 0.9 * rate:
            break
        least = size
    return "never" if least is None else f"{least >> 20} MiB" if least >= 1 << 20 else f"{least >> 10} KiB"


def markdown(document, name):
    """The table of the distances. `name` is the file that has all the data."""
    host = document["host"]
    rows = [row for row in summarise(document["runs"]) if row["scenario"] == "distance"]
    cases, tools, found = columns(rows)
    yardsticks = {row["label"] for row in rows if document["tools"][row["first"]["tool"]]["yardstick"]}
    lines = [
        f"Measured {host['date'][:10]} at {host['commit']} on {host['cores']} cores ({host['cpu']}), Linux {host['kernel']}.",
        f"Medians of {document['rounds']} rounds and half the spread; a run may take {document['limit_seconds']:g} s, and counts",
        f"with what had arrived if it does not end. All data: `bench/results/{name}`. Take the ratios, not the rates.",
        "",
        "| tool | " + " | ".join(cases) + " |",
        "| --- |" + " --- |" * len(cases),
    ]
    for tool in tools:
        cells = [cell(found[case, tool]) if (case, tool) in found else "" for case in cases]
        lines.append(f"| {tool}{' *' if tool in yardsticks else ''} | " + " | ".join(cells) + " |")
    if yardsticks:
        lines += ["", "\\* memory to memory, nothing verified: a yardstick."]
    return "\n".join(lines)
