"""A fine-tuned model told by its difference from the model it began with, matrices at a low rank.

Fine-tuning changes a weight matrix mostly in few directions (Aghajanyan et al., ACL 2021; LoRA: Hu et al., ICLR 2022),
so the best approximation of its difference by a matrix of rank r, which is the truncated singular value decomposition
(Eckart and Young, 1936), says nearly all in (rows + columns) * r numbers.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch

LEFT, RIGHT = ".left", ".right"
"""What the names of a matrix's two factors end with: the difference is `left @ right`."""

Weights = Mapping[str, torch.Tensor]


def difference(base: Weights, trained: Weights, rank: int) -> dict[str, torch.Tensor]:
    """What turns `base` into `trained`, all but for what lies beyond the rank.

    A changed matrix [m, n] is told by two factors in bfloat16, [m, rank] and [rank, n]; any other changed tensor, and
    one that the base lacks or has in another shape, is told whole, in float32. Equal tensors are left out.
    """
    told: dict[str, torch.Tensor] = {}
    for name, weight in trained.items():
        before = base.get(name)
        if before is None or before.shape != weight.shape:
            told[name] = weight.float().contiguous()
        elif not torch.equal(before, weight):
            if weight.ndim == 2 and rank < min(weight.shape):
                left, singular, right = torch.linalg.svd(weight.double() - before.double(), full_matrices=False)
                root = singular[:rank].sqrt()
                told[name + LEFT] = (left[:, :rank] * root).to(torch.bfloat16).contiguous()
                told[name + RIGHT] = (root[:, None] * right[:rank]).to(torch.bfloat16).contiguous()
            else:
                told[name] = weight.float().contiguous()
    return told


def merged(base: Weights, told: Weights) -> dict[str, torch.Tensor]:
    """`base` with the difference added, in float32.

    Raises:
        KeyError: a matrix of the difference is none of the base.
    """
    weights = {name: weight.float() for name, weight in base.items()}
    for name, value in told.items():
        if name.endswith(LEFT):
            matrix = name.removesuffix(LEFT)
            weights[matrix] = weights[matrix] + value.float() @ told[matrix + RIGHT].float()
        elif not name.endswith(RIGHT):
            weights[name] = value.float()
    return weights


def share_told(base: Weights, trained: Weights, told: Weights) -> float:
    """How much of the matrices' difference, by its squared Frobenius norm, the factors tell; 1 without any."""
    result = merged(base, told)
    names = [name.removesuffix(LEFT) for name in told if name.endswith(LEFT)]
    whole = sum(float((trained[name] - base[name]).double().square().sum()) for name in names)
    left_out = sum(float((trained[name] - result[name]).double().square().sum()) for name in names)
    return 1.0 if whole == 0 else 1 - left_out / whole
