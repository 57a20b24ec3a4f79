"""The tensors that a checkpoint does not store, made anew for models whose code was written for older transformers."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.overrides import TorchFunctionMode


def make_lost_buffers(model: Any, dtype: torch.dtype) -> None:
    """Put right a model's tensors that a checkpoint does not store, as tables of positions, in place.

    transformers 5 loads a model without memory behind its tensors and leaves these unset, unless the model's code was
    written for that; older code then computes with whatever lay there. A second model made with `dtype` as the type of
    new tensors has them. Its weights, 1.2 GB for GTE's, get no memory; only where its code needs their values, or
    makes such a table of memory without values, they do, until the tables are taken.
    """
    lost = [path for path, _ in model.named_non_persistent_buffers()]
    if not lost:
        return
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        made = _made_again(model, lost)
    finally:
        torch.set_default_dtype(before)
    for path in lost:
        parent, _, leaf = path.rpartition(".")
        setattr(model.get_submodule(parent), leaf, made.get_buffer(path))


def _made_again(model: Any, lost: Sequence[str]) -> Any:
    """Another model of the same class, with true values in the tensors of these paths alone where that can be had."""
    with contextlib.suppress(Exception), _WithoutMemory():
        made = type(model)(model.config)
        if not any(made.get_buffer(path).is_meta for path in lost):
            return made
    return type(model)(model.config)


class _WithoutMemory(TorchFunctionMode):
    """`torch.empty`, which layers make their weights with, gives a tensor of shape and type alone."""

    def __torch_function__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        given = dict(kwargs or {})
        if func is torch.empty:
            given["device"] = "meta"
        return func(*args, **given)
