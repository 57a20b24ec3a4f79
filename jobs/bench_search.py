"""How good a search is for its pairs: `python -m jobs.bench_search --out runs/search`.

Every strategy over the same candidates, budgets and rerankers, read off at several limits of pairs; a pair is one
distinct combination that a strategy asked for. The questions reported are others than those of the `dev` part, by which
our search's parameters were chosen (`--questions dev`); of a trained reranker also none that it may have learned from.
`--variant exploration=0` adds ours with parameters changed; it can be given several times.

`--part curves` (the default) keeps a row a question, budget, reranker and strategy in `--out` (`rows.jsonl`), by a
fingerprint of what its numbers depend on: started again, it computes only what is missing. It writes `figures.json`
(numbers only) and a picture for each reranker and budget. The last line is one JSON object:

    questions   by reranker and data set how many were asked
    figures     by reranker and budget, the mean by `<set>.<strategy>.<pairs>.{score, recall, tokens}`
    bars        by reranker, budget and data set, as in `jobs.search.figures.bars_of`

`figures.json` has the intervals as well, and differences to ours. `--part small` compares with CORAG Upper on a few
candidates: regret, and which share of the gap from the best single each strategy closes with 40 pairs. `--part
bookkeeping` measures what our search takes beside scoring.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from rich.console import Console
from rich.progress import track
from rich.table import Table

from corag_ray.batch.estimate import duration_text
from corag_ray.batch.folder_lock import locked
from corag_ray.build import build_embedder, build_reranker
from corag_ray.cli import reporting_errors
from corag_ray.config import WINDOW_TOKENS, Config
from corag_ray.config_file import load_config
from corag_ray.indexing.durable import write_atomically
from corag_ray.models.combination_weights import COMBINATION
from corag_ray.models.cross_encoder import CrossEncoder
from corag_ray.prepare import prepare_weights
from corag_ray.settling import compute as compute_of
from corag_ray.settling import settle
from jobs.bench_budgets import whole_numbers
from jobs.budgets.searching import query_of
from jobs.row_log import RowLog
from jobs.search import bookkeeping, small
from jobs.search.contestants import OURS, STRATEGIES, methods_of
from jobs.search.course import remembered, seen_by
from jobs.search.courses import rows_of
from jobs.search.figures import bars_of, figures, keyed
from jobs.search.picture import draw_courses
from jobs.search.questions import SetToAsk, sets_to_ask
from jobs.search.rows import Row
from jobs.untrained_cross_encoder import untrained

LATE = "late_interaction"
FEW = {LATE: 8, COMBINATION: 6}
"""Candidates of `--part small`."""
SECONDS_A_QUESTION = {LATE: 0.2, COMBINATION: 0.4}
SECONDS_A_SEARCH = {LATE: 0.03, COMBINATION: 0.15}
"""Retrieval and preparation; then each strategy at a budget, to 590 pairs."""
SECONDS_SMALL = {LATE: 0.2, COMBINATION: 2.0}
"""A question of `--part small`, by all strategies."""
ROWS, FIGURES, ALL = "rows.jsonl", "figures.json", "all"


def main(
    part: Annotated[Literal["curves", "small", "bookkeeping"], typer.Option(help="What is measured.")] = "curves",
    data: Annotated[str, typer.Option(help="Data sets, parted by commas.")] = (
        "hotpotqa-sample,2wikimultihopqa-sample,musique-sample"
    ),
    reranker: Annotated[str, typer.Option(help="Parted by commas.")] = f"{LATE},{COMBINATION}",
    strategies: Annotated[str, typer.Option(help="Parted by commas.")] = ",".join(STRATEGIES),
    variant: Annotated[
        list[str] | None, typer.Option(help="Ours with parameters changed, A=1,B=2; repeatable.")
    ] = None,
    pairs: Annotated[str, typer.Option(help="Limits of pairs, parted by commas.")] = "60,130,210,590",
    budgets: Annotated[str, typer.Option(help="In tokens, parted by commas.")] = "256,512,1024",
    budgets_combination: Annotated[str, typer.Option(help="Of the combination reranker.")] = "256,512",
    limit: Annotated[int, typer.Option(min=1, help="Questions a set; of `small` in all.")] = 200,
    limit_combination: Annotated[int, typer.Option(min=1, help="Of the combination reranker.")] = 60,
    questions: Annotated[Literal["reported", "dev"], typer.Option(help="Which part of the documents.")] = "reported",
    seed: Annotated[int, typer.Option(min=0, help="Of the questions' order and of the intervals.")] = 0,
    threads: Annotated[int, typer.Option(min=1, help="CPU threads.")] = 2,
    root: Annotated[Path, typer.Option(help="Folder of indexes.")] = Path("runs"),
    out: Annotated[Path, typer.Option(help="Folder of rows, figures and pictures.")] = Path("runs/search"),
) -> None:
    """Search every question by every strategy, and print tables and figures."""
    config = settle(load_config(None, {"dtype": "float32", "plan": {"threads": threads}}))
    compute_of(config).apply()  # before the rerankers' modules are imported
    rerankers, names, limits = reranker.split(","), list(dict.fromkeys(data.split(","))), whole_numbers(pairs, "pairs")
    asked = {name: limit_combination if name == COMBINATION else limit for name in rerankers}
    of_rerankers = {name: whole_numbers(budgets_combination if name == COMBINATION else budgets) for name in rerankers}
    chosen = list(dict.fromkeys(strategies.split(",")))
    methods = {name: methods_of(chosen, name, limits[-1], variant or ()) for name in rerankers}
    prepare_weights(config.model_copy(update={"methods": {name: one[chosen[0]] for name, one in methods.items()}}))
    sets = sets_to_ask(names, rerankers, config, root, questions, seed)
    if part == "small":
        print_small(list(sets), config, methods, asked, seed)
        return
    if part == "bookkeeping":
        print_bookkeeping(next(iter(sets)), limit)
        return
    seconds = sum(
        len(names)
        * asked[r]
        * (SECONDS_A_QUESTION.get(r, 1.0) + len(methods[r]) * len(b) * SECONDS_A_SEARCH.get(r, 1.0))
        for r, b in of_rerankers.items()
    )
    print(f"{len(names)} sets: at most {duration_text(seconds)}, less what {out} holds, indexes apart.", flush=True)
    rows: dict[str, dict[str, list[Row]]] = {name: {} for name in rerankers}
    with locked(out):
        log = RowLog(out / ROWS, Row)
        for one in sets:
            for name in rerankers:
                drawn = one.questions[name][: asked[name]]
                rows[name][one.opened.config.dataset] = rows_of(
                    one.opened, name, drawn, methods[name], of_rerankers[name], limits, log
                )
        report(rows, of_rerankers, seed, out)


def report(rows: dict[str, dict[str, list[Row]]], of_rerankers: dict[str, list[int]], seed: int, out: Path) -> None:
    """Write figures and pictures, print tables and the last line."""
    whole: dict[str, Any] = {}
    told: dict[str, Any] = {"questions": {}, "figures": {}, "bars": {}}
    for name, of_sets in rows.items():
        told["questions"][name] = {one: len({row.question_id for row in found}) for one, found in of_sets.items()}
        for budget in of_rerankers[name]:
            at_budget = {one: [row for row in found if row.budget_tokens == budget] for one, found in of_sets.items()}
            together = {ALL: [row for found in at_budget.values() for row in found]} if len(at_budget) > 1 else {}
            found = {one: figures(some, seed) for one, some in {**at_budget, **together}.items()}
            whole.setdefault(name, {})[str(budget)] = found
            told["figures"].setdefault(name, {})[str(budget)] = keyed(found)
            told["bars"].setdefault(name, {})[str(budget)] = {
                one: bars_of(some, seed) for one, some in {**at_budget, **together}.items()
            }
            draw_courses(found, f"{name}, {budget} tokens", out / f"{name}-{budget}.png")
            for one, by_strategy in found.items():
                Console(width=150).print(table_of(f"{one}, {name}, {budget} tokens", by_strategy))
    write_atomically(out / FIGURES, json.dumps({**told, "figures": whole}, indent=1) + "\n")
    print(f"Rows, figures and pictures are in {out}.", flush=True)
    print(json.dumps(told))


def print_small(
    sets: Sequence[SetToAsk], config: Config, methods: dict[str, Any], asked: dict[str, int], seed: int
) -> None:
    """Compare with Upper, of each reranker over all sets together."""
    seconds = sum(SECONDS_SMALL.get(name, 2.0) * asked[name] for name in methods)
    print(f"At most {duration_text(seconds)}, indexes apart.", flush=True)
    told: dict[str, Any] = {}
    embedder = build_embedder(config)
    for name, of_reranker in methods.items():
        found: list[dict[str, float]] = []
        for one in sets:
            index = one.opened.index(embedder)
            scorer = build_reranker(one.opened.config, name, embedder, index)
            drawn = one.questions[name][: -(-asked[name] // len(sets))]
            for question in track(drawn, f"{one.opened.dataset.name}, {name}", console=Console(file=sys.stderr)):
                query = query_of(question, index, FEW.get(name, 6))
                few = seen_by(query, scorer, index)
                found.append(small.scores_of(query, remembered(query, scorer), of_reranker, few))
        told[name] = {"questions": len(found), "candidates": FEW.get(name, 6), **small.figures_of(found, seed)}
    print(json.dumps(told | {"holds": all(small.holds(one) for one in told.values())}))


def print_bookkeeping(one: SetToAsk, limit: int) -> None:
    """Time our search beside scoring, with the widest pool of candidates."""
    config, embedder = one.opened.config, build_embedder(one.opened.config)
    index = one.opened.index(embedder)
    drawn = next(iter(one.questions.values()))[: min(limit, 20)]
    print(f"{len(drawn)} questions: about {duration_text(5 * len(drawn))}, the index apart.", flush=True)
    queries = [query_of(question, index, max(bookkeeping.CANDIDATES)) for question in drawn]
    with tempfile.TemporaryDirectory() as scratch:
        folder = untrained(Path(scratch), config)
        cross_encoder = CrossEncoder(folder, "cross_encoder", WINDOW_TOKENS, compute_of(config))
        method = methods_of([OURS], LATE, 210)[OURS]
        figures_told = bookkeeping.measure(
            queries, build_reranker(config, LATE, embedder, index), cross_encoder, method
        )
    print(json.dumps(figures_told))


def table_of(title: str, by_strategy: dict[str, dict[str, Any]]) -> Table:
    """One row a strategy and limit; ± is half of an interval, and the last column tells the score less ours."""
    table = Table("strategy", "limit", "pairs", "score", "recall", "tokens", "score less ours", title=title)
    for strategy, by_limit in by_strategy.items():
        for limit, cell in by_limit.items():
            above = cell["above_ours"] and cell["above_ours"]["score"]
            beside = "" if not above or above["mean"] is None else f"{above['mean']:+.4f} {_ends(above)}"
            measured = (_half(cell["score"], ".4f"), _half(cell["recall"], ".3f"), _half(cell["tokens"], ".0f"))
            table.add_row(strategy, limit, f"{cell['pairs']:,.0f}", *measured, beside)
        table.add_section()
    return table


def _ends(estimate: dict[str, float | None]) -> str:
    low, high = estimate["low"], estimate["high"]
    return "" if low is None or high is None else f"{low:+.4f} to {high:+.4f}"


def _half(estimate: dict[str, float | None], form: str) -> str:
    middle, low, high = estimate["mean"], estimate["low"], estimate["high"]
    if middle is None:
        return "–"
    return f"{middle:{form}}" + ("" if low is None or high is None else f" ± {(high - low) / 2:{form}}")


if __name__ == "__main__":
    with reporting_errors():
        typer.run(main)
