"""Packs a trained cross-encoder small enough for the repository: `python -m jobs.pack_reranker --trained FOLDER`.

What `jobs.train_reranker` wrote is told by its difference from the weights that it began with, matrices at a low rank
(`corag_ray.models.low_rank`), and a card is written beside it from the figures of its training. The package puts the
checkpoint together again at first use.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
from safetensors.torch import load_file, save_file

from corag_ray.cli import reporting_errors
from corag_ray.errors import DataError
from corag_ray.models.low_rank import difference, share_told
from corag_ray.models.packaged_rerankers import CARD, CHECKPOINT, DIFFERENCE, WEIGHTS, PackagedReranker, encoder_weights
from jobs.train_reranker import FIGURES

LICENCES = {
    "squad-v1.1-part": "SQuAD 1.1, CC BY-SA 4.0",
    "selqa": "SelQA, Apache-2.0, its text from Wikipedia, CC BY-SA",
}
"""Of the data sets that a packaged reranker may learn from."""
RESULT_LICENCE = "CC BY-SA 4.0"
"""The strictest of the data's; the base model is Apache-2.0."""


def main(
    trained: Annotated[Path, typer.Option(help="Folder that jobs.train_reranker wrote.")],
    name: Annotated[str, typer.Option(help="The packaged reranker's name.")] = "passage",
    rank: Annotated[int, typer.Option(min=1, help="Of the matrices' differences.")] = 48,
    out: Annotated[Path, typer.Option(help="Folder of the package's weights.")] = WEIGHTS,
) -> None:
    """Take the difference, write it with its card, and print how much of it is told in how many bytes."""
    base = encoder_weights(PackagedReranker(name).base.folder())
    figures = read_figures(trained)
    weights = load_file(trained / CHECKPOINT)
    told = difference(base, weights, rank)
    folder = out / name
    folder.mkdir(parents=True, exist_ok=True)
    save_file(told, folder / DIFFERENCE)
    packed = {
        "name": name,
        "rank": rank,
        "bytes": (folder / DIFFERENCE).stat().st_size,
        "share_told": round(share_told(base, weights, told), 4),
    }
    (folder / CARD).write_text(card(figures, packed), encoding="utf-8")
    print(json.dumps(packed))


def read_figures(trained: Path) -> dict[str, Any]:
    """What the training printed last.

    Raises:
        DataError: it is not there, or names data that a packaged reranker may not learn from.
    """
    try:
        figures: dict[str, Any] = json.loads((trained / FIGURES).read_text("utf-8"))
        unknown = set(figures["data"]) - set(LICENCES)
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise DataError(f"{trained} holds no finished training of jobs.train_reranker ({error}).") from error
    if unknown:
        raise DataError(f"no licence is known here that would let {sorted(unknown)[0]} be learned from.")
    return figures


def card(figures: Mapping[str, Any], packed: Mapping[str, Any]) -> str:
    """The model card: where it comes from, what it learned from, how well it does, and what it is not for."""
    data = "\n".join(f"- {name}: {LICENCES[name]}" for name in figures["data"])
    recipe = "\n".join(f"| {key.replace('_', ' ')} | {value} |" for key, value in figures["recipe"].items())
    return f"""# {packed["name"]}: a cross-encoder for single passages

all-MiniLM-L6-v2 (Apache-2.0, 22.7 million parameters) with a head of one output, fine-tuned to rank a chunk that holds
evidence above chunks that do not. English. Licence of the weights: {RESULT_LICENCE}, the strictest of its data's.

`{DIFFERENCE}` holds the difference from the base, matrices at rank {packed["rank"]}: {packed["bytes"]:,} bytes tell
{packed["share_told"]:.1%} of what training changed, by squared norm. Made by `python -m jobs.train_reranker` and
`python -m jobs.pack_reranker`, from {figures["questions"]:,} questions ({figures["pairs"]:,} pairs) of

{data}

| recipe | |
|---|---|
{recipe}

Questions are parted by a hash of their documents' ids: those of one part in five were never trained on. On
{figures["questions_judged"]} of them, before packing, the mean reciprocal rank at 10 of the 20 highest candidates of
the kept-back documents was {figures["mrr_reranked"]:.3f}; in the order of the first stage it was
{figures["mrr_first_stage"]:.3f}, and no order could exceed {figures["mrr_best_possible"]:.3f}. `python -m
jobs.bench_rerankers` judges what is packed, with intervals, and on data sets that it never saw.

Limits: it learned from English questions on Wikipedia and from single chunks; of combinations it knows only what its
chunks show one by one, it reads 512 tokens at once, and its scores are logits of a ranking, not probabilities.
"""


if __name__ == "__main__":
    with reporting_errors():
        typer.run(main)
