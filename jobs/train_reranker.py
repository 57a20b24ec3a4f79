"""Trains a cross-encoder on questions and their candidates: `python -m jobs.train_reranker`.

all-MiniLM-L6-v2 learns to tell chunks that hold evidence from the highest candidates that hold none. Questions are
parted by document: those of one part in five are never trained on, and the job ends by ranking their candidates. What
it writes is a folder that a configuration can name under `cross_encoders`. A killed run goes on from its last save,
where settings and pairs are still the same. Texts longer than `MAX_TOKENS` are cut in training, and counted.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from corag_ray.batch.estimate import duration_text
from corag_ray.batch.index_folder import ensure_index, open_corpus
from corag_ray.build import build_embedder
from corag_ray.cli import reporting_errors
from corag_ray.config import Config
from corag_ray.config_file import load_config
from corag_ray.errors import DataError
from corag_ray.evaluation.candidate_ranking import rank_evidence
from corag_ray.evaluation.evidence import covers
from corag_ray.identity import index_spec
from corag_ray.indexing.open_index import open_index
from corag_ray.names import EMBEDDERS
from corag_ray.prepare import prepare_weights
from corag_ray.settling import compute as compute_of
from corag_ray.settling import settle
from corag_ray.types import Chunk, Question
from jobs.document_parts import part_of_document, part_of_question

PARTS, TEST_PART = 5, 0
"""Documents are parted by a hash of their ids; the questions of one part judge, those of the others train."""
RANKED = 20
"""Candidates of a question that are learned from and ranked."""
NEGATIVES = 3
MAX_TOKENS = 192
BATCH = 16
FROZEN_LAYERS = 3
"""The lower half learns nothing new from a few thousand pairs, and half of the backward pass is saved."""
PAIRS_A_SECOND = 6.0


@dataclass(frozen=True, slots=True)
class Asked:
    """A question with its highest candidates, and for each whether it holds evidence."""

    question: Question
    candidates: list[Chunk]
    holds: list[bool]


def main(
    data: Annotated[
        str, typer.Option(help="Data sets, parted by commas; their licences must allow it.")
    ] = "squad-v1.1-part,selqa",
    limit: Annotated[int, typer.Option(min=20, help="Questions a set.")] = 1000,
    epochs: Annotated[float, typer.Option(min=0.01, help="Passes over the pairs.")] = 1.0,
    learning_rate: Annotated[float, typer.Option(min=1e-7, help="Peak; warmed up, then falling to 0.")] = 1e-4,
    seed: Annotated[int, typer.Option(min=0, help="Of shuffling and of the new head.")] = 0,
    threads: Annotated[int, typer.Option(min=1, help="CPU threads.")] = 2,
    root: Annotated[Path, typer.Option(help="Folder of indexes.")] = Path("runs"),
    out: Annotated[Path, typer.Option(help="Folder of the trained model.")] = Path("runs/rerankers/passage"),
) -> None:
    """Draw pairs, train, rank the questions that were kept back, and print figures."""
    config = settle(load_config(None, {"dtype": "float32", "plan": {"threads": threads}}))
    prepare_weights(config)
    asked = [one for name in data.split(",") for one in draw(name, config, limit, root)]
    training, test = (
        [one for one in asked if (part_of_question(one.question, PARTS) == TEST_PART) is test] for test in (False, True)
    )
    pairs = [pair for one in training for pair in pairs_of(one)]
    if not pairs or not test:
        raise DataError("no question of one part has evidence among its candidates: raise --limit, or name more data.")
    seconds = epochs * len(pairs) / PAIRS_A_SECOND + len(test) * RANKED / (4 * PAIRS_A_SECOND)
    print(f"{len(pairs)} pairs of {len(training)} questions, {len(test)} to judge: about {duration_text(seconds)}.")
    compute_of(config).apply()
    model = train(pairs, config, out, epochs=epochs, learning_rate=learning_rate, seed=seed)
    first_stage = [rank_evidence(one.question.evidence, one.candidates) for one in test]
    reranked = [rank_evidence(one.question.evidence, ranked(model, one)) for one in test]
    figures = {
        "data": data.split(","),
        "pairs": len(pairs),
        "pairs_cut": pairs_cut(model, pairs),
        "questions_judged": len(test),
        "mrr_first_stage": round(float(np.mean([r.reciprocal_rank for r in first_stage if r])), 4),
        "mrr_reranked": round(float(np.mean([r.reciprocal_rank for r in reranked if r])), 4),
        "folder": str(out),
    }
    (out / "figures.json").write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")
    print(json.dumps(figures))


def draw(name: str, config: Config, limit: int, root: Path) -> Iterator[Asked]:
    """Questions from all over a set, whose evidence lies in one part, with their candidates of that part."""
    config = config.model_copy(update={"dataset": name})
    dataset, folder = open_corpus(root, config)
    ensure_index(config, dataset, folder)
    index = open_index(folder, index_spec(config, dataset), build_embedder(config), config.retrieval.kind)
    questions = [question for question in dataset.questions if part_of_question(question, PARTS) is not None]
    places = np.linspace(0, len(questions) - 1, min(limit, len(questions))).astype(int)
    questions = [questions[place] for place in places]
    for question, hits in zip(questions, index.first_stage.search([q.text for q in questions], 60), strict=True):
        found = index.store.take([row for row, _ in hits])
        part = part_of_question(question, PARTS)
        candidates = [chunk for chunk in found if part_of_document(chunk.doc_id, PARTS) == part][:RANKED]
        holds = [any(covers(chunk, item) for item in question.evidence) for chunk in candidates]
        yield Asked(question, candidates, holds)


def pairs_of(asked: Asked) -> list[tuple[str, str, float]]:
    """(question, text, 1 or 0): the highest candidate that holds evidence, and the highest that hold none."""
    right = [chunk for chunk, holds in zip(asked.candidates, asked.holds, strict=True) if holds]
    wrong = [chunk for chunk, holds in zip(asked.candidates, asked.holds, strict=True) if not holds]
    if not right or not wrong:
        return []
    labelled = [(right[0], 1.0), *((chunk, 0.0) for chunk in wrong[:NEGATIVES])]
    return [(asked.question.text, chunk.text, label) for chunk, label in labelled]


def pairs_cut(model: Any, pairs: Sequence[tuple[str, str, float]]) -> int:
    """How many pairs were longer than what was read of them."""
    questions, texts, _ = map(list, zip(*pairs, strict=True))
    return sum(len(ids) > MAX_TOKENS for ids in model.tokenizer(questions, texts, truncation=False)["input_ids"])


def train(
    pairs: Sequence[tuple[str, str, float]],
    config: Config,
    out: Path,
    *,
    epochs: float,
    learning_rate: float,
    seed: int,
) -> Any:
    """The trained sentence-transformers cross-encoder, saved to `out`."""
    from datasets import Dataset as Table
    from sentence_transformers.cross_encoder import CrossEncoder, CrossEncoderTrainer, CrossEncoderTrainingArguments
    from sentence_transformers.cross_encoder.losses import BinaryCrossEntropyLoss
    from transformers import set_seed

    set_seed(seed)  # the head is drawn at loading
    model = CrossEncoder(str(EMBEDDERS[config.embedder].folder()), num_labels=1, max_length=MAX_TOKENS, device="cpu")
    bert = model.model.bert
    for module in [bert.embeddings, *bert.encoder.layer[:FROZEN_LAYERS]]:
        module.requires_grad_(False)
    recipe = json.dumps([pairs, epochs, learning_rate, seed, MAX_TOKENS, BATCH, FROZEN_LAYERS])
    saves = out.with_name(f"{out.name}-training-{hashlib.sha256(recipe.encode()).hexdigest()[:8]}")
    saves.mkdir(parents=True, exist_ok=True)
    arguments = CrossEncoderTrainingArguments(
        output_dir=str(saves),
        num_train_epochs=epochs,
        per_device_train_batch_size=BATCH,
        learning_rate=learning_rate,
        warmup_steps=0.1,
        lr_scheduler_type="linear",
        save_steps=50,
        save_total_limit=1,
        logging_steps=20,
        report_to="none",
        seed=seed,
        use_cpu=True,
    )
    table = Table.from_dict(dict(zip(("question", "text", "label"), map(list, zip(*pairs, strict=True)), strict=True)))
    trainer = CrossEncoderTrainer(model=model, args=arguments, train_dataset=table, loss=BinaryCrossEntropyLoss(model))
    trainer.train(resume_from_checkpoint=last_whole_save(saves))
    model.save_pretrained(str(out))
    shutil.rmtree(saves)
    return model


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
