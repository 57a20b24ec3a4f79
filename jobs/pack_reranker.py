"""Packs a trained cross-encoder for the package: `python -m jobs.pack_reranker --model FOLDER --name passage_facts`.

What `jobs.train_reranker` wrote is told by its difference from MiniLM (`corag_ray.models.low_rank`) in at most 3 MB.
The packed model is put together as its users will have it, and scores the same combinations as the whole one, of
documents that no training saw: that shows what packing changed, and fits the curve. Card and curve are written before
the weights, so none lie there without a card.
"""

from __future__ import annotations

import dataclasses
import json
import tempfile
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from safetensors import SafetensorError
from safetensors.torch import load_file, save
from scipy.stats import kendalltau
from sklearn.metrics import roc_auc_score

from corag_ray.batch.estimate import duration_text
from corag_ray.batch.index_folder import open_corpus
from corag_ray.build import build_embedder
from corag_ray.cli import reporting_errors
from corag_ray.config import WINDOW_TOKENS, Config
from corag_ray.config_file import load_config
from corag_ray.errors import DataError
from corag_ray.models.calibration import read_calibrations
from corag_ray.models.checkpoint_config import check_flag_embedding_installed
from corag_ray.models.combination_weights import CARD, CURVES
from corag_ray.models.cross_encoder import CrossEncoder
from corag_ray.models.low_rank import LEFT, difference, share_told
from corag_ray.models.packaged_rerankers import (
    BASE,
    CHECKPOINT,
    DIFFERENCE,
    PACKAGED_RERANKERS,
    WEIGHTS,
    PackagedReranker,
    encoder_weights,
)
from corag_ray.names import look_up
from corag_ray.prepare import prepare_weights
from corag_ray.settling import compute as compute_of
from corag_ray.settling import settle
from jobs.document_parts import part_of_document
from jobs.fit_calibration import HALVES, SIZES, Samples, entry_of, half_of_document, judged_fit, score_set
from jobs.fit_calibration import Sample as Scored
from jobs.made_index import made_index
from jobs.train_combination_reranker import LICENCES
from jobs.train_reranker import FIGURES, PARTS, TEST_PART

LIMIT_BYTES = 3_000_000
HEAD = ("classifier.", "bert.pooler.")
"""Told in full: all that the model says goes through it."""
RESULT_LICENCE = "CC BY-SA 4.0"
"""The strictest of those in `LICENCES`; the base is Apache-2.0."""
UNPACKED = "whole"
"""The trained model's name beside the packed one's."""
PAIRS_A_SECOND = 5.0
"""For the estimate of time: combinations of one to three chunks on one core."""
LIMITS = [
    "English only, as MiniLM and the data are.",
    "Trained on single excerpts, mostly of encyclopaedia text; of a combination it knows what its chunks show one by "
    "one, and nothing of redundancy and order.",
    "It reads 512 tokens at once; a longer combination goes in windows.",
    "The curve gives the probability of evidence where half of the combinations hold some, for questions of every "
    "kind; it was fitted on combinations of one to three chunks.",
]


def main(
    model: Annotated[Path, typer.Option(help="Folder that jobs.train_reranker wrote.")],
    name: Annotated[str, typer.Option(help="The packaged reranker that it becomes.")],
    data: Annotated[
        str | None, typer.Option(help="Data sets that fit the curve, parted by commas; those it learned from if none.")
    ] = None,
    limit: Annotated[int, typer.Option(min=10, help="Questions a set.")] = 60,
    threads: Annotated[int, typer.Option(min=1, help="CPU threads.")] = 2,
    root: Annotated[Path, typer.Option(help="Folder of indexes.")] = Path("runs"),
    out: Annotated[Path, typer.Option(help="Folder of the package's weights.")] = WEIGHTS,
) -> None:
    """Take the difference, compare packed and whole, fit the curve, and write card, curve and weights."""
    row: PackagedReranker = look_up("packaged reranker", name, PACKAGED_RERANKERS)
    figures = read_figures(model)
    names = data.split(",") if data else figures["data"]
    check_flag_embedding_installed()
    config = settle(load_config(None, {"dtype": "float32", "plan": {"threads": threads}}))
    prepare_weights(config)
    compute_of(config).apply()
    seconds = len(names) * (30 + limit * 2 * 2 * len(SIZES) / PAIRS_A_SECOND)
    print(f"{model} becomes {name}: at most {duration_text(seconds)}, indexes apart.", flush=True)
    with tempfile.TemporaryDirectory() as scratch:
        packed = dataclasses.replace(row, home=Path(scratch))
        told = pack(model, packed)
        samples = scored({UNPACKED: model, name: packed.folder()}, names, config, limit, root)
        fitted = judged_fit(samples[name, 0], samples[name, 1])
        told |= {"compared_with_whole": compared(both_halves(samples, UNPACKED), both_halves(samples, name))}
        card = card_of(packed, figures, told, fitted)
        write(out / name, packed, card, fitted, names)
    print(json.dumps(card))


def read_figures(model: Path) -> dict[str, Any]:
    """What the training of a model told of itself, but for where its folders lay.

    Raises:
        DataError: it is not there, or names data of which no licence is known to allow it.
    """
    try:
        figures: dict[str, Any] = _without_folders(json.loads((model / FIGURES).read_text("utf-8")))
        unknown = set(figures["data"]) - set(LICENCES)
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise DataError(f"{model} holds no finished training of jobs.train_reranker ({error}).") from error
    if unknown:
        raise DataError(f"{model} learned from {sorted(unknown)[0]}: no licence is known here that allows it.")
    return figures


def _without_folders(figures: Any) -> Any:
    """At any depth: a model that went on from another tells that one's figures as well."""
    if not isinstance(figures, dict):
        return figures
    return {key: _without_folders(value) for key, value in figures.items() if key != "folder"}


def pack(model: Path, packed: PackagedReranker) -> dict[str, Any]:
    """Write the difference of a trained model into the home of `packed`; returns its size and how much it tells.

    Raises:
        DataError: the folder has no weights, or none that are MiniLM's with a small difference.
    """
    base = encoder_weights(packed.base.folder())
    try:
        trained = load_file(model / CHECKPOINT)
        told = difference(base, trained, LIMIT_BYTES, whole=HEAD)
    except (OSError, SafetensorError, ValueError) as error:
        raise DataError(f"{model} holds no model that was trained from {packed.base.package}: {error}.") from error
    (packed.home / DIFFERENCE).write_bytes(save(told, metadata={BASE: str(packed.base.revision)}))
    ranks = [factor.shape[1] for name, factor in told.items() if name.endswith(LEFT)]
    return {
        "bytes": (packed.home / DIFFERENCE).stat().st_size,
        "share_of_squared_difference": round(share_told(base, trained, told), 4),
        "ranks": [min(ranks, default=0), max(ranks, default=0)],
    }


def scored(models: Mapping[str, Path], data: Sequence[str], config: Config, limit: int, root: Path) -> Samples:
    """What each model gives the same combinations with and without evidence, of documents that no training saw."""
    rerankers = [CrossEncoder(folder, name, WINDOW_TOKENS, compute_of(config)) for name, folder in models.items()]
    samples: Samples = defaultdict(Scored)
    for name in data:
        of_set = config.model_copy(update={"dataset": name})
        dataset, folder = open_corpus(root, of_set)
        index = made_index(of_set, dataset, folder, build_embedder(of_set))
        used = score_set(dataset, index, rerankers, limit, samples, unseen_half)
        print(f"{name}: {used} questions with combinations of both kinds.", flush=True)
    return samples


def unseen_half(doc_id: str) -> int | None:
    """The half that a document of the part that was kept back is of; None for a document that was trained on."""
    return half_of_document(doc_id) if part_of_document(doc_id, PARTS) == TEST_PART else None


def both_halves(samples: Samples, name: str) -> Scored:
    """One model's scores, all together."""
    halves = [samples[name, half] for half in range(HALVES)]
    return Scored(
        read=[value for half in halves for value in half.read],
        relevant=[value for half in halves for value in half.relevant],
    )


def compared(whole: Scored, packed: Scored) -> dict[str, Any]:
    """How alike two models order the same combinations, and how well each tells those that hold evidence.

    `evidence_higher` is the chance that of two combinations, one with evidence and one without, that with it has the
    higher score.
    """
    shares = {name: roc_auc_score(of.relevant, of.read) for name, of in (("whole", whole), ("packed", packed))}
    return {
        "pairs": len(packed.read),
        "kendall_tau": round(float(kendalltau(whole.read, packed.read).statistic), 4),
        "evidence_higher": {name: round(float(share), 4) for name, share in shares.items()},
    }


def card_of(
    packed: PackagedReranker, figures: Mapping[str, Any], told: Mapping[str, Any], fitted: Mapping[str, Any]
) -> dict[str, Any]:
    """The model card: of what and how it was made, how well it does, under which licence, and what it does not know."""
    return {
        "model": "cross-encoder for single passages: all-MiniLM-L6-v2 with a head of one output, fine-tuned",
        "name": packed.name,
        "purpose": packed.purpose,
        "revision": packed.revision,
        "licence": f"{RESULT_LICENCE}, the strictest of the data's",
        "base": {"name": "sentence-transformers/all-MiniLM-L6-v2", "licence": "Apache-2.0"},
        "data": [{"name": name, "licence": LICENCES[name]} for name in figures["data"]],
        "split": "by document (jobs.document_parts): a fifth is never trained on; it judged the training, and one half "
        "of it fits the curve, the other judges that",
        "training": dict(figures),
        "packed": {"form": "difference from the base, matrices at low rank (corag_ray.models.low_rank)", **told},
        "curve": dict(fitted),
        "limits": LIMITS,
    }


def write(
    home: Path, packed: PackagedReranker, card: Mapping[str, Any], fitted: Mapping[str, Any], data: Sequence[str]
) -> None:
    """Write card, curve and weights, in this order, each at once."""
    curves = home / CURVES
    earlier = read_calibrations(curves) if curves.is_file() else {}
    entry = entry_of(earlier, packed.name, packed.revision, fitted, data)
    home.mkdir(parents=True, exist_ok=True)
    _put(home / CARD, (json.dumps(card, indent=2) + "\n").encode())
    _put(curves, (json.dumps([entry], indent=2) + "\n").encode())
    _put(home / DIFFERENCE, (packed.home / DIFFERENCE).read_bytes())


def _put(path: Path, content: bytes) -> None:
    """Write a file at once, for all to read: an installed package is read by others than its owner."""
    scratch = path.with_name(path.name + ".partial")
    scratch.write_bytes(content)
    scratch.chmod(0o644)
    scratch.replace(path)


if __name__ == "__main__":
    with reporting_errors():
        typer.run(main)
