"""Where the weights of `combination` lie, what tells them from others, and the curve that was fitted for them."""

from __future__ import annotations

import hashlib
from pathlib import Path

from corag_ray.models.calibration import Calibration, load_calibration

COMBINATION = "combination"
"""The reranker's name in configurations and in its file of curves."""
COMBINATION_HEAD = Path(__file__).parent / "weights" / COMBINATION
"""The folder that comes with the package, made by `jobs.train_combination_reranker`."""
WEIGHTS = "model.safetensors"
"""The head's weights; their metadata hold its shape, and the embedder whose vectors it was trained over."""
CARD = "card.json"
"""The model card: of what, how and how well."""
CURVES = "calibrations.json"
"""The curve, in the form that `jobs.fit_calibration` writes, kept beside the weights it was fitted for."""


def head_revision(folder: Path) -> str:
    """A hash of the weights in a folder, which must be there."""
    return hashlib.sha256((folder / WEIGHTS).read_bytes()).hexdigest()[:16]


def head_calibration(folder: Path) -> Calibration | None:
    """The curve of a folder's weights; None where there are none, or none was fitted for these.

    Raises:
        DataError: the file of curves is damaged.
    """
    if not (folder / WEIGHTS).is_file() or not (folder / CURVES).is_file():
        return None
    return load_calibration(COMBINATION, head_revision(folder), folder / CURVES)
