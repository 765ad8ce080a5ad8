"""Plots of the report, as SVG for the page. matplotlib draws them; without it there are no plots."""

import io

try:
    import matplotlib
    matplotlib.use("svg")
    matplotlib.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "farhaul", "font.family": "sans-serif", "font.size": 9})
    import matplotlib.pyplot as plot
except ImportError:
    plot = None

OURS, TCP, UDP, YARDSTICK = "#c8401f", "#4878a8", "#5a9a68", "#b0b0b0"
LEGEND = "Red: Farhaul. Blue: over TCP. Green: other UDP. Grey: yardsticks, memory to memory."


def color(document, row):
    name = row["first"]["tool"]
    tool = document["tools"][name]
    if name.startswith("farhaul"):
        return OURS
    return YARDSTICK if tool["yardstick"] else TCP if tool["over_tcp"] else UDP


def rates(document, rows, title):
    """Bars of medians, the fastest on top; whiskers from the lowest round to the highest; the link's rate dotted."""
    rows = [row for row in rows if row["rate"] is not None]
    low = [(row["rate"] - row["low"]) / 1e9 for row in rows]
    high = [(row["high"] - row["rate"]) / 1e9 for row in rows]
    link = document["rate_bps"].get(rows[0]["first"]["profile"]) if rows else None
    return _bars(document, rows, [row["rate"] / 1e9 for row in rows], "Gbit/s", title, (low, high), link)


def costs(document, rows, title):
    return _bars(document, rows, [sum(row["cpu"]) for row in rows], "CPU seconds a GiB", title)


def _bars(document, rows, values, unit, title, whiskers=None, link=None):
    if plot is None or not rows:
        return ""
    figure, axes = plot.subplots(figsize=(8, 0.9 + 0.24 * len(rows)))
    colors = [color(document, row) for row in rows]
    axes.barh([row["label"] for row in rows], values, xerr=whiskers, color=colors, error_kw={"elinewidth": 1, "capsize": 2})
    axes.invert_yaxis()
    if link:
        axes.axvline(link / 1e9, color="black", linewidth=0.8, linestyle=":")
    axes.set_xlabel(unit)
    return _svg(figure, axes, title)


def curves(document, rows, over, unit, title):
    """One line for each tool over `over(row)`: the share of the link, or the rate if the link has no
    limit."""
    lines = {}
    for row in rows:
        if row["rate"] is not None:
            lines.setdefault(row["label"], []).append((over(row), row["rate"]))
    if plot is None or not lines:
        return ""
    figure, axes = plot.subplots(figsize=(8, 4.5))
    link = document["rate_bps"].get(rows[0]["first"]["profile"])
    for name, points in lines.items():
        points.sort()
        style = {"linewidth": 2.2, "color": OURS} if name == "farhaul daemon" else {"linewidth": 1.0}
        axes.plot([point[0] for point in points], [point[1] / (link or 1e9) for point in points],
                  marker="o", markersize=3, label=name, **style)
    if link:
        axes.axhline(0.9, color="black", linewidth=0.8, linestyle=":")
    axes.set_ylabel("share of the link" if link else "Gbit/s")
    axes.set_xlabel(unit)
    axes.set_xscale("log", base=2)
    axes.set_ylim(bottom=0)
    axes.legend(fontsize=7, ncol=2, frameon=False)
    return _svg(figure, axes, title)


def _svg(figure, axes, title):
    axes.set_title(title, loc="left", fontsize=10)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    text = io.StringIO()
    figure.tight_layout()
    figure.savefig(text, format="svg", metadata={"Date": None})
    plot.close(figure)
    body = text.getvalue()
    return f'<figure>{body[body.index("<svg"):]}</figure>'
