"""An explanation as a file: its JSON, or one self-contained HTML page with a map of the search, for looking at."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from matplotlib import colormaps
from matplotlib.colors import to_hex

from corag_ray.core.strategy import Stopped
from corag_ray.reports.explanation import ExplainedNode, Explanation, check_format, to_json
from corag_ray.reports.pages import rendered
from corag_ray.reports.steps import named
from corag_ray.reports.table import decimal
from corag_ray.reports.tree_map import Spot, list_spots, path_to, tree_spots, value_of

ROW_PX, COLUMN_PX = 30, 190
LEAST_DOT_PX, LARGEST_DOT_PX, PLAIN_DOT_PX = 8, 26, 14
SHOWN_CHARACTERS = 600
"""Of a chunk's text beside the map; all of it stands in the table of candidates."""
HIDDEN_BEST = 5
STOPPED: Mapping[Stopped, str] = {
    "all_scored": "all that it set out to score is scored",
    "iterations": "all its expansions were made",
    "pairs": "it has had as many combinations scored as it may",
    "dead_end": "nothing that fits and has a score can be added to what it would go on from",
    "no_gain": "its last round brought nothing better",
    "unfinished": "a limit of pairs or a deadline cut it short",
}


@dataclass(frozen=True, slots=True)
class Drawn:
    """A spot as the page draws it; `key` names its card, lengths are in pixels from the map's left top corner.

    `is_full`: the budget left no room for any child.
    """

    key: str
    spot: Spot
    x: float
    y: float
    dot: float
    colour: str | None
    label: str
    is_full: bool
    value: str
    spoken: str
    is_chosen: bool
    is_on_path: bool


@dataclass(frozen=True, slots=True)
class Link:
    """The line from a spot to its parent, as the path of an SVG."""

    path: str
    is_on_path: bool


def write_explanation(path: Path, explanation: Explanation) -> None:
    """Write the file that its name asks for; its folder is made.

    Raises:
        ConfigError: its name ends neither in .html nor in .json.
    """
    check_format(path)
    text = explanation_page(explanation) if path.suffix.lower() == ".html" else to_json(explanation) + "\n"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def explanation_page(explanation: Explanation) -> str:
    """The page: it loads nothing and runs nothing, and holds texts as text."""
    marked = _marked(explanation)
    lay_out = tree_spots if explanation.searched == "tree" else list_spots
    spots = lay_out(explanation.nodes, explanation.reading, marked)
    values = [v for node in explanation.nodes if (v := value_of(node, explanation.reading)) is not None]
    low, high = min(values, default=0.0), max(values, default=0.0)
    most_visits = max((node.visits or 0 for node in explanation.nodes), default=0)
    drawn = [_drawn(spot, explanation, marked, (low, high), most_visits) for spot in spots]
    return rendered(
        "explain.html.j2",
        e=explanation,
        is_tree=explanation.searched == "tree",
        stopped=None if explanation.stopped is None else STOPPED[explanation.stopped],
        drawn=drawn,
        links=[_link(drawn[one.spot.parent], one) for one in drawn if one.spot.parent is not None],
        width=COLUMN_PX * (1 + max((spot.column for spot in spots), default=0)),
        height=ROW_PX * (1 + max((spot.row for spot in spots), default=0.0)),
        row_px=ROW_PX,
        column_px=COLUMN_PX,
        largest_px=LARGEST_DOT_PX,
        low=low,
        high=high,
        colours=[_colour(step / 8, 0.0, 1.0) for step in range(9)],
        sizes=_legend_sizes(most_visits),
        marked=set(marked),
        named=named,
        shown_text=lambda text: text if len(text) <= SHOWN_CHARACTERS else text[:SHOWN_CHARACTERS] + " …",
        hidden_text=lambda spot: _hidden_text(spot, explanation),
        total_ms=sum(explanation.milliseconds.values()),
    )


def _marked(explanation: Explanation) -> list[int]:
    """The places of the nodes on the chosen path; of a choice that was never scored itself, those of its chunks."""
    choice = explanation.choice
    if choice.node is not None:
        return path_to(explanation.nodes, choice.node)
    singles = {(number,) for number in choice.combination or ()}
    return [place for place, node in enumerate(explanation.nodes) if node.combination in singles]


def _drawn(
    spot: Spot,
    explanation: Explanation,
    marked: Sequence[int],
    limits: tuple[float, float],
    most_visits: int,
) -> Drawn:
    x, y = spot.column * COLUMN_PX + LARGEST_DOT_PX / 2, (spot.row + 0.5) * ROW_PX
    if spot.is_fold:
        count = f"{len(spot.nodes):,} more"
        key = f"more-{spot.nodes[0]}"
        return Drawn(key, spot, x, y, LEAST_DOT_PX, None, count, False, "", f"{count}, not drawn", False, False)
    [place] = spot.nodes
    node = explanation.nodes[place]
    value = value_of(node, explanation.reading)
    is_chosen = place == explanation.choice.node or (explanation.choice.node is None and place in marked)
    return Drawn(
        key=f"card-{place}",
        spot=spot,
        x=x,
        y=y,
        dot=_dot(node.visits, most_visits),
        colour=None if value is None else _colour(value, *limits),
        label=_label(node, explanation.nodes),
        is_full=bool(node.forbidden) and all(one.parent != place for one in explanation.nodes),
        value=decimal(value, 3) if value is not None else "" if node.asked is None else "no score",
        spoken=_spoken(node, value, is_chosen),
        is_chosen=is_chosen,
        is_on_path=place in marked,
    )


def _link(parent: Drawn, child: Drawn) -> Link:
    middle = (parent.x + child.x) / 2
    bend = f"C{middle:.1f} {parent.y:.1f} {middle:.1f} {child.y:.1f} {child.x:.1f} {child.y:.1f}"
    return Link(f"M{parent.x:.1f} {parent.y:.1f}{bend}", child.is_on_path)


def _dot(visits: int | None, most_visits: int) -> float:
    """The diameter in pixels: areas are as visits, as long as a dot can be seen."""
    if visits is None:
        return PLAIN_DOT_PX
    return max(LEAST_DOT_PX, round(LARGEST_DOT_PX * math.sqrt(visits / max(1, most_visits)), 1))


def _legend_sizes(most_visits: int) -> list[tuple[int, float]]:
    """(visits, diameter) for the legend: 1, the most, and one between them."""
    steps = sorted({1, max(1, round(most_visits / 4)), most_visits} - {0})
    return [(visits, _dot(visits, most_visits)) for visits in steps]


def _colour(value: float, low: float, high: float) -> str:
    """A colour of cividis, which people see alike with and without a colour-vision deficiency; of equals the middle."""
    share = (value - low) / (high - low) if high > low else 0.5
    return to_hex(colormaps["cividis"](share))


def _label(node: ExplainedNode, nodes: Sequence[ExplainedNode]) -> str:
    """The combination; where the parent's stands in front of it, what was added."""
    if not node.combination:
        return "no context"
    above = () if node.parent is None else nodes[node.parent].combination
    if above and node.combination[:-1] == above:
        return f"+ {node.combination[-1] + 1}"
    return named(node.combination)


def _spoken(node: ExplainedNode, value: float | None, is_chosen: bool) -> str:
    """What a screen reader says of a node before its card."""
    parts = [f"chunks {named(node.combination)}" if node.combination else "no context"]
    parts += [f"score {decimal(value, 3)}"] if value is not None else []
    parts += [f"visits {node.visits:,}"] if node.visits is not None else []
    return ", ".join([*parts, f"{node.cost:,} tokens", *(["chosen"] if is_chosen else [])])


def _hidden_text(spot: Spot, explanation: Explanation) -> str:
    """What a fold says of the nodes behind it; they stand heaviest first."""
    nodes = [explanation.nodes[place] for place in spot.nodes]
    values = [(value, node) for node in nodes if (value := value_of(node, explanation.reading)) is not None]
    if not values:
        return "None of them has a score."
    best = sorted(values, key=lambda pair: -pair[0])[:HIDDEN_BEST]
    lowest = decimal(min(value for value, _ in values), 3)
    shown = "; ".join(f"{named(node.combination)} ({decimal(value, 3)})" for value, node in best)
    return f"Best of them: {shown}. Lowest score: {lowest}."
