"""Draws a Grafana board as SVG from its JSON and what its queries found: panels, units and legends are the board's, the look is ours. It asks nothing and knows no
query. See boards_live.py."""

import math
import re
from xml.sax.saxutils import escape

COLUMN, ROW, GAP, HEAD = 50, 30, 8, 24
COLOURS = ["#1f77b4", "#2ca02c", "#d95f02", "#7b4ea3", "#c0392b", "#17a2b8", "#8c6d1f", "#e377c2", "#555555", "#9acd32"]
LEGEND_LINES = 3


def number(value, unit):
    """A value as a person reads it on an axis."""
    if value is None:
        return "–"
    if unit == "currencyUSD":
        return f"${value:,.2f}"
    if unit == "percentunit":
        return f"{value * 100:.0f} %"
    if unit == "percent":
        return f"{value:.0f} %"
    if unit == "s":
        return f"{value * 1000:.3g} ms" if abs(value) < 1 else f"{value:.3g} s"
    if unit == "bytes":
        return f"{value / 2**20:.0f} MiB"
    return f"{value:.3g}"


def name(series, legend):
    """The legend of a series; what its labels do not have is left empty, as Grafana does."""
    if not legend:
        return ", ".join(f"{key}={value}" for key, value in sorted(series["labels"].items()) if key != "__name__")
    return re.sub(r"\{\{\s*(\w+)\s*\}\}", lambda match: series["labels"].get(match.group(1), ""), legend)


def ticks(low, high):
    """Three to six round values that span the range."""
    step = 10 ** math.floor(math.log10((high - low) / 3))
    while (high - low) / step > 5:
        step *= 2 if (high - low) / step <= 10 else 2.5
    first = math.floor(low / step)
    return [step * index for index in range(first, math.ceil(high / step) + 1)]


def text(x, y, words, size=11, colour="#333", anchor="start", weight="normal"):
    return f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" fill="{colour}" text-anchor="{anchor}" font-weight="{weight}">{escape(words)}</text>'


def lines_of(panel, rows):
    """(legend, samples) of every series of a panel, in the order of its queries; series that are zero throughout come last."""
    found = []
    for index, target in enumerate(panel.get("targets", [])):
        for row in rows:
            if row["panel"] == panel["title"] and row.get("target") == index:
                for series in sorted(row.get("series", []), key=lambda one: sorted(one["labels"].items())):
                    samples = [(at, value) for at, value in series["samples"] if value is not None]
                    if samples:
                        found.append((name(series, target.get("legendFormat")), samples))
    return sorted(found, key=lambda line: all(value == 0 for _, value in line[1]))


def stat(x, y, width, height, lines, unit):
    if not lines:
        return [text(x + width / 2, y + height / 2, "no data", 13, "#777", "middle")]
    legend, samples = lines[0]
    value = legend if unit == "short" and re.match(r"v?\d+\.\d+", legend) else number(samples[-1][1], unit)
    return [text(x + width / 2, y + height / 2 + 12, value, 34, "#1f6f3d", "middle", "bold"), text(x + width / 2, y + height - 14, legend, 11, "#666", "middle")]


def legend_of(x, y, width, lines):
    """The names below a plot, in as many lines as there is room for."""
    out, left, line = [], 0, 0
    for index, (words, _) in enumerate(lines):
        needed = 22 + 6.2 * len(words)
        if left + needed > width and left:
            line, left = line + 1, 0
        if line == LEGEND_LINES - 1 and left + needed + 60 > width and index + 1 < len(lines):
            out.append(text(x + left, y + line * 15, f"and {len(lines) - index} more", 10, "#777"))
            break
        out.append(f'<rect x="{x + left:.1f}" y="{y + line * 15 - 5:.1f}" width="12" height="3" fill="{COLOURS[index % len(COLOURS)]}"/>')
        out.append(text(x + left + 16, y + line * 15, words, 10, "#444"))
        left += needed
    return out


def plot(x, y, width, height, lines, unit, end, least=None):
    """`least` is where the axis begins, if the board says that: Grafana draws nothing below it."""
    if not lines:
        return [text(x + width / 2, y + height / 2, "no data", 13, "#777", "middle")]
    values = [value for _, samples in lines for _, value in samples]
    low, high = min(0, *values) if least is None else least, max(0, *values)
    high = high if high > low else low + 1
    marks = ticks(low, high)
    low, high = marks[0], marks[-1]
    left, right, top, bottom = x + 62, x + width - 12, y + 6, y + height - LEGEND_LINES * 15 - 22
    across = lambda at: left + (right - left) * at / end
    up = lambda value: bottom - (bottom - top) * (value - low) / (high - low)
    out = []
    for mark in marks:
        out.append(f'<line x1="{left}" x2="{right}" y1="{up(mark):.1f}" y2="{up(mark):.1f}" stroke="{"#999" if mark == 0 else "#e3e3e3"}"/>')
        out.append(text(left - 6, up(mark) + 4, number(mark, unit), 10, "#777", "end"))
    for at in range(0, int(end) + 1, 30):
        out.append(text(across(at), bottom + 14, f"{at} s", 10, "#777", "middle"))
    for index, (_, samples) in reversed(list(enumerate(lines))):
        points = " ".join(f"{across(at):.1f},{up(value):.1f}" for at, value in samples if least is None or value >= least)
        out.append(f'<polyline points="{points}" fill="none" stroke="{COLOURS[index % len(COLOURS)]}" stroke-width="1.6"/>')
    return out + legend_of(x + 12, bottom + 31, width - 24, lines)


def drawn(board, rows):
    """The board as an SVG text."""
    rows = [row for row in rows if row["board"] == board["title"]]
    end = max(at for row in rows for series in row.get("series", []) for at, _ in series["samples"])
    bottom = max(panel["gridPos"]["y"] + panel["gridPos"]["h"] for panel in board["panels"])
    width, height = 24 * COLUMN + GAP, bottom * ROW + 44 + GAP
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="Inter, Helvetica, Arial, sans-serif" role="img">',
        f"<title>{escape(board['title'])}: the demo's first {end:.0f} seconds</title>",
        f'<rect width="{width}" height="{height}" fill="#f4f5f5"/>',
        text(14, 28, board["title"], 18, "#222", weight="bold"),
    ]
    for panel in board["panels"]:
        place = panel["gridPos"]
        x, y = place["x"] * COLUMN + GAP, place["y"] * ROW + 44
        if panel["type"] == "row":
            out.append(text(x + 4, y + 20, panel["title"], 14, "#222", weight="bold"))
            continue
        inner_width, inner_height = place["w"] * COLUMN - GAP, place["h"] * ROW - GAP
        defaults = panel.get("fieldConfig", {}).get("defaults", {})
        unit = defaults.get("unit", "short")
        lines = lines_of(panel, rows)
        out.append(f'<rect x="{x}" y="{y}" width="{inner_width}" height="{inner_height}" rx="3" fill="#fff" stroke="#dcdcdc"/>')
        out.append(text(x + 10, y + 17, panel["title"], 12, "#222", weight="bold"))
        body = stat(x, y + HEAD, inner_width, inner_height - HEAD, lines, unit) if panel["type"] == "stat" else plot(x, y + HEAD, inner_width, inner_height - HEAD, lines, unit, end, defaults.get("min"))
        out += body
    return "\n".join([*out, "</svg>", ""])
