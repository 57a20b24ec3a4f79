"""The length of the longest common subsequence, thousands of table cells in one step."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

# Columns of the table that one integer holds; the masks of a block take at most 64 MiB.
_BLOCK = 32_768


def common_subsequence_length(a: Sequence[str], b: Sequence[str]) -> int:
    """How many tokens the longest common subsequence of two lists has.

    The same number as rouge-score's table, which takes hours and all memory for texts of a megabyte. Here an integer
    holds a row of the table, a bit set where it does not grow, and a row follows from the one above it by one sum
    (Hyyrö, "Bit-parallel LCS-length computation revisited", 2004); wide rows go in blocks that hand on their carries.
    """
    head = _equal_at_the_start(a, b)
    tail = _equal_at_the_start(a[head:][::-1], b[head:][::-1])
    a, b = a[head : len(a) - tail], b[head : len(b) - tail]
    carries = bytearray(len(a))
    return head + tail + sum(_grown(a, b[at : at + _BLOCK], carries) for at in range(0, len(b), _BLOCK))


def _grown(a: Sequence[str], block: Sequence[str], carries: bytearray) -> int:
    """What the columns of a block add to the length; `carries`, one a row, comes from the block before and goes on."""
    places: dict[str, int] = {}
    for column, token in enumerate(block):
        places[token] = places.get(token, 0) | 1 << column
    width = len(block)
    full = (1 << width) - 1
    flat = full
    for row, token in enumerate(a):
        matched = flat & places.get(token, 0)
        if matched or carries[row]:
            total = flat + matched + carries[row]
            carries[row] = total >> width
            flat = (total & full) | (flat ^ matched)
    return width - flat.bit_count()


def _equal_at_the_start(a: Sequence[str], b: Sequence[str]) -> int:
    return sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], zip(a, b, strict=False)))
