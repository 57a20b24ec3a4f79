"""What a checkpoint's folder tells of itself before anything is loaded: a mistake costs a second, and not an index."""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import json
from pathlib import Path
from typing import Any

from corag_ray.errors import ConfigError, MissingModelError

LEARNED_POSITIONS = {"bert": 0, "electra": 0, "roberta": 2, "xlm-roberta": 2, "camembert": 2}
"""By architecture with learned positions, how many of them hold no token: RoBERTa's kin count from 2."""


NEEDS_FLAG_EMBEDDING = "a cross-encoder needs FlagEmbedding: pip install 'corag_ray[rerankers]'."


def check_flag_embedding_installed() -> None:
    """Refuse to begin what would end without the library that loads cross-encoders.

    Raises:
        MissingModelError: with the command that installs it.
    """
    if importlib.util.find_spec("FlagEmbedding") is None:
        raise MissingModelError(NEEDS_FLAG_EMBEDDING)


def configuration(folder: Path) -> dict[str, Any]:
    """The values of `config.json`; nothing where that cannot be read."""
    try:
        found = json.loads((folder / "config.json").read_text("utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def weights_hash(folder: Path) -> str:
    """Hash of a checkpoint's files at any depth, by name and content, but for hidden ones, which nothing loads."""
    digest = hashlib.sha256()
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        name = path.relative_to(folder)
        if not any(part.startswith(".") for part in name.parts):
            digest.update(name.as_posix().encode())
            status = path.stat()
            digest.update(_file_hash(path, status.st_size, status.st_mtime_ns))
    return digest.hexdigest()


@functools.cache
def _file_hash(path: Path, size: int, changed_ns: int) -> bytes:
    """Gigabytes are read once a process, and again when the file has been written since."""
    with path.open("rb") as content:
        return hashlib.file_digest(content, "sha256").digest()


def check_folder(name: str, folder: Path) -> None:
    """Refuse a folder that is none, or lacks what every checkpoint has.

    Raises:
        ConfigError: with what to do.
    """
    if not folder.is_dir():
        raise ConfigError(f"cross_encoders: '{name}': there is no folder {folder}.")
    missing = [] if (folder / "config.json").is_file() else ["config.json"]
    if not any([*folder.glob("*.safetensors"), *folder.glob("*.bin")]):
        missing.append("weights (*.safetensors)")
    if missing:
        raise ConfigError(
            f"cross_encoders: '{name}': {folder} holds no model, it lacks {' and '.join(missing)}: "
            "name the folder of a cross-encoder's checkpoint."
        )


def check_window(name: str, folder: Path, max_tokens: int) -> None:
    """Refuse a model that, by what it says of itself, cannot read `max_tokens` at once; others are left to loading.

    Raises:
        ConfigError: with how many it can.
    """
    found = configuration(folder)
    positions, unused = found.get("max_position_embeddings"), LEARNED_POSITIONS.get(str(found.get("model_type")))
    if isinstance(positions, int) and unused is not None and max_tokens > positions - unused:
        raise too_large_a_window(name, folder, positions - unused, max_tokens)


def too_large_a_window(name: str, folder: Path, positions: int, max_tokens: int) -> ConfigError:
    """The error for a `max_tokens` above what the model's positions can tell apart."""
    return ConfigError(
        f"'{name}': the model in {folder} reads at most {positions:,} tokens, so max_tokens cannot be {max_tokens:,}."
    )
