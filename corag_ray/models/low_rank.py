"""A fine-tuned model told by its difference from the model it began with, within a number of bytes.

Fine-tuning changes a weight matrix mostly in few directions (Aghajanyan et al., ACL 2021; LoRA: Hu et al., ICLR 2022).
The best approximation of its difference by a matrix of rank r is the truncated singular value decomposition (Eckart and
Young, 1936), of (rows + columns) * r numbers. Which matrix gets how many directions is chosen by what each tells, its
squared singular value, for the bytes that it takes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch

LEFT, RIGHT, ADDED = ".left", ".right", ".added"
"""What names of the told end with: a matrix's two factors, whose product is its difference, or a difference itself.

A tensor that the base lacks, or has in another shape, is told whole under its own name.
"""
STORED = torch.float16
"""Of factors and differences: 2 bytes and 11 bits, far more than what a low rank leaves out."""
NUMBER_BYTES = 2
HEADER_BYTES, FILE_BYTES = 120, 200
"""What a file of tensors takes for the type, shape and place of one, beside its name, and for itself, at most."""

Weights = Mapping[str, torch.Tensor]


class _Split(NamedTuple):
    """A matrix's difference, [m, n] = `left` [m, p] @ `right` [p, n], and p singular values, largest first."""

    left: torch.Tensor
    singular: torch.Tensor
    right: torch.Tensor

    @property
    def direction_bytes(self) -> int:
        """What one direction takes."""
        return NUMBER_BYTES * (self.left.shape[0] + self.right.shape[1])


def difference(base: Weights, trained: Weights, limit_bytes: int, whole: Sequence[str] = ()) -> dict[str, torch.Tensor]:
    """What turns `base` into `trained`, all but for what lies beyond the ranks that the limit allows.

    A changed matrix is told by two factors, except where its name begins with one of `whole`; any other difference is
    told in full, and whatever the base lacks or has in another shape or type of number as it is. Equal tensors are left
    out.

    Raises:
        ValueError: what is told in full takes more than the limit.
    """
    told: dict[str, torch.Tensor] = {}
    splits: dict[str, _Split] = {}
    for name, weight in trained.items():
        before = base.get(name)
        if before is None or before.shape != weight.shape or not weight.is_floating_point():
            if before is None or not torch.equal(before, weight):
                told[name] = weight.contiguous()
        elif not torch.equal(before, weight):
            change = weight.double() - before.double()
            if weight.ndim == 2 and not name.startswith(tuple(whole)):
                splits[name] = _split(change)
            else:
                told[name + ADDED] = change.to(STORED).contiguous()
    fixed = FILE_BYTES + sum(tensor.nbytes for tensor in told.values())
    fixed += sum(len(name) + HEADER_BYTES for name in [*told, *splits, *splits])
    if fixed > limit_bytes:
        raise ValueError(f"what is told in full takes {fixed:,} bytes, above the limit of {limit_bytes:,}")
    for name, rank in _ranks(splits, limit_bytes - fixed).items():
        left_vectors, singular, right_vectors = splits[name]
        root = singular[:rank].sqrt()
        told[name + LEFT] = (left_vectors[:, :rank] * root).to(STORED).contiguous()
        told[name + RIGHT] = (root[:, None] * right_vectors[:rank]).to(STORED).contiguous()
    return told


def _split(change: torch.Tensor) -> _Split:
    return _Split(*torch.linalg.svd(change, full_matrices=False))


def _ranks(splits: Mapping[str, _Split], limit_bytes: int) -> dict[str, int]:
    """How many directions of a matrix are told, if any: those of the highest squared value a byte come first.

    A direction so weak that the rounding of its matrix's strongest is as large is never told.
    """
    ranks: dict[str, int] = {}
    directions = [
        (value * value / split.direction_bytes, name)
        for name, split in splits.items()
        for value in split.singular.tolist()
        if value > split.singular[0] * torch.finfo(STORED).eps
    ]
    for _, name in sorted(directions, reverse=True):
        if splits[name].direction_bytes <= limit_bytes:
            limit_bytes -= splits[name].direction_bytes
            ranks[name] = ranks.get(name, 0) + 1
    return ranks


def merged(base: Weights, told: Weights) -> dict[str, torch.Tensor]:
    """`base` with the difference added, in float32; tensors of whole numbers stay as they are.

    Raises:
        KeyError: what is to be changed is not in the base, or one of two factors is missing.
        RuntimeError: it has another shape there.
    """
    weights = {name: weight.float() if weight.is_floating_point() else weight for name, weight in base.items()}
    for name, value in told.items():
        if name.endswith(LEFT):
            matrix = name.removesuffix(LEFT)
            product = value.double() @ told[matrix + RIGHT].double()  # alike on all machines, but for rare roundings
            weights[matrix] = (weights[matrix].double() + product).float()
        elif name.endswith(ADDED):
            changed = name.removesuffix(ADDED)
            weights[changed] = (weights[changed].double() + value.double()).float()
        elif not name.endswith(RIGHT):
            weights[name] = value.float() if value.is_floating_point() else value
    return weights


def share_told(base: Weights, trained: Weights, told: Weights) -> float:
    """How much of the squared difference of all weights that the base has too is told; 1 where there is none."""
    result = merged(base, told)
    whole = left_out = 0.0
    for name, weight in trained.items():
        if name in base and base[name].shape == weight.shape:
            whole += float((weight.double() - base[name].double()).square().sum())
            left_out += float((weight.double() - result[name].double()).square().sum())
    return 1.0 if whole == 0 else 1 - left_out / whole
