"""Trains a cross-encoder on questions and their candidates: `python -m jobs.train_reranker`.

all-MiniLM-L6-v2 learns to rank the highest candidate that holds evidence above candidates that hold none, a question
at a time (ListNet: Cao et al., ICML 2007). Questions are parted by document: those of one part in five are never
trained on, and the job ends by ranking candidates of some of them. What it writes is a folder that a configuration can
name under `cross_encoders`. A killed run goes on from its last save, where settings and questions are still the same.
Training reads excerpts of chunks, since its time grows with their length; ranking reads them whole.

With `--distil` it learns from late interaction as well, whose scores of the candidates tell how near each comes
(distillation: Hinton et al., 2015), where the evidence alone tells only which one holds it.

An expert starts from a model that was trained before, and learns from questions of one kind:
`python -m jobs.train_reranker --start runs/rerankers/passage --kind facts --out runs/rerankers/passage_facts`.
"""

from __future__ import annotations

import hashlib
import json
import random
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, TypeVar

import numpy as np
import typer

from corag_ray.batch.estimate import duration_text
from corag_ray.batch.index_folder import open_corpus
from corag_ray.build import build_embedder
from corag_ray.cli import reporting_errors
from corag_ray.config import WINDOW_TOKENS, Config
from corag_ray.config_file import load_config
from corag_ray.errors import DataError, MissingModelError
from corag_ray.evaluation.candidate_ranking import rank_evidence
from corag_ray.evaluation.evidence import covers, covers_any
from corag_ray.identity import weights_hash
from corag_ray.models.late_interaction import LateInteraction
from corag_ray.names import EMBEDDERS
from corag_ray.prepare import prepare_weights
from corag_ray.settling import compute as compute_of
from corag_ray.settling import settle
from corag_ray.types import Chunk, Question, Span
from jobs.document_parts import part_of_document, part_of_question
from jobs.made_index import made_index
from jobs.question_kinds import Kind, kind_of

Item = TypeVar("Item")

FIGURES = "figures.json"
"""What the job printed last, in the trained folder."""

LEARNED_FROM = ("squad-v1.1-part", "selqa")
"""Data sets with licences that allow it."""
PARTS, TEST_PART = 5, 0
"""Documents are parted by a hash of their ids; the questions of one part judge, those of the others train."""
RANKED = 20
"""Candidates of a question that are learned from and ranked."""
HIGHEST, DRAWN = 2, 1
"""Candidates without evidence that a question is learned with: its highest, which mislead most, and any others."""
EXCERPT = 450
"""Characters of a chunk that training reads, about 100 tokens."""
RIGHT = 10.0
"""ListNet aims at the softmax of the labels: all but nothing of it then lies on the candidate with evidence."""
RIGHT_BESIDE_TEACHER = 3.0
"""The label of evidence where a teacher's standard scores, mostly within -2 and 2, are added to it."""
PAIRS_A_SECOND = 7.0


@dataclass(frozen=True, slots=True)
class Recipe:
    """How the model learns: passes over the questions, those of one kind or all, and what each step does.

    `start` is a hash of the weights that it goes on from; None stands for MiniLM's with a new head.

    The lowest layers and the vocabulary stay as they are, which saves a quarter of the time. With the lower half
    frozen, 535 questions taught the model nothing.
    """

    passes: float
    peak_learning_rate: float
    seed: int
    kind: Kind | None = None
    start: str | None = None
    distilled: bool = False
    excerpt_characters: int = EXCERPT
    questions_a_step: int = 8
    frozen_layers: int = 2


@dataclass(frozen=True, slots=True)
class Lesson:
    """What is learned from one question: texts, and for each a label.

    It is `RIGHT` where the text holds evidence, else 0; with a teacher, `RIGHT_BESIDE_TEACHER` or 0, plus its score.
    """

    question: str
    texts: list[str]
    labels: list[float]


@dataclass(frozen=True, slots=True)
class Asked:
    """A question with its highest candidates, and for each whether it holds evidence and a teacher's score, or 0.

    The scores of a question's candidates have a mean of 0 and a standard deviation of 1.
    """

    question: Question
    candidates: list[Chunk]
    holds: list[bool]
    taught: list[float]


def main(
    data: Annotated[str, typer.Option(help="Data sets, parted by commas; their licences must allow it.")] = ",".join(
        LEARNED_FROM
    ),
    kind: Annotated[Kind | None, typer.Option(help="Questions to learn from, told by their words; else all.")] = None,
    start: Annotated[Path | None, typer.Option(help="Folder of a trained cross-encoder to go on from.")] = None,
    distil: Annotated[bool, typer.Option("--distil", help="Learn from late interaction's scores as well.")] = False,
    limit: Annotated[int | None, typer.Option(min=20, help="Questions a set; all unless given.")] = None,
    judged: Annotated[int, typer.Option(min=1, help="Questions a set that are ranked at the end, at most.")] = 150,
    epochs: Annotated[float, typer.Option(min=0.01, help="Passes over the questions.")] = 1.0,
    learning_rate: Annotated[float, typer.Option(min=1e-7, help="Peak; warmed up, then falling to 0.")] = 1e-4,
    seed: Annotated[int, typer.Option(min=0, help="Of shuffling and of the new head.")] = 0,
    threads: Annotated[int, typer.Option(min=1, help="CPU threads.")] = 2,
    root: Annotated[Path, typer.Option(help="Folder of indexes.")] = Path("runs"),
    out: Annotated[Path, typer.Option(help="Folder of the trained model.")] = Path("runs/rerankers/passage"),
) -> None:
    """Draw questions, train, rank candidates of questions that were kept back, and print figures."""
    before = figures_of(start)
    config = settle(load_config(None, {"dtype": "float32", "plan": {"threads": threads}}))
    prepare_weights(config)
    lessons: list[Lesson] = []
    test: list[Asked] = []
    for name in data.split(","):
        kept_back = []
        for one in draw(name, config, limit, root, distil):
            if part_of_question(one.question, PARTS) == TEST_PART:
                kept_back.append(one)
            elif kind in (None, kind_of(one.question.text)) and (
                lesson := lesson_of(
                    one,
                    RIGHT_BESIDE_TEACHER if distil else RIGHT,
                    random.Random(f"{seed}/{one.question.question_id}"),
                )
            ):
                lessons.append(lesson)
        test += evenly(kept_back, judged)
    if not lessons or not test:
        raise DataError("no question of one part has evidence among its candidates: raise --limit, or name more data.")
    pairs = sum(len(lesson.texts) for lesson in lessons)
    seconds = epochs * pairs / PAIRS_A_SECOND + len(test) * RANKED / (2 * PAIRS_A_SECOND)
    print(
        f"{pairs} pairs of {len(lessons)} questions, {len(test)} to judge: about {duration_text(seconds)}.", flush=True
    )
    compute_of(config).apply()
    recipe = Recipe(epochs, learning_rate, seed, kind, None if start is None else weights_hash(start), distil)
    model = train(lessons, start or EMBEDDERS[config.embedder].folder(), out, recipe)
    first_stage = [rank_evidence(one.question.evidence, one.candidates) for one in test]
    reranked = [rank_evidence(one.question.evidence, ranked(model, one)) for one in test]
    figures = {
        "data": sorted({*data.split(","), *before.get("data", ())}),
        "recipe": asdict(recipe),
        "questions": len(lessons),
        "pairs": pairs,
        "questions_judged": len(test),
        "mrr_first_stage": round(float(np.mean([r.reciprocal_rank for r in first_stage if r])), 4),
        "mrr_reranked": round(float(np.mean([r.reciprocal_rank for r in reranked if r])), 4),
        "mrr_best_possible": round(float(np.mean([any(one.holds) for one in test])), 4),
        "folder": str(out),
        "before": before or None,
    }
    (out / FIGURES).write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")
    shutil.rmtree(saves_of(lessons, recipe, out))  # last: a run that was killed while it judged need not train again
    print(json.dumps(figures))


def figures_of(start: Path | None) -> dict[str, Any]:
    """What the training of a model to go on from told of itself; nothing of MiniLM.

    Raises:
        MissingModelError: the folder was not written by this job.
    """
    if start is None:
        return {}
    if not (start / FIGURES).is_file():
        raise MissingModelError(f"--start {start}: there is no {FIGURES}; name a folder that this job has written.")
    found: dict[str, Any] = json.loads((start / FIGURES).read_text("utf-8"))
    return found


def draw(name: str, config: Config, limit: int | None, root: Path, distil: bool) -> Iterator[Asked]:
    """Questions from all over a set, whose evidence lies in one part, with their candidates of that part."""
    config = config.model_copy(update={"dataset": name})
    dataset, folder = open_corpus(root, config)
    embedder = build_embedder(config)
    index = made_index(config, dataset, folder, embedder)
    teacher = LateInteraction(embedder, index.token_vectors) if distil else None
    questions = [question for question in dataset.questions if part_of_question(question, PARTS) is not None]
    questions = evenly(questions, limit or len(questions))
    for question, hits in zip(questions, index.first_stage.search([q.text for q in questions], 60), strict=True):
        found = [row for row, _ in hits]
        part = part_of_question(question, PARTS)
        kept = [
            (row, chunk)
            for row, chunk in zip(found, index.store.take(found), strict=True)
            if part_of_document(chunk.doc_id, PARTS) == part
        ][:RANKED]
        rows, candidates = [row for row, _ in kept], [chunk for _, chunk in kept]
        holds = [covers_any(chunk, question.evidence) for chunk in candidates]
        taught = standard_scores(teacher, question, candidates, rows) if teacher else [0.0] * len(rows)
        yield Asked(question, candidates, holds, taught)


def standard_scores(
    teacher: LateInteraction, question: Question, candidates: Sequence[Chunk], rows: Sequence[int]
) -> list[float]:
    """The teacher's raw scores, less their mean, over their standard deviation; zeros where all are equal."""
    prepared = teacher.prepare(question.text, candidates, rows)
    raw = np.array([score.raw for score in teacher.score([(prepared, (place,)) for place in range(len(rows))])])
    if raw.size == 0 or not (spread := raw.std()):
        return [0.0] * len(rows)
    return [float(value) for value in (raw - raw.mean()) / spread]


def evenly(items: Sequence[Item], limit: int) -> list[Item]:
    """All of them, or `limit` from all over the sequence."""
    return [items[place] for place in np.linspace(0, len(items) - 1, min(limit, len(items))).astype(int)]


def lesson_of(asked: Asked, right: float, drawn: random.Random) -> Lesson | None:
    """The highest candidate that holds evidence against some that hold none; None where either is missing.

    `right` is the label of evidence, before the teacher's score is added.
    """
    places = range(len(asked.candidates))
    holding = [place for place in places if asked.holds[place]]
    wrong = [place for place in places if not asked.holds[place]]
    if not holding or not wrong:
        return None
    best, others = asked.candidates[holding[0]], wrong[HIGHEST:]
    against = wrong[:HIGHEST] + drawn.sample(others, min(DRAWN, len(others)))
    answer = next((item.answer for item in asked.question.evidence if item.answer and covers(best, item)), None)
    texts = [excerpt(best, answer, drawn), *(excerpt(asked.candidates[place], None, drawn) for place in against)]
    labels = [right + asked.taught[holding[0]], *(asked.taught[place] for place in against)]
    return Lesson(asked.question.text, texts, labels)


def excerpt(chunk: Chunk, answer: Span | None, drawn: random.Random) -> str:
    """`EXCERPT` characters of the chunk from a random place, with the answer where it lies in the chunk and fits."""
    last = len(chunk.text) - EXCERPT
    if last <= 0:
        return chunk.text
    low, high = 0, last
    if answer is not None and chunk.start <= answer.start and answer.end - answer.start <= EXCERPT:
        low = min(max(0, answer.end - chunk.start - EXCERPT), last)
        high = max(low, min(last, answer.start - chunk.start))
    start = drawn.randint(low, high)
    return chunk.text[start : start + EXCERPT]


def train(lessons: Sequence[Lesson], start: Path, out: Path, recipe: Recipe) -> Any:
    """The sentence-transformers cross-encoder that a folder of weights becomes, saved to `out`."""
    from datasets import Dataset as Table
    from sentence_transformers.cross_encoder import CrossEncoder, CrossEncoderTrainer, CrossEncoderTrainingArguments
    from sentence_transformers.cross_encoder.losses import ListNetLoss
    from transformers import set_seed

    set_seed(recipe.seed)  # the head is drawn at loading
    model = CrossEncoder(str(start), num_labels=1, max_length=WINDOW_TOKENS, device="cpu")
    bert = model.model.bert
    for module in [bert.embeddings, *bert.encoder.layer[: recipe.frozen_layers]]:
        module.requires_grad_(False)
    columns = {
        "question": [lesson.question for lesson in lessons],
        "texts": [lesson.texts for lesson in lessons],
        "labels": [lesson.labels for lesson in lessons],
    }
    saves = saves_of(lessons, recipe, out)
    saves.mkdir(parents=True, exist_ok=True)
    (out / FIGURES).unlink(missing_ok=True)  # what stands there is of another model from now on
    arguments = CrossEncoderTrainingArguments(
        output_dir=str(saves),
        num_train_epochs=recipe.passes,
        per_device_train_batch_size=recipe.questions_a_step,
        learning_rate=recipe.peak_learning_rate,
        warmup_steps=0.1,
        lr_scheduler_type="linear",
        save_steps=50,
        save_total_limit=1,
        logging_steps=20,
        report_to="none",
        seed=recipe.seed,
        use_cpu=True,
    )
    loss = ListNetLoss(model)
    trainer = CrossEncoderTrainer(model=model, args=arguments, train_dataset=Table.from_dict(columns), loss=loss)
    trainer.train(resume_from_checkpoint=last_whole_save(saves))
    model.save_pretrained(str(out))
    return model


def saves_of(lessons: Sequence[Lesson], recipe: Recipe, out: Path) -> Path:
    """Where a training is saved as it goes on: another one's saves are never taken for its own."""
    told = json.dumps([[asdict(lesson) for lesson in lessons], asdict(recipe)])
    return out.with_name(f"{out.name}-training-{hashlib.sha256(told.encode()).hexdigest()[:8]}")


def last_whole_save(saves: Path) -> str | None:
    """The newest save; one whose writing was killed lacks the file that is written last, and is removed."""
    found = sorted(saves.glob("checkpoint-*"), key=lambda save: int(save.name.rpartition("-")[2]))
    while found and not (found[-1] / "trainer_state.json").is_file():
        shutil.rmtree(found.pop())
    return str(found[-1]) if found else None


def ranked(model: Any, asked: Asked) -> list[Chunk]:
    """The candidates, highest score first."""
    scores = model.predict([(asked.question.text, chunk.text) for chunk in asked.candidates], show_progress_bar=False)
    return [asked.candidates[i] for i in np.argsort(-np.asarray(scores), kind="stable")]


if __name__ == "__main__":
    with reporting_errors():
        typer.run(main)
