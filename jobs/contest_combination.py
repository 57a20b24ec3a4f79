"""Which architecture and which teacher make the better combination reranker? `python -m jobs.contest_combination`.

Every side trains for the same CPU seconds on questions, targets and negatives of one draw, and is judged by the checks
of `jobs.combination.sense` on the same questions of a part that no side sees: the set head by evidence labels (`head`),
a cross-encoder over the text by the same (`cross_encoder`), the set head by the likelihood that the generator gives the
reference answer (`likelihood`), and by both (`mixed`). No side mines mistakes. What is computed once before is told but
not counted: token matches, which an index stores, and labels, which are kept on disk. A killed run goes on from its
checkpoints; sides that are done are only judged again.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from rich.console import Console

from corag_ray.batch.estimate import duration_text
from corag_ray.build import build_embedder
from corag_ray.cli import reporting_errors
from corag_ray.config import Config
from corag_ray.config_file import load_config
from corag_ray.errors import DataError, unknown_name
from corag_ray.identity import weights_hash
from corag_ray.models.protocols import Embedder
from corag_ray.models.set_head import HeadShape, SetHead, load_head
from corag_ray.models.torch_setup import Compute
from corag_ray.names import EMBEDDERS, GENERATORS
from corag_ray.prepare import prepare_weights
from corag_ray.settling import compute as compute_of
from corag_ray.settling import settle
from jobs.bench_combination import PAIRS_A_QUESTION, PAIRS_A_SECOND, check_split, read_card, table_of
from jobs.bench_rerankers import learned_from
from jobs.combination.answer_likelihood import AnswerLikelihood
from jobs.combination.checkpoint import Example, Recipe, identity_of
from jobs.combination.contest import Contest, Outcome, Teaching
from jobs.combination.drawing import OpenSet, open_sets
from jobs.combination.head_learners import ByBoth, ByEvidence, ByLikelihood
from jobs.combination.labels import answered, labelled
from jobs.combination.parts import Part, Parts, fingerprint_of, part_of
from jobs.combination.sense import Sense, figures, judge
from jobs.combination.text_learner import COMBINATIONS, ByText
from jobs.combination.timed import JUDGEMENTS, Terms
from jobs.document_parts import part_of_question
from jobs.train_combination_reranker import (
    PARTS_IN_TURN,
    SECONDS_A_QUESTION,
    Drawn,
    draw_set,
    sense_and_rate,
)
from jobs.train_reranker import PARTS, TEST_PART

SIDES = ("head", "cross_encoder", "likelihood", "mixed")
TEXT_BATCH, TEXT_PEAK = 2, 1e-4
"""Questions a step of the cross-encoder, which in 15 minutes has a hundred steps of two, and its learning rate's peak
(that of `jobs.train_reranker`)."""
LABELLED_BATCH = 4
"""Labelled questions in a step of `mixed`, beside a batch of all: being few, they would be learned by heart."""
LABELS_TOLD = 25
"""Labelled questions from one printed line to the next."""
LABELS_A_SECOND = PAIRS_A_SECOND["query_likelihood"]


HeadLearner = ByEvidence | ByLikelihood | ByBoth


def main(
    data: Annotated[str, typer.Option(help="Data sets, parted by commas.")] = "hotpotqa-sample,squad-v1.1-part,selqa",
    sides: Annotated[str, typer.Option(help="Who takes part, parted by commas.")] = ",".join(SIDES),
    head: Annotated[Path | None, typer.Option(help="Folder of a finished head that stands for `head`.")] = None,
    start: Annotated[Path | None, typer.Option(help="Cross-encoder to start from; else MiniLM.")] = None,
    seconds: Annotated[float, typer.Option(min=1, help="CPU seconds of training for each side.")] = 900,
    most_passes: Annotated[int, typer.Option(min=1, help="Passes over its questions that end a side before.")] = 20,
    limit: Annotated[int, typer.Option(min=1, help="Questions a set; bounds the limits below.")] = 1000,
    limit_joined: Annotated[int, typer.Option(min=0, help="Two-part questions a set.")] = 1200,
    limit_dev: Annotated[int, typer.Option(min=1, help="Questions a set and kind that choose weights.")] = 40,
    limit_test: Annotated[int, typer.Option(min=1, help="Questions a set and kind that judge.")] = 150,
    label_limit: Annotated[int, typer.Option(min=1, help="Questions that the generator labels, in all.")] = 300,
    threshold: Annotated[float, typer.Option(min=0, help="Of labels that differ, in nats a token.")] = 0.1,
    teacher_weight: Annotated[float, typer.Option(min=0, help="Of the generator's loss in `mixed`.")] = 0.5,
    seed: Annotated[int, typer.Option(min=0, help="Of all that is drawn.")] = 0,
    threads: Annotated[int, typer.Option(min=1, help="CPU threads.")] = 2,
    root: Annotated[Path, typer.Option(help="Folder of indexes.")] = Path("runs"),
    work: Annotated[Path, typer.Option(help="Folder of matches, labels and checkpoints.")] = Path("runs/combination"),
    out: Annotated[Path, typer.Option(help="File of the figures.")] = Path("results/contest_combination.json"),
) -> None:
    """Draw questions, label some, train every side, judge all, and print the table and its figures."""
    names, asked = data.split(","), sides.split(",")
    for name in asked:
        if name not in SIDES:
            raise unknown_name("side", name, SIDES)
    config = settle(load_config(None, {"dtype": "float32", "plan": {"threads": threads}}))
    prepare_weights(config)
    compute, embedder, screen = compute_of(config), build_embedder(config), Console(stderr=True)
    limits = limits_of(limit, limit_joined, limit_dev, limit_test)
    trained = [name for name in asked if name != "head" or head is None]
    expected = seconds_of(len(names), limits, trained, seconds, label_limit, threads)
    screen.print(f"{len(asked)} sides, {len(names)} sets: about {duration_text(expected)}, indexes apart.")
    opened, parts = open_sets(names, config, root)
    check_unseen(opened, parts, head, start)
    sets = [draw_set(one, parts, embedder, limits, seed, work) for one in opened.values()]
    train, dev, test = (of_all(sets, part) for part in PARTS_IN_TURN)
    contest = Contest(train, dev, test, Terms(seconds, most_passes, seed), work, screen)
    screen.print(f"{len(contest.train)} questions to train on, {len(contest.dev)} and {len(contest.test)} to judge.")
    if not (contest.train and contest.dev and contest.test):
        raise DataError("no question of one part has evidence among its candidates: raise --limit, or name more data.")
    heads = Heads(contest, Recipe(HeadShape(embedder.dim), seed=seed, epochs=most_passes, mined=0), embedder, compute)
    teaching = None
    if {"likelihood", "mixed"} & set(asked):
        teaching = taught(sets, config, compute, heads, label_limit, threshold)
    outcomes: dict[str, Outcome] = {}
    for name in asked:
        if name == "cross_encoder":
            folder = start or EMBEDDERS[config.embedder].folder()
            outcomes[name] = text_side(contest, folder, heads.recipe, compute)
        elif name == "head" and head is not None:
            outcomes[name] = heads.finished(head, str(EMBEDDERS[config.embedder].revision))
        else:
            outcomes[name] = heads.side(name, teaching, teacher_weight)
    rows = {one.label(name): one for name, one in outcomes.items()}
    Console(width=160).print(
        table_of({row: one.figures for row, one in rows.items()}, {row: one.pairs_per_s for row, one in rows.items()})
    )
    report = {
        "data": names,
        "split_fingerprint": fingerprint_of(parts),
        "questions": {part: len(of_all(sets, part)) for part in PARTS_IN_TURN},
        "terms": asdict(contest.terms),
        "start": "minilm" if start is None else start.name,
        "head_is_finished": head is not None,
        "labels": None if teaching is None else teaching.figures() | {"weight_in_mixed": teacher_weight},
        "sides": {name: asdict(one) for name, one in outcomes.items()},
    }
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    print(json.dumps(report))


@dataclass(frozen=True, slots=True)
class Heads:
    """The sides whose model is a set head: all of one shape, with the same first weights."""

    contest: Contest
    recipe: Recipe
    embedder: Embedder
    compute: Compute

    def side(self, name: str, teaching: Teaching | None, weight: float) -> Outcome:
        """One of `head`, `likelihood` and `mixed`; the latter two need `teaching`."""
        learner, told = self.learner(name, teaching, weight)
        questions = len(teaching.examples) if name == "likelihood" and teaching else len(self.contest.train)

        def judged(examples: Sequence[Example]) -> tuple[list[Sense], float]:
            return sense_and_rate(examples, learner.model, self.embedder, self.compute)

        return self.contest.outcome(name, learner, self.recipe.learning_rate, told, questions, judged)

    def learner(self, name: str, teaching: Teaching | None, weight: float) -> tuple[HeadLearner, list[Any]]:
        """What learns, and what its weights depend on."""
        torch.manual_seed(self.recipe.seed)
        model = SetHead(self.recipe.shape, self.recipe.dropout)
        by_evidence = ByEvidence(model, self.contest.train, self.recipe)
        of_evidence = identity_of(self.contest.train, self.recipe)
        if name == "head" or teaching is None:
            return by_evidence, [of_evidence]
        recipe = replace(self.recipe, batch=LABELLED_BATCH) if name == "mixed" else self.recipe
        by_likelihood = ByLikelihood(model, teaching.examples, teaching.labels, recipe, teaching.threshold)
        labels = [(one.combinations, one.log_likelihoods) for one in teaching.labels]
        of_labels = [identity_of(teaching.examples, recipe), labels, teaching.threshold]
        if name == "likelihood":
            return by_likelihood, of_labels
        return ByBoth(by_evidence, by_likelihood, weight), [of_evidence, of_labels, weight]

    def finished(self, folder: Path, embedder: str) -> Outcome:
        """A head that was trained before, by the clock of its card."""
        model = load_head(folder, embedder)
        senses, rate = sense_and_rate(self.contest.test, model, self.embedder, self.compute)
        return Outcome(figures(senses), round(rate, 1), float(read_card(folder)["seconds"]))


def text_side(contest: Contest, folder: Path, recipe: Recipe, compute: Compute) -> Outcome:
    """The cross-encoder from a folder; what is judged lies in the folder of checkpoints, whole, like any other."""
    own = replace(recipe, batch=TEXT_BATCH)
    learner = ByText(folder, contest.train, own)
    told = [identity_of(contest.train, own), weights_hash(folder), COMBINATIONS]
    saved = contest.work / "contest-cross_encoder"

    def judged(examples: Sequence[Example]) -> tuple[list[Sense], float]:
        reranker = learner.reranker(saved, "cross_encoder", compute)
        return judge([example.asked for example in examples], reranker)

    return contest.outcome("cross_encoder", learner, TEXT_PEAK, told, len(contest.train), judged)


def taught(
    sets: Sequence[Drawn], config: Config, compute: Compute, heads: Heads, limit: int, threshold: float
) -> Teaching:
    """Labels by the configuration's generator, of questions to train on that have an answer.

    Raises:
        DataError: no question has one.
    """
    examples = answered([drawn.train for drawn in sets], limit, heads.recipe.seed)
    if not examples:
        raise DataError("no question to train on has an answer whose likelihood could be asked: name other data.")
    package, prompt = GENERATORS[config.generation.model], config.generation.prompt
    screen = heads.contest.screen

    def watch(done: int) -> None:
        if done % LABELS_TOLD == 0 or done == len(examples):
            screen.print(f"labels: {done} of {len(examples)} questions", soft_wrap=True)

    labels = labelled(
        examples,
        lambda: AnswerLikelihood(package.folder(), config.generation.model, prompt, compute),
        f"{package.revision} {prompt} {compute.dtype}",
        heads.contest.work / "likelihoods.jsonl",
        COMBINATIONS,
        heads.recipe.seed,
        watch,
    )
    return Teaching(examples, labels, threshold)


def check_unseen(opened: Mapping[str, OpenSet], parts: Parts, head: Path | None, start: Path | None) -> None:
    """Refuse models that may have learned from questions that judge.

    Raises:
        DataError: the head was trained on data parted otherwise, or the cross-encoder to start from on such questions.
    """
    if head is not None:
        check_split(read_card(head), parts)
    names = learned_from([start]) & set(opened) if start is not None else set()
    asked = [question for name in names for question in opened[name].questions if part_of(question, parts) == "test"]
    seen = [question for question in asked if part_of_question(question, PARTS) not in (None, TEST_PART)]
    if seen:
        raise DataError(
            f"{start} may have learned from {len(seen)} of the {len(asked)} questions of the test part: "
            "start from another, or leave out the data that it names."
        )


def limits_of(limit: int, joined: int, dev: int, test: int) -> dict[str, tuple[int, int]]:
    """By part, how many plain and joined questions are drawn of a set: none by far more than `limit`."""
    return {
        "train": (limit, min(joined, limit + limit // 5)),
        "dev": (min(limit, dev), min(limit, dev)),
        "test": (min(limit, test), min(limit, test)),
    }


def of_all(sets: Sequence[Drawn], part: Part) -> list[Example]:
    """The questions of one part."""
    return [example for drawn in sets for example in drawn.of(part)]


def seconds_of(
    sets: int, limits: Mapping[str, tuple[int, int]], trained: Sequence[str], seconds: float, labels: int, threads: int
) -> float:
    """About how long the contest takes, by the clock, where nothing is stored yet."""
    expected = sets * sum(map(sum, limits.values())) * SECONDS_A_QUESTION + len(trained) * seconds / (0.8 * threads)
    if "cross_encoder" in trained:
        judged = sets * (JUDGEMENTS * sum(limits["dev"]) + sum(limits["test"]))
        expected += judged * PAIRS_A_QUESTION / PAIRS_A_SECOND["cross-encoder"]
    if {"likelihood", "mixed"} & set(trained):
        expected += labels * COMBINATIONS / LABELS_A_SECOND
    return expected


if __name__ == "__main__":
    with reporting_errors():
        typer.run(main)
