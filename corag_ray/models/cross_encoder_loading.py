"""Loads a sequence-classification checkpoint with FlagEmbedding, and refuses what cannot rerank."""

from __future__ import annotations

import importlib.metadata
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from corag_ray.errors import ConfigError, MissingModelError
from corag_ray.models.torch_setup import Compute


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A cross-encoder, loaded: `model` gives one logit for what `tokenizer` makes of a pair, up to `max_tokens`."""

    model: torch.nn.Module
    tokenizer: Any
    max_tokens: int


def load_checkpoint(
    folder: Path, name: str, max_tokens: int, compute: Compute, remote_code: bool = False
) -> Checkpoint:
    """The checkpoint in a folder, in the number type of `compute`; `remote_code` lets it run the folder's own code.

    Raises:
        MissingModelError: FlagEmbedding is not installed.
        ConfigError: the folder holds no cross-encoder with one output, or one that cannot read `max_tokens`, or code
            that fails or that may not be run.
    """
    compute.apply()
    model, tokenizer = _load(folder, name, max_tokens, getattr(torch, compute.dtype), remote_code)
    if model.config.num_labels != 1:
        raise ConfigError(
            f"'{name}': the model in {folder} has {model.config.num_labels} outputs; "
            "a cross-encoder for reranking has one."
        )
    positions = _positions(model)
    if positions is not None and max_tokens > positions:
        raise ConfigError(
            f"'{name}': the model in {folder} reads at most {positions} tokens, so max_tokens cannot be {max_tokens}."
        )
    return Checkpoint(model.eval(), tokenizer, max_tokens)


def _load(folder: Path, name: str, max_tokens: int, dtype: torch.dtype, remote_code: bool) -> tuple[Any, Any]:
    """Model and tokenizer, by FlagEmbedding's class for encoders whatever the folder is called."""
    try:
        from FlagEmbedding import FlagAutoReranker
    except ModuleNotFoundError as error:
        raise MissingModelError("a cross-encoder needs FlagEmbedding: pip install 'corag_ray[rerankers]'.") from error
    # Code of another's can fail in any way: Jina's of 2024 imports what transformers 5 has no longer.
    failures: tuple[type[Exception], ...] = (Exception,) if remote_code else (OSError, ValueError, RuntimeError)
    try:
        loaded = FlagAutoReranker.from_finetuned(
            str(folder),
            model_class="encoder-only-base",  # without one, only folders called as on the hub are known
            use_fp16=False,
            trust_remote_code=remote_code,  # without one, transformers asks on the terminal
            devices="cpu",  # one by name: by default every visible one gets a process of its own
            max_length=max_tokens,
        )
        model = loaded.model.to(dtype)
        if remote_code:
            _make_lost_buffers(model, dtype)
    except failures as error:
        raise ConfigError(_failure(folder, name, remote_code, error)) from error
    return model, loaded.tokenizer


def _make_lost_buffers(model: Any, dtype: torch.dtype) -> None:
    """Put right the tensors that a checkpoint does not store, as tables of positions, in place.

    transformers 5 loads a model without memory behind its tensors and leaves these unset, unless the model's code was
    written for that; older code then computes with whatever lay there. A model made in the ordinary way has them.
    """
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        made = type(model)(model.config)
    finally:
        torch.set_default_dtype(before)
    for path, _ in list(model.named_non_persistent_buffers()):
        parent, _, leaf = path.rpartition(".")
        setattr(model.get_submodule(parent), leaf, made.get_buffer(path))


def _failure(folder: Path, name: str, remote_code: bool, error: Exception) -> str:
    """One sentence about a folder that does not load."""
    first_line = str(error).partition("\n")[0]
    if "ignore_mismatched_sizes" in str(error):
        return (
            f"'{name}': the weights in {folder} do not have the shapes of its config.json: if it names no labels, as "
            'Jina\'s v1 does, add `"id2label": {"0": "LABEL_0"}` there, which means one output.'
        )
    if remote_code:
        version = importlib.metadata.version("transformers")
        return f"'{name}': the code in {folder} fails with transformers {version}: {type(error).__name__}: {first_line}"
    return f"'{name}': {folder} holds no cross-encoder that transformers can load: {first_line}"


def _positions(model: torch.nn.Module) -> int | None:
    """How many tokens a model with learned positions can read; None where positions are computed, without a bound.

    RoBERTa and its kin begin to count after the number of the padding token, 1 as a rule: they read two fewer.
    """
    for name, table in model.named_modules():
        if name.endswith("position_embeddings") and isinstance(table, torch.nn.Embedding):
            return table.num_embeddings - (0 if table.padding_idx is None else table.padding_idx + 1)
    return None
