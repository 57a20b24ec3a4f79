"""Cosines of unit vectors, whatever threads numpy's BLAS takes."""

from __future__ import annotations

import numpy as np
import torch

from corag_ray.models.protocols import FloatArray


def cosines(left: FloatArray, right: FloatArray) -> FloatArray:
    """Of each vector of `left` with each of `right`, [left, right], float32.

    By torch, whose threads `Compute` sets: numpy's BLAS would choose its own, and with them the last bits.
    """
    product: FloatArray = (torch.from_numpy(left) @ torch.from_numpy(right).T).numpy()
    return product


def similarity(vectors: FloatArray, decimals: int) -> tuple[tuple[float, ...], ...]:
    """Of each vector with each, [vectors][vectors], rounded so that the last bits of a sum decide no tie."""
    rounded = np.round(cosines(vectors, vectors).astype(np.float64), decimals)
    return tuple(tuple(row) for row in rounded.tolist())
