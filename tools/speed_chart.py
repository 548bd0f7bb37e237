#!/usr/bin/env python3
"""Draws docs/assets/speed.svg, decode speed beside other engines.

The figures come from docs/benchmarks/current.json. Usage: speed_chart.py [--check]

--check compares instead, and exits with 1 if the file on disk is not the one that would be written.
"""
import html
import json
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
RESULTS = ROOT / "docs" / "benchmarks" / "current.json"
CHART = ROOT / "docs" / "assets" / "speed.svg"

WIDTH = 840
MARGIN = 28
BAR_LEFT, BAR_RIGHT = 236, 640  # ratio 0 and ratio AXIS_MAX
AXIS_MAX = 3.0
BAR_HEIGHT, ROW_HEIGHT = 14, 22
GROUP_GAP, GROUP_TITLE = 16, 24
TIMES = "\N{MULTIPLICATION SIGN}"
TOP = 104  # where the first group begins

STYLE = """
  .card { fill: #ffffff; stroke: #d0d7de; }
  .ink { fill: #1f2328; }
  .dim { fill: #59636e; }
  .bar { fill: #0b6bcb; }
  .grid { stroke: #d8dee4; }
  .peer { stroke: #1f2328; stroke-dasharray: 3 2; }
  text { font-family: -apple-system, "Segoe UI", Helvetica, Arial, "Liberation Sans", sans-serif; font-size: 13px; }
  .title { font-size: 20px; font-weight: 600; }
  .group { font-weight: 600; }
  .small { font-size: 12px; }
  .ratio { font-weight: 600; paint-order: stroke; stroke: #ffffff; stroke-width: 4px; }
  .end { text-anchor: end; }
  .middle { text-anchor: middle; }
  @media (prefers-color-scheme: dark) {
    .card { fill: #0d1117; stroke: #30363d; }
    .ink { fill: #e6edf3; }
    .dim { fill: #9198a1; }
    .bar { fill: #4c9aff; }
    .grid { stroke: #262c34; }
    .ratio { stroke: #0d1117; }
    .peer { stroke: #e6edf3; }
  }
"""


def ratio_of(row):
    """How many times as fast as the peer. Some rows have only that, or the median of the rounds' ratios."""
    if "ratio" in row:
        return row["ratio"]
    ours, peer = row["ours"], row["peer_value"]
    return peer / ours if row["better"] == "lower" else ours / peer


def label_of(row):
    if row["machine"] == "h200":
        return f"{row['model']}, batch {row['batch']}"
    return f"{row['model']}, {row['weights']}"


def figures_of(row):
    return f"{row['ours']} / {row['peer_value']} {row['unit']}" if "ours" in row else ""


def x_of(ratio):
    return BAR_LEFT + (BAR_RIGHT - BAR_LEFT) * ratio / AXIS_MAX


def text(x, y, words, css):
    return f'<text x="{x:g}" y="{y:g}" class="{css}">{html.escape(words)}</text>'


def line(ratio, top, bottom, css):
    x = f"{x_of(ratio):.1f}"
    return f'<line x1="{x}" y1="{top}" x2="{x}" y2="{bottom}" class="{css}"/>'


def draw_group(machine, rows, y):
    """The lines of one machine from y on, and where the next may begin."""
    peer = rows[0]["peer"]
    out = [
        text(MARGIN, y + 12, f"{machine['name']} against {peer}", "ink group"),
        text(WIDTH - MARGIN, y + 12, f"{machine['detail']}, {rows[0]['date']}", "dim small end"),
    ]
    y += GROUP_TITLE
    top, bottom = y - 4, y + ROW_HEIGHT * len(rows) - 4
    out += [line(ratio, top, bottom, "grid") for ratio in (0, 2, 3)]
    for row in rows:
        ratio = ratio_of(row)
        if not 0 < ratio <= AXIS_MAX:
            sys.exit(f"{label_of(row)}: {ratio:.2f} is not on an axis up to {AXIS_MAX:g}; raise AXIS_MAX")
        base = y + BAR_HEIGHT - 3
        end = x_of(ratio)
        out += [
            text(BAR_LEFT - 12, base, label_of(row), "ink end"),
            f'<rect x="{BAR_LEFT}" y="{y}" width="{end - BAR_LEFT:.1f}" height="{BAR_HEIGHT}" rx="2" class="bar"/>',
            text(round(end + 7, 1), base, f"{ratio:.2f}{TIMES}", "ink ratio"),
            text(WIDTH - MARGIN, base, figures_of(row), "dim small end"),
        ]
        y += ROW_HEIGHT
    out.append(line(1, top, bottom, "peer"))  # over the bars
    return out, y + GROUP_GAP


def draw(results):
    decode = [row for row in results["results"] if row["figure"] == "decode"]
    body, y = [], TOP
    for name, machine in results["machines"].items():
        rows = [row for row in decode if row["machine"] == name]
        if rows:
            group, y = draw_group(machine, rows, y)
            body += group
    bottom = y - GROUP_GAP
    height = bottom + 74
    axis = [
        text(round(x_of(ratio), 1), TOP - 14, words, "dim small middle")
        for ratio, words in ((0, "0"), (1, f"peer = 1{TIMES}"), (2, f"2{TIMES}"), (3, f"3{TIMES}"))
    ]
    notes = (
        "Right: Sluice / peer. H200: time of a decode step, lower is better;"
        " vLLM ran on another machine of the same kind.",
        "CPUs: output tokens/s of one sequence, the same GGUF file, in turn."
        " Machines and commands: docs/benchmarks/README.md.",
    )
    title = "Decode speed of Sluice relative to vLLM and llama.cpp"
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}"'
        ' role="img" aria-labelledby="title">',
        f'<title id="title">{title}</title>',
        f"<style>{STYLE}</style>",
        f'<rect x="0.5" y="0.5" width="{WIDTH - 1}" height="{height - 1}" rx="8" class="card"/>',
        text(MARGIN, 40, title, "ink title"),
        text(MARGIN, 62, "Bar: how many times as fast as the peer on the same kind of machine. Longer is better.", "dim"),
        *axis,
        *body,
        *(text(MARGIN, bottom + 32 + 18 * i, note, "dim small") for i, note in enumerate(notes)),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def main():
    picture = draw(json.loads(RESULTS.read_text(encoding="utf-8")))
    if sys.argv[1:] == ["--check"]:
        if not CHART.exists() or CHART.read_text(encoding="utf-8") != picture:
            sys.exit(f"{CHART.relative_to(ROOT)} is not what {RESULTS.name} gives: run tools/speed_chart.py")
    elif sys.argv[1:]:
        sys.exit(__doc__)
    else:
        CHART.parent.mkdir(parents=True, exist_ok=True)
        CHART.write_text(picture, encoding="utf-8")


if __name__ == "__main__":
    main()
