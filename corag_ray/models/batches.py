"""Sequences of different lengths in padded batches: cut by size, padded, counted, assembled one ahead."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

Item = TypeVar("Item")
Made = TypeVar("Made")


def length_batches(lengths: Sequence[int], max_padded: int) -> Iterator[list[int]]:
    """Item numbers, longest first, in batches whose padded size (items x longest) stays within `max_padded`.

    An item that exceeds it by itself stands alone; with `max_padded` 1 every item does.
    """
    batch: list[int] = []
    for item in sorted(range(len(lengths)), key=lambda i: -lengths[i]):
        if batch and max(1, lengths[batch[0]]) * (len(batch) + 1) > max_padded:
            yield batch
            batch = []
        batch.append(item)
    if batch:
        yield batch


def padded(rows: Sequence[ArrayLike], fill: int = 0) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Rows of ids as one array [rows, longest], `fill` behind the shorter ones, and its mask, 1 where an id is."""
    arrays = [np.asarray(row) for row in rows]
    shape = len(arrays), max((len(array) for array in arrays), default=0)
    ids, mask = np.full(shape, fill, dtype=np.int64), np.zeros(shape, dtype=np.int64)
    for number, array in enumerate(arrays):
        ids[number, : len(array)] = array
        mask[number, : len(array)] = 1
    return ids, mask


@dataclass(slots=True)
class Padding:
    """Running totals of the positions that batches had, and of those among them that held a token."""

    positions: int = 0
    tokens: int = 0

    def count(self, lengths: Sequence[int]) -> None:
        """Add a batch of sequences of these lengths."""
        self.positions += len(lengths) * max(lengths, default=0)
        self.tokens += sum(lengths)

    @property
    def share(self) -> float:
        """The share of all positions that held no token, in 0..1; 0 before the first batch."""
        return 1 - self.tokens / self.positions if self.positions else 0.0


def one_ahead(make: Callable[[Item], Made], items: Iterable[Item]) -> Iterator[Made]:
    """`make` of each item in order, the next one being made in another thread while the caller uses the last."""
    with ThreadPoolExecutor(max_workers=1) as helper:
        coming: Future[Made] | None = None
        for item in items:
            ready, coming = coming, helper.submit(make, item)
            if ready is not None:
                yield ready.result()
        if coming is not None:
            yield coming.result()
