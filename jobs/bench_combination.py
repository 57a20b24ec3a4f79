"""Do rerankers mean what they say of combinations? `python -m jobs.bench_combination --data hotpotqa-sample`.

On questions of documents that `jobs.train_combination_reranker` and `jobs.train_reranker` never train on: shares with
95 % intervals, one row a reranker, and the pairs that each scores in a second. A question puts the checks of
`jobs.combination.sense`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from corag_ray.batch.estimate import duration_text
from corag_ray.build import build_embedder
from corag_ray.cli import reporting_errors
from corag_ray.config import WINDOW_TOKENS, Config
from corag_ray.config_file import load_config
from corag_ray.errors import DataError, unknown_name
from corag_ray.indexing.open_index import OpenIndex
from corag_ray.models.combination_reranker import CombinationReranker
from corag_ray.models.combination_weights import CARD, COMBINATION_HEAD
from corag_ray.models.cross_encoder import CrossEncoder
from corag_ray.models.protocols import Embedder, Reranker
from corag_ray.models.query_likelihood import QueryLikelihood
from corag_ray.models.set_head import load_head
from corag_ray.names import EMBEDDERS, GENERATORS
from corag_ray.prepare import prepare_weights
from corag_ray.settling import compute as compute_of
from corag_ray.settling import settle
from jobs.bench_rerankers import cross_encoders
from jobs.combination.drawing import draw, open_sets
from jobs.combination.examples import Asked
from jobs.combination.parts import Parts, fingerprint_of
from jobs.combination.sense import Sense, figures, judge
from jobs.fit_calibration import cheap_rerankers

PAIRS_A_QUESTION = 8
PAIRS_A_SECOND = {"cross-encoder": 20.0, "query_likelihood": 4.0}
"""Of the slow ones, for the estimate of time."""
HEADINGS = {
    "both_several": "both > each + distractor (two documents)",
    "both_joined": "both > each + distractor (joined)",
    "irrelevant": "irrelevant lowers",
    "duplicate": "duplicate never raises",
    "order": "document order > reversed",
}


def main(
    data: Annotated[str, typer.Option(help="Of the head's data sets some, parted by commas; else all.")] = "",
    limit: Annotated[int, typer.Option(min=1, help="Questions a set.")] = 300,
    limit_joined: Annotated[int, typer.Option(min=0, help="Two-part questions a set.")] = 150,
    limit_slow: Annotated[int, typer.Option(min=0, help="Questions a set and kind for slow rerankers.")] = 40,
    cross_encoder: Annotated[list[Path] | None, typer.Option(help="Folder of a cross-encoder; repeatable.")] = None,
    packaged: Annotated[bool, typer.Option(help="Judge the packaged cross-encoders too.")] = True,
    likelihood: Annotated[bool, typer.Option(help="Judge query likelihood too, the slowest of all.")] = False,
    head: Annotated[Path, typer.Option(help="Folder of the set head.")] = COMBINATION_HEAD,
    seed: Annotated[int, typer.Option(min=0, help="Of two-part questions and drawn chunks.")] = 0,
    threads: Annotated[int, typer.Option(min=1, help="CPU threads.")] = 2,
    root: Annotated[Path, typer.Option(help="Folder of indexes.")] = Path("runs"),
) -> None:
    """Draw the test part's questions, judge every reranker on them, and print the table and its figures."""
    config = settle(load_config(None, {"dtype": "float32", "plan": {"threads": threads}}))
    prepare_weights(config)
    embedder, folders = build_embedder(config), cross_encoders(cross_encoder or [], packaged)
    card = read_card(head)
    trained_on = [entry["name"] for entry in card["data"]]
    names = data.split(",") if data else trained_on
    for name in names:
        if name not in trained_on:
            raise unknown_name("data set of this head", name, trained_on)
    slow = slow_rerankers(config, folders, likelihood)
    seconds = len(names) * (limit + limit_joined) * 0.1
    for one in slow:
        rate = PAIRS_A_SECOND.get(one.name, PAIRS_A_SECOND["cross-encoder"])
        seconds += len(names) * 2 * limit_slow * PAIRS_A_QUESTION / rate
    print(f"{len(names)} sets, {4 + len(slow)} rerankers: at most {duration_text(seconds)}, indexes apart.", flush=True)
    found: dict[str, list[Sense]] = {}
    rates: dict[str, list[float]] = {}
    opened, parts = open_sets(trained_on, config, root)
    check_split(card, parts)
    for name in names:
        index = opened[name].index(embedder)
        asked = list(
            draw(opened[name].questions, parts, "test", index, limit=limit, limit_joined=limit_joined, seed=seed)
        )
        fast = [*cheap_rerankers(index, embedder), _combination(head, config, index, embedder)]
        for reranker in [*fast, *slow]:
            senses, rate = judge(first_of_kind(asked, limit_slow) if reranker in slow else asked, reranker, seed)
            found.setdefault(reranker.name, []).extend(senses)
            rates.setdefault(reranker.name, []).append(rate)
        print(f"{name}: {len(asked)} questions.", flush=True)
    if not any(found.values()):
        raise DataError("no question of the test part has evidence among its candidates: raise --limit.")
    rows = {name: figures(senses) for name, senses in found.items()}
    pairs_a_second = {name: round(sum(values) / len(values), 1) for name, values in rates.items()}
    Console(width=160).print(table_of(rows, pairs_a_second))
    print(json.dumps({"data": names, "rerankers": rows, "pairs_per_s": pairs_a_second}))


def read_card(folder: Path) -> dict[str, Any]:
    """The model card of a head.

    Raises:
        DataError: there is none, or it does not say what the head was trained on.
    """
    try:
        card: dict[str, Any] = json.loads((folder / CARD).read_text("utf-8"))
        _ = card["split_fingerprint"], [entry["name"] for entry in card["data"]]
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise DataError(f"{folder / CARD} is no model card of a set head ({error}).") from error
    return card


def check_split(card: dict[str, Any], parts: Parts) -> None:
    """Refuse to judge by documents that the head may have been trained on.

    Raises:
        DataError: the data sets are parted otherwise than at its training.
    """
    if card["split_fingerprint"] != fingerprint_of(parts):
        raise DataError("the data sets have changed since this head was trained: its test part is no longer known.")


def slow_rerankers(config: Config, folders: Mapping[str, Path], likelihood: bool) -> list[Reranker[Any]]:
    """Those that read text for every combination."""
    compute = compute_of(config)
    slow: list[Reranker[Any]] = [CrossEncoder(folder, name, WINDOW_TOKENS, compute) for name, folder in folders.items()]
    if likelihood:
        slow.append(QueryLikelihood(GENERATORS[config.generation.model].folder(), compute))
    return slow


def first_of_kind(asked: Sequence[Asked], limit: int) -> list[Asked]:
    """At most so many questions of each kind."""
    kept: list[Asked] = []
    for one in asked:
        if sum(other.kind == one.kind for other in kept) < limit:
            kept.append(one)
    return kept


def table_of(rows: dict[str, dict[str, dict[str, float | int | None]]], rates: dict[str, float]) -> Table:
    """One row a reranker: shares, half of their intervals, and how many questions put the check."""
    table = Table("reranker", *HEADINGS.values(), "pairs/s")
    for name, row in rows.items():
        table.add_row(name, *(_cell(row[check]) for check in HEADINGS), f"{rates[name]:,.0f}")
    return table


def _cell(figure: dict[str, float | int | None]) -> str:
    share, low, high = figure["share"], figure["low"], figure["high"]
    if share is None:
        return "–"
    spread = "" if low is None or high is None else f" ± {(high - low) / 2:.3f}"
    return f"{share:.3f}{spread} ({figure['questions']})"


def _combination(folder: Path, config: Config, index: OpenIndex, embedder: Embedder) -> CombinationReranker:
    head = load_head(folder, str(EMBEDDERS[config.embedder].revision))
    return CombinationReranker(embedder, index.token_vectors, head, compute_of(config))


if __name__ == "__main__":
    with reporting_errors():
        typer.run(main)
