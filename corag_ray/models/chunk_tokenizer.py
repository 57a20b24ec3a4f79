"""Tokenises texts on their own with a model's tokenizer: all of them, as text, nothing cut and nothing added."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer

from corag_ray.errors import ConfigError
from corag_ray.models.protocols import IdArray

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
    """A tokenizer that cuts nothing, fills nothing up and reads `[SEP]` in a text as text: it closes nothing.

    `key` is `tokenizer_key` of where it comes from; empty where that is no folder.
    """

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
        return cls(str(tokenizer_key(folder)), _reading_all(tokenizer))

    @classmethod
    def like(cls, tokenizer: Tokenizer) -> ChunkTokenizer:
        """A copy of a tokenizer that another library goes on changing."""
        return cls("", _reading_all(Tokenizer.from_str(tokenizer.to_str())))

    def ids(self, texts: Sequence[str]) -> list[IdArray]:
        """The token ids of each text, special tokens left out; U+FFFD stands for lone surrogates."""
        clean = [without_surrogates(text) for text in texts]
        found = self.tokenizer.encode_batch_fast(clean, add_special_tokens=False)
        return [np.array(encoding.ids, dtype=np.int32) for encoding in found]


def _reading_all(tokenizer: Tokenizer) -> Tokenizer:
    tokenizer.no_truncation()
    tokenizer.no_padding()
    tokenizer.encode_special_tokens = True
    return tokenizer
