"""The cross-encoders that come with the package, each as its difference from packaged weights (`low_rank.py`)."""

from __future__ import annotations

import hashlib
import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from corag_ray.errors import MissingModelError
from corag_ray.models.packaged import MINILM, PackagedModel, cache_folder, made_once

if TYPE_CHECKING:
    import torch

WEIGHTS = Path(__file__).with_name("weights")
"""A folder a reranker: its difference, and the card that says what it learned from and how well it does."""
DIFFERENCE, CARD = "difference.safetensors", "README.md"
CHECKPOINT = "model.safetensors"
COPIED = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json")
WINDOW_TOKENS = 512
"""Positions of the model that they all began with."""


@dataclass(frozen=True, slots=True)
class PackagedReranker:
    """A cross-encoder that was trained from the encoder of `base`, a BERT."""

    name: str
    base: PackagedModel = MINILM

    @property
    def source(self) -> Path:
        """The file that holds its difference."""
        return WEIGHTS / self.name / DIFFERENCE

    @property
    def revision(self) -> str:
        """Tells its weights from any others: the base's package and the content of the difference."""
        content = hashlib.sha256(self.source.read_bytes()).hexdigest()[:12]
        return f"{self.base.revision} {self.name} {content}"

    @property
    def target(self) -> Path:
        """Where the whole checkpoint lies once it has been put together."""
        return cache_folder(self.revision)

    @property
    def state(self) -> str:
        """`yes`, or `at first use` (to be put together)."""
        return "yes" if _is_whole(self.target) else "at first use"

    def folder(self) -> Path:
        """The whole checkpoint, as transformers and FlagEmbedding load any other; put together at first use.

        Raises:
            MissingModelError: the package of the base is not installed, the difference is not there, or the cache
                folder cannot be written.
        """
        base = self.base.folder()
        if not self.source.is_file():
            raise MissingModelError(f"the package lacks the weights of '{self.name}': install corag_ray again.")
        return made_once(self.target, _is_whole, lambda target: self._write(base, target))

    def _write(self, base: Path, target: Path) -> None:
        from safetensors.torch import load_file, save_file

        from corag_ray.models.low_rank import merged

        weights = merged(encoder_weights(base), load_file(self.source))
        for name in COPIED:
            if (base / name).is_file():
                shutil.copyfile(base / name, target / name)
        config = json.loads((base / "config.json").read_text("utf-8"))
        config |= {"architectures": ["BertForSequenceClassification"], "id2label": {"0": "LABEL_0"}}
        (target / "config.json").write_text(json.dumps(config, indent=2), encoding="utf-8")
        save_file(weights, target / CHECKPOINT, metadata={"format": "pt"})


def encoder_weights(base: Path) -> dict[str, torch.Tensor]:
    """An encoder's weights by the names that they have in a cross-encoder of its architecture."""
    from safetensors.torch import load_file

    return {f"bert.{name}": weight for name, weight in load_file(base / CHECKPOINT).items()}


def _is_whole(folder: Path) -> bool:
    return all((folder / name).is_file() for name in ("config.json", "tokenizer.json", CHECKPOINT))
