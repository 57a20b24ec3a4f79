"""Trains the combination reranker: `python -m jobs.train_combination_reranker`.

A set head learns, over MiniLM's frozen token vectors, to score ordered combinations of one to six chunks: all evidence
above a part of it, a part above none, and among equals the one with fewer chunks in vain and in document order. Before
each pass but the first, searches with the head of that time look for what it wrongly prefers. Documents are parted by
their ids: one part in five judges the passes and fits the curve, another is asked once, at the end. A killed run goes
on from its checkpoint.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from corag_ray.batch.estimate import duration_text
from corag_ray.build import build_embedder
from corag_ray.cli import reporting_errors
from corag_ray.config_file import load_config
from corag_ray.errors import DataError
from corag_ray.models.combination_reranker import CombinationReranker, PreparedRows
from corag_ray.models.combination_weights import CARD, COMBINATION_HEAD, CURVES
from corag_ray.models.protocols import Embedder
from corag_ray.models.set_head import HeadShape, SetHead, save_head
from corag_ray.models.torch_setup import Compute
from corag_ray.names import EMBEDDERS
from corag_ray.prepare import prepare_weights
from corag_ray.settling import compute as compute_of
from corag_ray.settling import settle
from jobs.combination.checkpoint import Example, Mined, Recipe, State
from jobs.combination.curve import Graded, fit, graded, write_curve
from jobs.combination.drawing import OpenSet, draw, open_sets
from jobs.combination.features import prepared_rows, stored_matches
from jobs.combination.loss import SHARES
from jobs.combination.mining import mine
from jobs.combination.parts import Part, Parts, fingerprint_of
from jobs.combination.sense import Sense, figures, judge, mean_share
from jobs.combination.training import Trained, train

LICENCES = {
    "hotpotqa-sample": "CC BY-SA 4.0 (HotpotQA)",
    "2wikimultihopqa-sample": "Apache-2.0 (2WikiMultihopQA)",
    "musique-sample": "CC BY 4.0 (MuSiQue)",
    "squad-v1.1-part": "CC BY-SA 4.0 (SQuAD)",
    "selqa": "Apache-2.0 (SelQA); Wikipedia text CC BY-SA",
}
"""Of the data sets that the packaged head is trained on; others' must allow it as well."""
SECONDS_A_QUESTION = 0.06
"""To draw one: it is retrieved, embedded and matched."""
COMBINATIONS = 22
"""Of a question in a pass, about."""
COMBINATIONS_A_SECOND = 500.0
"""Learned from by one core."""
SECONDS_MINED = 0.12
"""A question on one core."""
PARTS_IN_TURN: tuple[Part, ...] = ("train", "dev", "test")
SMOOTHED, TOLD_STEPS = 50, 100
"""Steps whose mean loss is shown, and steps from one printed line to the next: a log has no bar."""
LIMITS = [
    "English only, as the embedder and the data are.",
    "Trained on encyclopaedia text in chunks of {chunk_tokens} tokens; other text and sizes were not looked at.",
    "Chunks beyond the sixth share the sixth's place; longer combinations were never trained on.",
    "It sees a chunk only through the tokens nearest to the question's: evidence that shares no meaning with the "
    "question is invisible to it.",
]


@dataclass(frozen=True, slots=True)
class Drawn:
    """One set's questions by part."""

    train: list[Example]
    dev: list[Example]
    test: list[Example]

    def of(self, part: Part) -> list[Example]:
        """Those of one part."""
        found: list[Example] = getattr(self, part)
        return found


def main(
    data: Annotated[str, typer.Option(help="Data sets, parted by commas; their licences must allow it.")] = ",".join(
        LICENCES
    ),
    limit: Annotated[int, typer.Option(min=1, help="Questions a set.")] = 1000,
    limit_joined: Annotated[int, typer.Option(min=0, help="Two-part questions a set.")] = 1200,
    limit_judged: Annotated[int, typer.Option(min=1, help="The same limits for each part that judges.")] = 150,
    epochs: Annotated[int, typer.Option(min=1, help="Passes over the questions.")] = 6,
    mined: Annotated[int, typer.Option(min=0, help="Questions searched before each pass but the first.")] = 1200,
    learning_rate: Annotated[float, typer.Option(min=1e-7, help="Peak.")] = 1e-3,
    dropout: Annotated[float, typer.Option(min=0, max=0.9, help="Within the head.")] = 0.1,
    seed: Annotated[int, typer.Option(min=0, help="Of all that is drawn.")] = 0,
    threads: Annotated[int, typer.Option(min=1, help="CPU threads.")] = 2,
    root: Annotated[Path, typer.Option(help="Folder of indexes.")] = Path("runs"),
    work: Annotated[Path, typer.Option(help="Folder of the checkpoint and of token matches.")] = Path(
        "runs/combination"
    ),
    out: Annotated[Path, typer.Option(help="Folder of weights, curve and model card.")] = COMBINATION_HEAD,
) -> None:
    """Draw questions, train, judge, fit the curve, write weights and card, and print figures."""
    started = time.perf_counter()
    names = data.split(",")
    config = settle(load_config(None, {"dtype": "float32", "plan": {"threads": threads}}))
    prepare_weights(config)
    compute, embedder = compute_of(config), build_embedder(config)
    screen = Console(stderr=True)
    seconds = len(names) * (limit + limit_joined + 4 * limit_judged) * SECONDS_A_QUESTION
    screen.print(f"Drawing questions of {len(names)} sets: at most {duration_text(seconds)}, indexes apart.")
    opened, parts = open_sets(names, config, root)
    limits = {"train": (limit, limit_joined), "dev": (limit_judged, limit_judged), "test": (limit_judged, limit_judged)}
    sets = {name: draw_set(one, parts, embedder, limits, seed, work) for name, one in opened.items()}
    for name, drawn in sets.items():
        screen.print(f"{name}: {len(drawn.train)} to train on, {len(drawn.dev)} and {len(drawn.test)} to judge.")
    examples, dev, test = ([one for drawn in sets.values() for one in drawn.of(part)] for part in PARTS_IN_TURN)
    if not examples or not dev:
        raise DataError("no question of one part has evidence among its candidates: raise --limit, or name more data.")
    recipe = Recipe(
        HeadShape(embedder.dim),
        seed=seed,
        epochs=epochs,
        learning_rate=learning_rate,
        dropout=dropout,
        mined=mined,
    )
    screen.print(f"{len(examples)} questions: about {duration_text(seconds_of(recipe, len(examples), threads))}.")
    trained = watched_training(examples, dev, recipe, work / "checkpoint.pt", embedder, compute, screen)
    card = card_of(recipe, trained, sets, config.chunking.size_tokens) | {
        "embedder": EMBEDDERS[config.embedder].revision
    }
    card |= {"split_fingerprint": fingerprint_of(parts)}
    card |= {
        part: figures(sense_of(of_part, trained.head, embedder, compute))
        for part, of_part in (("dev", dev), ("test", test))
    }
    out.mkdir(parents=True, exist_ok=True)
    save_head(trained.head, out, str(card["embedder"]))
    by_part = [graded_by(of_part, trained.head, embedder, compute, seed) for of_part in (dev, test)]
    card["curve"] = fitted = fit(*by_part)
    if fitted is None:
        screen.print("No curve was fitted: the scores fall with evidence.")
        (out / CURVES).unlink(missing_ok=True)
    else:
        write_curve(out, fitted, names)
    card["seconds"] = round(time.perf_counter() - started)
    (out / CARD).write_text(json.dumps(card, indent=2) + "\n", encoding="utf-8")
    print(json.dumps(card | {"folder": str(out)}))


def draw_set(
    opened: OpenSet,
    parts: Parts,
    embedder: Embedder,
    limits: Mapping[str, tuple[int, int]],
    seed: int,
    work: Path,
) -> Drawn:
    """A set's questions of each part, at most so many plain ones and joined ones, with their token matches."""
    index = opened.index(embedder)
    found: dict[str, list[Example]] = {}
    for part in PARTS_IN_TURN:
        plain, double = limits[part]
        asked = list(draw(opened.questions, parts, part, index, limit=plain, limit_joined=double, seed=seed))
        matches = stored_matches(asked, index, embedder, work)
        found[part] = [Example(*pair) for pair in zip(asked, matches, strict=True)]
    return Drawn(**found)


def seconds_of(recipe: Recipe, questions: int, threads: int) -> float:
    """About how long training takes."""
    steps = recipe.epochs * questions * COMBINATIONS / COMBINATIONS_A_SECOND
    return (steps + (recipe.epochs - 1) * min(recipe.mined, questions) * SECONDS_MINED) / (0.8 * threads)


def watched_training(
    examples: Sequence[Example],
    dev: Sequence[Example],
    recipe: Recipe,
    checkpoint: Path,
    embedder: Embedder,
    compute: Compute,
    screen: Console,
) -> Trained:
    """`train` with a bar, and a line a pass: figures of the questions that judge, beside the mean loss."""
    a_pass = -(-len(examples) // recipe.batch)
    columns = BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn()
    with Progress(TextColumn("{task.description}"), *columns, console=screen) as bars:
        task = bars.add_task("training", total=recipe.epochs * a_pass)

        def watch(state: State, total: int) -> None:
            loss = float(np.mean(state.losses[-SMOOTHED:]))
            told = f"loss {loss:.3f}" + (f", dev {state.judged[-1]:.3f}" if state.judged else "")
            bars.update(task, completed=state.step, description=told)
            if state.step % TOLD_STEPS == 0:
                bars.console.print(f"step {state.step} of {total}: {told}", soft_wrap=True)

        def judged(head: SetHead) -> float:
            shares = figures(sense_of(dev, head, embedder, compute))
            told = ", ".join(f"{name} {one['share']}" for name, one in shares.items())
            bars.console.print(f"dev: {told}", soft_wrap=True)
            return mean_share(shares)

        def mined(head: SetHead, numbers: Sequence[int], epoch: int) -> Mined:
            found = mine(examples, numbers, head, embedder, compute)
            wrong = sum(map(len, found.values()))
            told = f"pass {epoch + 1}: {len(numbers)} searched, {wrong} mistakes of {len(found)} questions"
            bars.console.print(told, soft_wrap=True)
            return found

        return train(examples, recipe, checkpoint, judged, mined, watch)


def sense_of(examples: Sequence[Example], head: SetHead, embedder: Embedder, compute: Compute) -> list[Sense]:
    """What a head makes of questions."""
    return sense_and_rate(examples, head, embedder, compute)[0]


def sense_and_rate(
    examples: Sequence[Example], head: SetHead, embedder: Embedder, compute: Compute
) -> tuple[list[Sense], float]:
    """What a head makes of questions, and the pairs that it scored in a second."""
    reranker = CombinationReranker(embedder, None, head, compute)

    def prepare(number: int) -> PreparedRows:
        return prepared_rows(head, examples[number].matches, copied=examples[number].asked.ideal()[-1])

    return judge([example.asked for example in examples], reranker, prepare=prepare)


def graded_by(examples: Sequence[Example], head: SetHead, embedder: Embedder, compute: Compute, seed: int) -> Graded:
    """A head's scores of graded combinations of questions."""
    reranker = CombinationReranker(embedder, None, head, compute)
    asked = [example.asked for example in examples]
    return graded(asked, reranker, lambda number: prepared_rows(head, examples[number].matches), seed)


def card_of(recipe: Recipe, trained: Trained, sets: Mapping[str, Drawn], chunk_tokens: int) -> dict[str, Any]:
    """The model card: how the head was made, of what, and what it does not know."""
    ends = trained.losses[:20], trained.losses[-20:]
    return {
        "model": "set head over frozen token vectors",
        "parameters": sum(tensor.numel() for tensor in trained.head.parameters()),
        "recipe": asdict(recipe),
        "loss": {
            "ranking": "RankNet within a question, by kinds of pairs (jobs.combination.loss)",
            "shares": dict(SHARES),
            "anchor": "a cross entropy that ties a score to its grade",
        },
        "targets": "the evidence's covered share, less a little for chunks in vain, less yet for order",
        "split": "by document (jobs.document_parts): a fifth tests, a fifth picks the best pass and fits the curve, "
        "the others train",
        "data": [
            {
                "name": name,
                "licence": LICENCES.get(name, "not known to this job: its user's to check"),
                "questions": {
                    part: dict(Counter(example.asked.kind for example in drawn.of(part))) for part in PARTS_IN_TURN
                },
            }
            for name, drawn in sets.items()
        ],
        "mined_combinations": sum(map(len, trained.mined.values())),
        "loss_at_both_ends": [round(float(np.mean(losses)), 4) for losses in ends],
        "dev_by_pass": [round(value, 4) for value in trained.judged],
        "limits": [limit.format(chunk_tokens=chunk_tokens) for limit in LIMITS],
    }


if __name__ == "__main__":
    with reporting_errors():
        typer.run(main)
