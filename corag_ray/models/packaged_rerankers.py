"""The cross-encoders that come with the package, each as its difference from packaged weights (`low_rank.py`).

Each is an expert in one kind of question. Its whole checkpoint, 90 MB, is put together at first use, in the cache of
the machine that needs it.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from corag_ray.errors import DataError, MissingModelError
from corag_ray.models.calibration import Calibration, load_calibration
from corag_ray.models.checkpoint_config import weights_hash
from corag_ray.models.combination_weights import CURVES
from corag_ray.models.packaged import MINILM, PackagedModel, cache_folder, made_once

if TYPE_CHECKING:
    import torch

DIFFERENCE = "difference.safetensors"
"""Its metadata name the `BASE` that it is the difference from, by revision."""
BASE = "base"
CHECKPOINT = "model.safetensors"
COPIED = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json")
"""Files of the base that are the cross-encoder's as well, where the base has them."""
WHOLE = ".whole"
"""Written last into a checkpoint that is put together: the hash of its files, which tells whether it still is."""


@dataclass(frozen=True, slots=True)
class PackagedReranker:
    """A cross-encoder that was trained from the encoder of `base`, a BERT.

    Attributes:
        name: in configurations.
        purpose: the kind of questions that it is for.
        home: folder of its difference, card and curve, made by `jobs.pack_reranker`.
        base: whose weights the difference is added to.
    """

    name: str
    purpose: str
    home: Path
    base: PackagedModel = MINILM

    @property
    def revision(self) -> str:
        """Tells its weights from any others': the base's package and the content of the difference.

        Raises:
            MissingModelError: the package of the base is not installed, or the difference is not there.
        """
        if not (self.home / DIFFERENCE).is_file():
            raise MissingModelError(
                f"there are no weights of '{self.name}' in {self.home}: install a corag_ray that has them, or make "
                "some with `python -m jobs.train_reranker` and "
                f"`python -m jobs.pack_reranker --model FOLDER --name {self.name}`."
            )
        self.base.check_installed()
        content = hashlib.sha256((self.home / DIFFERENCE).read_bytes()).hexdigest()[:16]
        return f"{self.base.revision} {self.name} {content}"

    @property
    def state(self) -> str:
        """`yes`, `at first use` (to be put together), `no weights`, or the command that installs the base's package."""
        if not (self.home / DIFFERENCE).is_file():
            return "no weights"
        if self.base.revision is None:
            return self.base.state
        return "yes" if _is_whole(cache_folder(self.revision)) else "at first use"

    def calibration(self) -> Calibration | None:
        """The curve that was fitted for these very weights; None where there is none.

        Raises:
            MissingModelError: there are no weights.
            DataError: the file of curves is damaged.
        """
        curves = self.home / CURVES
        return load_calibration(self.name, self.revision, curves) if curves.is_file() else None

    def folder(self) -> Path:
        """The whole checkpoint, as transformers and FlagEmbedding load any other; put together at first use.

        Raises:
            MissingModelError: the package of the base is not installed, the difference is not there, or the cache
                folder cannot be written.
            DataError: the difference is damaged, or one from another base.
        """
        return made_once(cache_folder(self.revision), _is_whole, self._write)

    def _write(self, target: Path) -> None:
        from safetensors.torch import save

        from corag_ray.models.low_rank import merged

        base, told = self.base.folder(), self._told()
        try:
            weights = merged(encoder_weights(base), told)
        except (KeyError, RuntimeError) as error:
            raise DataError(f"{self.home / DIFFERENCE} is no difference from {self.base.revision}: {error}.") from error
        for name in COPIED:
            if (base / name).is_file():
                shutil.copyfile(base / name, target / name)
        config = json.loads((base / "config.json").read_text("utf-8"))
        config |= {"architectures": ["BertForSequenceClassification"], "id2label": {"0": "LABEL_0"}}
        (target / "config.json").write_text(json.dumps(config, indent=2), encoding="utf-8")
        content = save(weights, metadata={"format": "pt"})
        (target / CHECKPOINT).write_bytes(content)  # by Python, whose error tells a full disk from other failures
        (target / WHOLE).write_text(weights_hash(target), encoding="utf-8")

    def _told(self) -> dict[str, torch.Tensor]:
        """The difference, as `merged` takes it."""
        from safetensors import SafetensorError, safe_open

        path = self.home / DIFFERENCE
        try:
            with safe_open(str(path), framework="pt") as file:
                base = (file.metadata() or {}).get(BASE)
                told = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (no mapping)
        except SafetensorError as error:
            raise DataError(f"{path} is damaged ({error}): install corag_ray again.") from error
        if base != self.base.revision:
            raise DataError(f"{path} is the difference from {base}, and {self.base.revision} is installed.")
        return told


def encoder_weights(base: Path) -> dict[str, torch.Tensor]:
    """An encoder's weights by the names that they have in a cross-encoder of its architecture."""
    from safetensors.torch import load_file

    return {f"bert.{name}": weight for name, weight in load_file(base / CHECKPOINT).items()}


def _is_whole(folder: Path) -> bool:
    """Whether no file of a checkpoint that was put together is missing, cut short or another since."""
    try:
        return (folder / WHOLE).read_bytes() == weights_hash(folder).encode()
    except OSError:
        return False


WEIGHTS = Path(__file__).with_name("weights")
PACKAGED_RERANKERS: Mapping[str, PackagedReranker] = {
    name: PackagedReranker(name, purpose, WEIGHTS / name)
    for name, purpose in (
        ("passage_facts", "facts: who, when, where, how many"),
        ("passage_explanations", "explanations: what, how, why"),
    )
}
"""By name; a folder `weights/NAME` each."""
