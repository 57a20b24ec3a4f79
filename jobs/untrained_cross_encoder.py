"""A cross-encoder's checkpoint for jobs that measure anything but how well it ranks."""

from __future__ import annotations

from pathlib import Path

from corag_ray.config import Config
from corag_ray.names import EMBEDDERS


def untrained(folder: Path, config: Config) -> Path:
    """The embedder's checkpoint with a new head of one output, the same at every call."""
    from transformers import AutoModelForSequenceClassification, AutoTokenizer, set_seed

    set_seed(0)
    source = EMBEDDERS[config.embedder].folder()
    AutoModelForSequenceClassification.from_pretrained(source, num_labels=1).save_pretrained(folder)
    AutoTokenizer.from_pretrained(source).save_pretrained(folder)
    return folder
