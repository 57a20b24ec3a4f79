"""The curve from raw scores of `combination` to probabilities, fitted on one part of the questions."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression

from corag_ray.models.calibration import Calibration, read_calibrations
from corag_ray.models.combination_reranker import CombinationReranker, PreparedRows
from corag_ray.models.combination_weights import COMBINATION, CURVES, head_revision
from jobs.combination.examples import Asked, combinations_of, merit
from jobs.fit_calibration import brier, expected_calibration_error, next_version

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Graded:
    """Of many combinations the raw scores, and the shares of their questions' evidence that they hold, 0..1."""

    raw: Floats
    shares: Floats


def graded(
    asked: Sequence[Asked], reranker: CombinationReranker, prepare: Callable[[int], PreparedRows], seed: int
) -> Graded:
    """Combinations of every grade, as they are trained on, but of questions that are not."""
    raw: list[float] = []
    shares: list[float] = []
    for number, one in enumerate(asked):
        combinations = combinations_of(one, random.Random(f"{seed} {one.text}"))
        prepared = prepare(number)
        raw += [score.raw for score in reranker.score([(prepared, combination) for combination in combinations])]
        shares += [merit(one, combination).covered for combination in combinations]
    return Graded(np.array(raw), np.array(shares))


def fit(fit_on: Graded, judge_on: Graded) -> dict[str, float] | None:
    """Slope and offset by logistic regression on shares, and how well the curve does on the others; None if it falls.

    A share is the chance that a piece of the evidence, drawn at random, is in the combination.
    """
    twice = np.concatenate([fit_on.raw, fit_on.raw])[:, None]
    held = np.repeat([True, False], len(fit_on.raw))
    weights = np.concatenate([fit_on.shares, 1 - fit_on.shares])
    model = LogisticRegression(C=np.inf, solver="newton-cholesky", tol=1e-10).fit(twice, held, sample_weight=weights)
    slope, offset = round(float(model.coef_[0, 0]), 4), round(float(model.intercept_[0]), 4)
    if slope <= 0:
        return None
    told: dict[str, float] = {"slope": slope, "offset": offset, "pairs_fitted": len(fit_on.raw)}
    if not len(judge_on.raw):
        return told
    plain, curve = Calibration(1.0, 0.0, 1), Calibration(slope, offset, 1)
    told["pairs_judged"] = len(judge_on.raw)
    for name, mapping in (("before", plain), ("after", curve)):
        chances = np.array([mapping.calibrated(value) for value in judge_on.raw])
        told[f"brier_{name}"] = round(brier(chances, judge_on.shares), 4)
        told[f"calibration_error_{name}"] = round(expected_calibration_error(chances, judge_on.shares), 4)
    return told


def write_curve(folder: Path, fitted: Mapping[str, float], names: Sequence[str]) -> dict[str, Any]:
    """Write the curve beside the weights that it was fitted for, which are there already; returns the entry."""
    path, revision = folder / CURVES, head_revision(folder)
    earlier = read_calibrations(path) if path.exists() else {}
    version = next_version(earlier, COMBINATION, revision, fitted)
    entry = {"reranker": COMBINATION, "revision": revision, "version": version, **fitted, "data": list(names)}
    path.write_text(json.dumps([entry], indent=2) + "\n", encoding="utf-8")
    return entry
