"""Tokenises chunks on their own with a model's tokenizer, which is known by the content of its file."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from corag_ray.errors import ConfigError

TOKENIZER = "tokenizer.json"
_SURROGATE = re.compile("[\\ud800-\\udfff]")


def without_surrogates(text: str) -> str:
    """The text with U+FFFD for every surrogate: UTF-8 has no bytes for one, so a tokenizer refuses the whole text."""
    return _SURROGATE.sub("\N{REPLACEMENT CHARACTER}", text)


def tokenizer_key(folder: Path) -> str | None:
    """The first 16 hex digits of the SHA-256 of a checkpoint's `tokenizer.json`; None where it has none.

    Raises:
        ConfigError: it cannot be read.
    """
    try:
        return hashlib.sha256((folder / TOKENIZER).read_bytes()).hexdigest()[:16]
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise ConfigError(f"cannot read {folder / TOKENIZER}: {error.strerror or error}.") from error


@dataclass(frozen=True, slots=True)
class ChunkTokenizer:
    """A tokenizer that cuts nothing and fills nothing up; `key` is `tokenizer_key` of where it comes from."""

    key: str
    tokenizer: Tokenizer

    @classmethod
    def load(cls, folder: Path) -> ChunkTokenizer:
        """That of a checkpoint folder.

        Raises:
            ConfigError: its `tokenizer.json` is missing or cannot be read.
        """
        try:
            tokenizer = Tokenizer.from_file(str(folder / TOKENIZER))
        except Exception as error:  # tokenizers raises nothing narrower
            raise ConfigError(f"{folder / TOKENIZER} is no tokenizer that can be read: {str(error)[:200]}") from error
        tokenizer.no_truncation()
        tokenizer.no_padding()
        return cls(str(tokenizer_key(folder)), tokenizer)

    def ids(self, texts: Sequence[str]) -> list[NDArray[np.uint32]]:
        """The token ids of each text, no special tokens added."""
        clean = [without_surrogates(text) for text in texts]
        found = self.tokenizer.encode_batch_fast(clean, add_special_tokens=False)
        return [np.array(encoding.ids, dtype=np.uint32) for encoding in found]
