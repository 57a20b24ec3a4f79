"""Loads a sequence-classification checkpoint with FlagEmbedding, and refuses what cannot rerank."""

from __future__ import annotations

import importlib.metadata
from dataclasses import dataclass
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import torch
from safetensors import SafetensorError

from corag_ray.errors import ConfigError, MissingModelError
from corag_ray.models.checkpoint_config import NEEDS_FLAG_EMBEDDING, too_large_a_window
from corag_ray.models.lost_buffers import make_lost_buffers
from corag_ray.models.torch_setup import Compute

DAMAGED = (SafetensorError, UnpicklingError, EOFError)
"""What reading a file of weights raises that is cut short or is none."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A cross-encoder, loaded: `model` gives one logit for what `tokenizer` makes of a pair."""

    model: torch.nn.Module
    tokenizer: Any


def load_checkpoint(
    folder: Path, name: str, max_tokens: int, compute: Compute, remote_code: bool = False
) -> Checkpoint:
    """The checkpoint in a folder, its weights in float32; `remote_code` lets it run the folder's own code.

    Tensors that such code makes and no checkpoint stores are made in the number type of `compute`.

    Raises:
        MissingModelError: FlagEmbedding is not installed.
        ConfigError: the folder holds no cross-encoder with one output and all its weights, or one that cannot read
            `max_tokens`, or a tokenizer of another model or that pads on the left, or code that fails or that may not
            be run.
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
        raise too_large_a_window(name, folder, positions, max_tokens)
    _check_tokenizer(folder, name, model, tokenizer)
    return Checkpoint(model.eval(), tokenizer)


def _load(folder: Path, name: str, max_tokens: int, dtype: torch.dtype, remote_code: bool) -> tuple[Any, Any]:
    """Model and tokenizer, by FlagEmbedding's class for encoders whatever the folder is called."""
    try:
        from FlagEmbedding import FlagAutoReranker
    except ModuleNotFoundError as error:
        raise MissingModelError(NEEDS_FLAG_EMBEDDING) from error
    if (folder / "adapter_config.json").exists():  # its base is another folder, whose files and code nobody hashed
        raise ConfigError(
            f"'{name}': {folder} holds an adapter: merge it into its model, and name the result's folder."
        )
    try:
        missing = _missing_weights(folder, remote_code)
        if not missing:
            loaded = FlagAutoReranker.from_finetuned(
                str(folder),
                model_class="encoder-only-base",  # without one, only folders called as on the hub are known
                use_fp16=False,
                trust_remote_code=remote_code,  # without one, transformers asks on the terminal
                devices="cpu",  # one by name: by default every visible one gets a process of its own
                max_length=max_tokens,
            )
            model = loaded.model.to(torch.float32)
            if remote_code:
                make_lost_buffers(model, dtype)
            return model, loaded.tokenizer
    except Exception as error:  # as many kinds as libraries: of a file cut short, of a package that is not there
        raise ConfigError(_failure(folder, name, remote_code, error)) from error
    others = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
    raise ConfigError(
        f"'{name}': the weights in {folder} lack {missing[0]}{others}, which would be drawn at random: "
        "take a checkpoint that was trained to rerank."
    )


def _missing_weights(folder: Path, remote_code: bool) -> list[str]:
    """Names of the weights that transformers would draw at random, since the folder's files have none for them.

    Told by loading the model once without memory behind it: what a file's names mean is for transformers to say.
    """
    from transformers import AutoModelForSequenceClassification

    _, told = AutoModelForSequenceClassification.from_pretrained(
        str(folder), trust_remote_code=remote_code, device_map="meta", output_loading_info=True
    )
    return sorted(told["missing_keys"])


def _failure(folder: Path, name: str, remote_code: bool, error: Exception) -> str:
    """One sentence about a folder that does not load."""
    first_line = str(error).strip().partition("\n")[0]
    if isinstance(error, DAMAGED):
        return f"'{name}': the weights in {folder} are damaged, fetch them again: {type(error).__name__}: {first_line}"
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


def _check_tokenizer(folder: Path, name: str, model: Any, tokenizer: Any) -> None:
    """Refuse a tokenizer whose ids the model would read otherwise than they are meant, or not at all."""
    if getattr(tokenizer, "padding_side", "right") == "left":
        raise ConfigError(
            f"'{name}': the tokenizer in {folder} pads on the left, for a model that reads the last position: here "
            "shorter pairs are filled on the right, so its scores would depend on the company."
        )
    backend, vectors = getattr(tokenizer, "backend_tokenizer", None), _vectors(model)
    largest = max(backend.get_vocab(with_added_tokens=False).values(), default=0) if backend else 0
    if vectors is not None and largest >= vectors:
        raise ConfigError(
            f"'{name}': the model in {folder} knows {vectors} tokens and the tokenizer beside it {largest + 1}: "
            "they are not of one checkpoint."
        )


def _vectors(model: Any) -> int | None:
    """How many tokens a model has input vectors for; None where its code does not say."""
    try:
        return getattr(model.get_input_embeddings(), "num_embeddings", None)
    except (AttributeError, NotImplementedError):
        return None
