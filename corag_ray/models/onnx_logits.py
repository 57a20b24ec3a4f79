"""A cross-encoder's forward pass in int8 by ONNX Runtime: exported and quantised once, then read from the cache."""

from __future__ import annotations

import hashlib
import importlib.metadata
import importlib.util
import json
import logging
import os
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import platformdirs

from corag_ray.errors import ConfigError, MissingModelError

if TYPE_CHECKING:
    import torch

    from corag_ray.models.pair_logits import Forward

PACKAGES = ("onnxruntime", "onnx")
"""What the extra `onnx` installs; their versions can change a score."""
INSTALL_COMMAND = "pip install 'corag_ray[onnx]'"
EXPORT_VERSION = 1
"""Raised whenever the same checkpoint would become another file."""
FATAL_ALONE = 4
"""ONNX Runtime's log: what it writes of lesser failures, in colours, stands in the exception as well."""

_log = logging.getLogger(__name__)


def check_onnx_installed(name: str) -> None:
    """Refuse the cross-encoder `name` where a package that int8 needs is not there.

    Raises:
        MissingModelError: with the command that installs it.
    """
    for package in PACKAGES:
        if importlib.util.find_spec(package) is None:
            raise MissingModelError(
                f"'{name}': backend onnx_int8 needs '{package}', which is not installed: {INSTALL_COMMAND}."
            )


def int8_forward(model: torch.nn.Module, name: str, arguments: Sequence[str], key: str, threads: int) -> Forward:
    """The forward pass of a float32 model of one output, its matrices in int8, on so many threads.

    `arguments` are those that the model is called with, `key` is the hash of the files that it was loaded from. The
    weights of a layer have one scale an output; a layer's inputs are scaled by their own range, which is that of all
    that is read at once: a score is independent of company only where each input goes alone.

    Raises:
        MissingModelError: a package is not installed, or the cache folder cannot be written.
        ConfigError: the model cannot be exported, or the file in the cache is damaged.
    """
    check_onnx_installed(name)
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")  # see SLEEPING_THREADS
    options.log_severity_level = FATAL_ALONE
    file = _cached(model, name, arguments, key)
    try:
        session = onnxruntime.InferenceSession(str(file), options, providers=["CPUExecutionProvider"])
    except Exception as error:  # ONNX Runtime's own kinds, which have no base but this
        raise ConfigError(
            f"'{name}': {file} cannot be read ({_kind_and_reason(error)}): delete it, and it is made again."
        ) from error

    def forward(batch: Mapping[str, torch.Tensor]) -> list[float]:
        [logits] = session.run(None, {argument: tensor.numpy() for argument, tensor in batch.items()})
        found: list[float] = logits.tolist()
        return found

    return forward


def _cached(model: torch.nn.Module, name: str, arguments: Sequence[str], key: str) -> Path:
    """The quantised model's file: made under a temporary name and renamed, so that no process sees half of it.

    Where two processes make it at once, the first to end puts it in place, and both read it.
    """
    versions = [importlib.metadata.version(package) for package in ("torch", "transformers", *PACKAGES)]
    parts = [EXPORT_VERSION, key, *arguments, *versions]
    digest = hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]
    target = platformdirs.user_cache_path("corag_ray") / f"onnx-int8-{digest}.onnx"
    if target.is_file():
        return target
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=target.parent, prefix=f".{target.stem}-") as scratch:
            _log.info("'%s' is quantised to int8, once, into %s", name, target)
            made = _made(model, name, arguments, Path(scratch))
            if not target.is_file():
                os.replace(made, target)
    except OSError as error:
        raise MissingModelError(
            f"cannot keep a model in {target.parent} ({error.strerror or error}): "
            "set XDG_CACHE_HOME to a folder that can be written and has room."
        ) from error
    return target


def _made(model: torch.nn.Module, name: str, arguments: Sequence[str], folder: Path) -> Path:
    from corag_ray.models.onnx_export import export_float32, quantise

    exported, made = folder / "float32.onnx", folder / "int8.onnx"
    try:
        export_float32(model, arguments, exported)
        quantise(exported, made)
    except OSError:
        raise
    except Exception as error:  # the exporter raises whatever a model's own code does when it is traced
        raise ConfigError(
            f"'{name}': the model cannot be exported for backend onnx_int8, take torch ({_kind_and_reason(error)})."
        ) from error
    return made


def _kind_and_reason(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}"
