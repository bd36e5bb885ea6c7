"""Charts as inline SVG whose colours are the page's own, so that they follow its light and dark mode.

They are drawn narrow, so that their text stays readable on a phone, and hold text as text: small, and in the
page's font.
"""

from __future__ import annotations

import io
import re
from collections import Counter
from collections.abc import Sequence
from typing import Any

import matplotlib
from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from grader.reports.rows import OUTCOMES, Outcome
from grader.reports.tallies import StepTally
from grader.reports.text import number

# Matplotlib knows no CSS variables: each colour is drawn as a stand-in and replaced in the finished SVG.
_VARIABLES = ("ink", "soft", "line", "card", "accent", *(outcome.id for outcome in OUTCOMES))
_STAND_INS = {name: f"#01{i:02x}01" for i, name in enumerate(_VARIABLES, start=1)}
_STYLE: Any = {  # matplotlib 3.11 types the keys, older versions take any string
    "svg.fonttype": "none",
    "text.parse_math": False,
    "font.family": "DejaVu Sans",  # comes with matplotlib: the same measures everywhere
    "font.size": 9,
    "text.color": _STAND_INS["ink"],
    "xtick.color": _STAND_INS["soft"],
    "axes.labelcolor": _STAND_INS["soft"],
}
_WIDTH = 4.4  # inches
_NO_METADATA = {"Date": None, "Creator": None, "Format": None, "Type": None}
# A chart inside a page needs no size, fonts and rules of its own, and an id may occur once in the page.
_FOR_A_PAGE_OF_ITS_OWN = (
    re.compile(r' width="[\d.]+pt" height="[\d.]+pt"'),
    re.compile(r"<defs>\s*<style.*?</defs>\s*", re.DOTALL),
    re.compile(r' id="[^"]*"'),
    re.compile(r" font-family: [^;\"]*;"),
)
_BINS = 10


def distribution(points: Sequence[float], max_points: float) -> Markup:
    """A histogram of points in tenths of the maximum; full marks fall into the last bar."""
    bins = min(_BINS, max(1, round(max_points)))
    width = max(1, max_points) / bins
    counts = Counter(min(max(int(value / width), 0), bins - 1) for value in points)
    heights = [counts[i] for i in range(bins)]
    with matplotlib.rc_context(_STYLE):
        figure, axes = _canvas(height=3.1)
        for i, count in sorted(counts.items()):
            middle = (i + 0.5) * width
            axes.bar(middle, count, 0.86 * width, color=_STAND_INS["accent"], clip_on=False)
            axes.annotate(str(count), (middle, count), (0, 3), textcoords="offset points", ha="center")
        axes.axhline(0, color=_STAND_INS["line"], linewidth=1, clip_on=False)
        edges = [i * width for i in range(bins + 1)]
        axes.set_xticks(edges, [f"{edge:g}" if float(edge).is_integer() else f"{edge:.1f}" for edge in edges])
        axes.set_xlabel(f"points of {number(max_points)}")
        axes.set_xlim(0, bins * width)
        axes.set_ylim(0, max(heights) * 1.15)
        words = ", ".join(
            f"{edges[i]:g} to {edges[i + 1]:g}: {count}" for i, count in enumerate(heights) if count
        )
        return _svg(figure, f"Number of submissions by points. {words}.")


def outcomes(steps: Sequence[StepTally]) -> Markup:
    """A bar a step: which share of the class passed it, and what became of the others."""
    with matplotlib.rc_context(_STYLE):
        figure, axes = _canvas(height=0.15 + 0.42 * len(steps))
        for row, step in enumerate(steps):
            left = 0.0
            for outcome in OUTCOMES:
                share = step.outcomes[outcome] / step.total
                if share:
                    axes.barh(row, share, 0.36, left, clip_on=False, **_segment(outcome))
                left += share
            axes.text(0, row - 0.3, f"{step.number}  {step.title}", va="bottom")
            axes.text(1, row - 0.3, f"{step.percent} %", va="bottom", ha="right", color=_STAND_INS["soft"])
        axes.set_xlim(0, 1)
        axes.set_ylim(len(steps) - 0.7, -0.75)
        axes.set_xticks([])
        words = ", ".join(f"step {step.number} {step.title} {step.percent} per cent" for step in steps)
        return _svg(figure, f"Share of the class that passed each step: {words}.")


def _segment(outcome: Outcome) -> dict[str, Any]:
    """A part of a bar, parted from the next by a thin line in the colour of the ground."""
    return {"color": _STAND_INS[outcome.id], "edgecolor": _STAND_INS["card"], "linewidth": 0.8}


def _canvas(height: float) -> tuple[Figure, Axes]:
    figure = Figure(figsize=(_WIDTH, height), layout="constrained")
    axes = figure.add_subplot()
    axes.set_frame_on(False)
    axes.patch.set_visible(False)
    figure.patch.set_visible(False)
    axes.set_yticks([])
    axes.tick_params(length=0)
    return figure, axes


def _svg(figure: Figure, label: str) -> Markup:
    """The figure as an element for an HTML page, the same bytes for the same figure."""
    text = io.StringIO()
    with matplotlib.rc_context({"svg.hashsalt": "report"}):
        figure.savefig(text, format="svg", metadata=_NO_METADATA)
    svg = text.getvalue()
    svg = svg[svg.index("<svg") :]
    for pattern in _FOR_A_PAGE_OF_ITS_OWN:
        svg = pattern.sub("", svg)
    for variable, colour in _STAND_INS.items():
        svg = svg.replace(colour, f"var(--{variable})")
    return Markup("{}{}{}").format(
        Markup(svg[:4]), Markup(' role="img" aria-label="{}"').format(label), Markup(svg[4:])
    )
