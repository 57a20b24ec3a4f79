"""Calibration: raw scores to probabilities by a logistic curve (Platt, 1999), fitted by jobs."""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from corag_ray.errors import DataError

CALIBRATIONS = Path(__file__).with_name("calibrations.json")
"""The fitted curves that come with the package: numbers alone, one entry a reranker and revision of its model."""


@dataclass(frozen=True, slots=True)
class Calibration:
    """The curve `1 / (1 + exp(-(slope * raw + offset)))`.

    It is the probability that a combination holds evidence for the question, where half of the combinations do; that of
    `combination`, fitted by `jobs.train_combination_reranker`, that it holds a given piece of it, drawn at random. The
    slope is above 0, so that calibrated scores stand in the order of raw ones. `version` counts a reranker's fits.
    """

    slope: float
    offset: float
    version: int

    def __post_init__(self) -> None:
        if not (self.slope > 0 and math.isfinite(self.slope) and math.isfinite(self.offset)):
            raise DataError(
                f"a calibration needs a finite slope above 0 and a finite offset, found {self.slope} and "
                f"{self.offset}: fit it again with `python -m jobs.fit_calibration`."
            )

    def calibrated(self, raw: float) -> float:
        """The probability, in 0..1; NaN stays NaN."""
        return sigmoid(self.slope * raw + self.offset)


def load_calibration(name: str, revision: str | None, path: Path = CALIBRATIONS) -> Calibration | None:
    """The curve of a reranker at one revision of its model; None where none was fitted: another model's would mislead.

    Raises:
        DataError: the file is damaged.
    """
    entry = read_calibrations(path).get((name, revision))
    return None if entry is None else Calibration(entry["slope"], entry["offset"], entry["version"])


@functools.cache
def read_calibrations(path: Path) -> Mapping[tuple[str, str | None], Mapping[str, Any]]:
    """The entries of a file by (reranker, revision): the curve, what it was fitted on, and how well it does.

    Raises:
        DataError: the file is damaged.
    """
    try:
        entries = json.loads(path.read_text("utf-8"))
        found = {(entry["reranker"], entry["revision"]): entry for entry in entries}
        for entry in entries:
            Calibration(float(entry["slope"]), float(entry["offset"]), int(entry["version"]))
    except (OSError, ValueError, LookupError, TypeError, DataError) as error:
        raise DataError(
            f"{path} holds no calibrations that can be read ({error}): install corag_ray again, "
            "or fit them with `python -m jobs.fit_calibration`."
        ) from error
    return found


def cut_to_unit(value: float) -> float:
    """The nearest value in 0..1; NaN stays NaN."""
    return value if math.isnan(value) else min(max(value, 0.0), 1.0)


def sigmoid(value: float) -> float:
    """The logistic function; NaN stays NaN, and nothing overflows."""
    if value >= 0:
        return 1 / (1 + math.exp(-value))
    return math.exp(value) / (1 + math.exp(value))
