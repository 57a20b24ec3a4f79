"""The seven steps of one question, each with what goes in and what comes out, for the terminal."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from corag_ray.core.guided_tree import GuidedTreeSearch
from corag_ray.core.policy_tree import PolicyTreeSearch, SearchParams
from corag_ray.core.strategy import Strategy
from corag_ray.core.tree import Node, depth_first
from corag_ray.core.utility import utility
from corag_ray.models.protocols import FloatArray
from corag_ray.pipeline import Choice, Choices
from corag_ray.reports.table import MISSING, decimal
from corag_ray.types import Combination, Generation

SHOWN_ROWS = 60
"""Lines of a table, at most; what is left out is counted below it."""
SHOWN_VALUES = 4
_NO_SEARCH = {"gold": "the method takes the gold passages", "none": "the method takes no context"}


@dataclass(frozen=True, slots=True)
class Expansion:
    """An expanded node of the policy tree as the finished search left it.

    `mean_reward` is V/N, None without a visit; `score` and `utility` are None at the root, which no walk
    compares, and `utility` without the search's parameters. `children` were created,
    `scored_children` of them could be scored; `best_child` is the highest of these with its own score.
    """

    combination: Combination
    cost: int
    visits: int
    mean_reward: float | None
    score: float | None
    utility: float | None
    children: int
    scored_children: int
    best_child: tuple[Combination, float] | None


@dataclass(frozen=True, slots=True)
class Steps:
    """All that one question went through with one method.

    Attributes:
        choices: of the question, without error; `method` names one of them.
        settings: the method's, as text by name.
        query_vector: [dim], or None where the first stage matches words alone.
        search: finished; None for a method that searches nothing.
        answer: None where generation is switched off.
        params: the search's; without them the utilities of a policy tree are left out.
        priors: [k] first-stage scores of the candidates; left out when empty.
    """

    choices: Choices
    method: str
    settings: Mapping[str, str]
    query_vector: Sequence[float] | FloatArray | None
    search: Strategy | None
    answer: Generation | None
    params: object = None
    priors: Sequence[float] = ()

    @property
    def choice(self) -> Choice:
        """What the method chose."""
        return self.choices.methods[self.method]


def expansions(root: Node, budget_tokens: int, params: SearchParams | None = None) -> list[Expansion]:
    """The nodes under and including `root` that are expanded or have children, parents before children.

    Args:
        root: of a finished `PolicyTreeSearch` or `GuidedTreeSearch`.
        budget_tokens: that search's budget.
        params: a `PolicyTreeSearch`'s parameters; the utilities are then those that its next walk would compare.
    """
    tree_visits = sum(node.visits for node in depth_first(root))
    nodes = (node for node in depth_first(root) if node.expanded or node.children)
    return [_expansion(node, budget_tokens, params, tree_visits) for node in nodes]


def render_steps(steps: Steps) -> Iterator[Panel]:
    """Seven panels in the paper's order; readable from 80 columns on."""
    parts = (_question, _embedding, _configuration, _retrieval, _search, _generation, _response)
    for number, part in enumerate(parts, start=1):
        title, went_in, came_out = part(steps)
        body = Table.grid(padding=(0, 2))
        body.add_column(style="bold", no_wrap=True)
        body.add_column(ratio=1)
        body.add_row("in", went_in)
        body.add_row("out", came_out)
        yield Panel(body, title=f"Step {number} of {len(parts)}: {title}", title_align="left", expand=True)


_Part = tuple[str, RenderableType, RenderableType]
"""A step's title, what goes in and what comes out."""


def _question(steps: Steps) -> _Part:
    question = steps.choices.question
    out = f"{len(question.text):,} characters, language '{question.language}', handed to the embedding"
    return "question", _plain(question.text), _plain(out)


def _embedding(steps: Steps) -> _Part:
    return "query embedding", _plain(steps.choices.question.text), _plain(_vector(steps.query_vector))


def _configuration(steps: Steps) -> _Part:
    went_in = f"{_vector(steps.query_vector)}\nnot read here: the configuration decides, for every question alike"
    lines = [f"{name}: {value}" for name, value in steps.settings.items()]
    return "configuration", _plain(went_in), _plain("\n".join(lines))


def _retrieval(steps: Steps) -> _Part:
    title, went_in = "candidates", f"{_vector(steps.query_vector)}\nthe question's words and the index"
    candidates = steps.choices.candidates
    if steps.choice.source != "retrieval":
        return title, _plain(went_in), _plain(f"not used: {_NO_SEARCH[steps.choice.source]}")
    if not candidates:
        return title, _plain(went_in), _plain("no candidate was found")
    table = _table("chunk", *(["score"] if steps.priors else []), "tokens", "document", "text")
    for number, chunk in enumerate(candidates[:SHOWN_ROWS]):
        prior = [decimal(steps.priors[number], 3)] if steps.priors else []
        table.add_row(str(number + 1), *prior, f"{chunk.cost:,}", _line(chunk.doc_id), _line(chunk.text))
    return title, _plain(went_in), Group(table, *_left_out(len(candidates), "candidates"))


def _search(steps: Steps) -> _Part:
    choice, search = steps.choice, steps.search
    went_in = f"{len(steps.choices.candidates)} candidates and the configuration of step 3\n"
    went_in += f"budget {choice.effective_budget_tokens:,} tokens"
    if search is None:
        note = _NO_SEARCH.get(choice.source, "the search was not kept")
        return "search", _plain(went_in), Group(_plain(note), *_selected(steps))
    out: list[RenderableType] = [_plain(f"{choice.pairs:,} pairs scored, {choice.pairs_computed:,} of them computed")]
    if isinstance(search, PolicyTreeSearch):
        params = steps.params if isinstance(steps.params, SearchParams) else None
        nodes = expansions(search.root, choice.effective_budget_tokens, params)
        rule = "each time the unexpanded node of highest utility, among equals the first in candidate order"
        out += [_plain(f"{len(nodes)} nodes of the policy tree expanded, {rule}:"), _tree(nodes)]
        out += _left_out(len(nodes), "expanded nodes")
    if isinstance(search, GuidedTreeSearch):
        nodes = [node for node in expansions(search.root, choice.effective_budget_tokens) if node.children]
        rule = "the first singles, a greedy path, then around the best and by highest utility"
        out += [_plain(f"{len(nodes)} nodes of the policy tree widened, {rule}:"), _tree(nodes)]
        out += _left_out(len(nodes), "widened nodes")
    return "search", _plain(went_in), Group(*out, *_selected(steps))


def _generation(steps: Steps) -> _Part:
    choice, answer = steps.choice, steps.answer
    went_in = Group(_plain(f"prompt of {choice.prompt_tokens:,} tokens:"), _plain(choice.prompt))
    if answer is None:
        return "answer", went_in, _plain("none: generation is switched off")
    ending = "ended by the model" if answer.finish_reason == "stop" else "cut at the answer's limit"
    counts = f"{answer.new_tokens:,} tokens written, {answer.prompt_tokens:,} read, {ending}:"
    return "answer", went_in, Group(_plain(counts), _plain(answer.text or "(the model wrote nothing)"))


def _response(steps: Steps) -> _Part:
    text = "(generation is switched off)" if steps.answer is None else steps.answer.text or "(the model wrote nothing)"
    documents = list(dict.fromkeys(_line(chunk.doc_id).plain for chunk in steps.choice.selection))
    lines = [text, "", f"rests on: {', '.join(documents) or 'no document'}"]
    times = steps.choice.latency_ms
    stages = ", ".join(f"{stage} {decimal(ms, 1)}" for stage, ms in times.items())
    lines += [f"milliseconds: {decimal(sum(times.values()), 1)} ({stages})"] if times else []
    lines += [f"note: {note}" for note in steps.choice.notes]
    return "response", _plain("the answer of step 6"), _plain("\n".join(lines))


def _tree(nodes: Sequence[Expansion]) -> Table:
    table = _table("node", "tokens", "visits", "V/N", "score", "utility", "children", "best child")
    for node in nodes[:SHOWN_ROWS]:
        best = f"{named(node.best_child[0])} ({decimal(node.best_child[1], 3)})" if node.best_child else MISSING
        unscored = node.children - node.scored_children
        children = f"{node.children:,}" + (f", {unscored:,} unscored" if unscored else "")
        table.add_row(
            "  " * len(node.combination) + named(node.combination),
            f"{node.cost:,}",
            f"{node.visits:,}",
            *(decimal(value, 3) for value in (node.mean_reward, node.score, node.utility)),
            children,
            best,
        )
    return table


def _selected(steps: Steps) -> list[RenderableType]:
    choice = steps.choice
    if not choice.selection:
        return [_plain("selection: empty, answered without context")]
    # Gold passages are no candidates: they have no number among them.
    numbers = {chunk.chunk_id: str(number) for number, chunk in enumerate(steps.choices.candidates, start=1)}
    table = _table("place", "chunk", "tokens", "document", "text")
    for place, chunk in enumerate(choice.selection, start=1):
        number = numbers.get(chunk.chunk_id, MISSING)
        table.add_row(str(place), number, f"{chunk.cost:,}", _line(chunk.doc_id), _line(chunk.text))
    cost = sum(chunk.cost for chunk in choice.selection)
    total = f"selection of {cost:,} tokens, {choice.context_tokens:,} as encoded in the prompt"
    return [_plain(total + (f", score {decimal(choice.score, 3)}:" if choice.score is not None else ":")), table]


def _expansion(node: Node, budget_tokens: int, params: SearchParams | None, tree_visits: int) -> Expansion:
    scored = [child for child in node.children if child.score is not None]
    best = max(scored, key=lambda child: child.score or 0.0, default=None)
    value = None
    if node.parent is not None and params is not None:
        value = utility(
            reward_sum=node.reward_sum,
            visits=node.visits,
            total_visits=tree_visits if params.total_visits == "tree" else node.parent.visits,
            cost=node.cost,
            budget_tokens=budget_tokens,
            exploration=params.exploration,
            cost_weight=params.cost_weight,
        )
    return Expansion(
        combination=node.combination,
        cost=node.cost,
        visits=node.visits,
        mean_reward=node.reward_sum / node.visits if node.visits else None,
        score=node.score,
        utility=value,
        children=len(node.children),
        scored_children=len(scored),
        best_child=None if best is None or best.score is None else (best.combination, best.score),
    )


def _vector(vector: Sequence[float] | FloatArray | None) -> str:
    """Width, length and the outer values of the query's vector."""
    if vector is None:
        return "no vector: words alone are matched"
    values = [float(value) for value in vector]
    shown = [f"{value:.3f}" for value in values[:SHOWN_VALUES]]
    if len(values) > SHOWN_VALUES:
        shown += ["..."] * (len(values) > SHOWN_VALUES + 1) + [f"{values[-1]:.3f}"]
    return f"vector of {len(values):,} dimensions, norm {math.hypot(*values):.3f}: [{', '.join(shown)}]"


def named(combination: Combination) -> str:
    """Chunks by their rank among the candidates, from 1 as the paper's example does; the root is empty."""
    return " + ".join(str(number + 1) for number in combination) or "(empty)"


def _left_out(count: int, what: str) -> list[RenderableType]:
    return [_plain(f"and {count - SHOWN_ROWS:,} more {what}, not shown")] if count > SHOWN_ROWS else []


def _table(*headers: str) -> Table:
    # Expanded, the texts get what the numbers leave; otherwise long texts would squeeze the numbers out.
    table = Table(box=SIMPLE_HEAD, show_edge=False, padding=(0, 1), pad_edge=False, expand="text" in headers)
    for header in headers:
        if header == "text":
            table.add_column(header, no_wrap=True, overflow="ellipsis", ratio=1)
        elif header in ("document", "node", "best child"):
            table.add_column(header, overflow="fold", max_width=24)
        else:
            table.add_column(header, justify="right", no_wrap=True)
    return table


def on_one_line(text: str) -> str:
    """A text on one line, its control characters blanks, so that none reaches the terminal."""
    return " ".join(_plain(text).plain.split())


def _line(text: str) -> Text:
    return Text(on_one_line(text))


def _plain(text: str) -> Text:
    """A text as it stands, with its lines; no control character, and no markup of rich's."""
    lines = text.splitlines() or [""]
    return Text("\n".join("".join(sign if sign.isprintable() else " " for sign in line) for line in lines))
