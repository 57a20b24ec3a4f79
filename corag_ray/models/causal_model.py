"""A causal language model loaded for the generator and for query likelihood alike."""

from __future__ import annotations

from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, PreTrainedModel

from corag_ray.models import grouped_attention
from corag_ray.models.torch_setup import Compute


def load_causal_model(folder: Path, compute: Compute) -> PreTrainedModel:
    """The model of a transformers folder, ready to read, with attention for grouped key heads."""
    compute.apply()
    model: PreTrainedModel = AutoModelForCausalLM.from_pretrained(
        folder,
        dtype=getattr(torch, compute.dtype),
        attn_implementation=grouped_attention.register(),
        local_files_only=True,
    )
    return model.eval()
