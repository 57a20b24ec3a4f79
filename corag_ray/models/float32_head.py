"""A cross-encoder's number type: its encoder computes in bfloat16 where asked, its head in float32 always."""

from __future__ import annotations

from typing import Any

import torch


def compute_in(model: torch.nn.Module, dtype: str) -> None:
    """Bring what a checkpoint stores of a float32 model into `dtype`, in place, but for the head.

    A logit in bfloat16 has steps of 0.03 between 4 and 8 and of 0.06 up to 16, more than searches tell scores apart by.
    So the head keeps its weights and is handed the encoder's states in float32. The head is all of a model that is not
    its encoder (`base_model` of transformers), and the encoder's pooler; a model that names no encoder has none.
    Tensors that no checkpoint stores, as tables of positions, stay in the type that they were made in.
    """
    if dtype == "float32":
        return
    parts = _head(model)
    kept = {id(tensor) for part in parts for tensor in _stored(part)}
    for tensor in _stored(model):
        if tensor.is_floating_point() and id(tensor) not in kept:
            tensor.data = tensor.data.to(getattr(torch, dtype))
    for part in parts:
        part.register_forward_pre_hook(_in_float32, with_kwargs=True)


def _head(model: torch.nn.Module) -> list[torch.nn.Module]:
    encoder = getattr(model, "base_model", model)
    if encoder is model:
        return []
    pooler = getattr(encoder, "pooler", None)
    parts = [child for child in model.children() if child is not encoder]
    return [*parts, pooler] if isinstance(pooler, torch.nn.Module) else parts


def _stored(module: torch.nn.Module) -> list[torch.Tensor]:
    """Weights and the buffers that a checkpoint stores beside them, themselves and not their copies."""
    return [*module.state_dict(keep_vars=True).values()]


def _in_float32(
    _: torch.nn.Module, positional: tuple[Any, ...], named: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    return tuple(map(_raised, positional)), {name: _raised(value) for name, value in named.items()}


def _raised(value: Any) -> Any:
    return value.float() if isinstance(value, torch.Tensor) and value.is_floating_point() else value
