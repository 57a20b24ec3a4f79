"""Tokenises texts on their own with a model's tokenizer: all of them, as text, nothing cut and nothing added."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import tokenizers
from tokenizers import Tokenizer

from corag_ray.errors import ConfigError
from corag_ray.models.protocols import IdArray
from corag_ray.models.torch_setup import go_offline

FORMAT_VERSION = 2
"""Raised whenever the same tokenizer's ids of a text are made otherwise here: those stored before no longer count."""

_SURROGATE = re.compile("[\\ud800-\\udfff]")


def without_surrogates(text: str) -> str:
    """The text with U+FFFD for every surrogate: UTF-8 has no bytes for one, so a tokenizer refuses the whole text."""
    return _SURROGATE.sub("\N{REPLACEMENT CHARACTER}", text)


@dataclass(frozen=True, slots=True)
class ChunkTokenizer:
    """A tokenizer that cuts nothing, fills nothing up and reads `[SEP]` in a text as text: it closes nothing.

    `key` tells it from every other that can give a text other ids: a hash of the whole tokenizer, of the `tokenizers`
    library's version and of `FORMAT_VERSION`. Every text is read behind `lead`, whose `lead_tokens` ids are left out.
    """

    key: str
    tokenizer: Tokenizer
    as_text: Mapping[int, int] = field(default_factory=dict)
    """What is read in place of a special token's id: a Unigram vocabulary holds `</s>` as a piece like any other."""
    lead: str = ""
    lead_tokens: int = 0

    @classmethod
    def load(cls, folder: Path) -> ChunkTokenizer | None:
        """That of a checkpoint folder, as transformers makes it and so as the model's own loading has it.

        `tokenizer.json` alone does not tell: of classes that transformers 5 knows, BERT's among them, it takes the
        vocabulary from there and makes normaliser and pre-tokenizer by `tokenizer_config.json`. None where the folder
        names code of its own for the tokenizer, which is never run here, or where it is none of the `tokenizers`
        library: then texts are tokenised by the scorer alone.

        Raises:
            ConfigError: transformers cannot load it.
        """
        go_offline()
        from transformers import AutoTokenizer  # seconds

        try:
            if _names_code(folder):
                return None
            # Without a word on code, transformers asks on the terminal.
            loaded = AutoTokenizer.from_pretrained(str(folder), local_files_only=True, trust_remote_code=False)
            backend = getattr(loaded, "backend_tokenizer", None)
            return cls.like(backend) if isinstance(backend, Tokenizer) else None
        except Exception as error:  # tokenizers raises nothing narrower
            reason = str(error)[:200]
            raise ConfigError(f"{folder} holds no tokenizer that transformers can load: {reason}") from error

    @classmethod
    def like(cls, tokenizer: Tokenizer) -> ChunkTokenizer:
        """A copy of a tokenizer that another library goes on changing."""
        copy = Tokenizer.from_str(tokenizer.to_str())
        copy.no_truncation()
        copy.no_padding()
        copy.encode_special_tokens = True
        return cls(_key(copy), copy, _as_text(copy))

    def behind_a_blank(self) -> ChunkTokenizer:
        """One that gives a text the ids that it has behind a word and a blank; itself where those are the text's own.

        They are not where a word's first token carries the blank before it, as in BPE over bytes, which reads `a b` as
        `a`, `Ġb`, nor where a blank is a token. Seen on the letter a, alone and twice; where the first of two has other
        ids than alone, words depend on their neighbours and no text's ids can be told: itself.
        """
        own, two = (self.tokenizer.encode(text, add_special_tokens=False).ids for text in ("a", "a a"))
        if two == own * 2 or two[: len(own)] != own or len(two) < 2 * len(own):
            return self
        return replace(self, key=f"{self.key}-later", lead="a ", lead_tokens=len(own))

    def ids(self, texts: Sequence[str]) -> list[IdArray]:
        """The token ids of each text, special tokens left out; U+FFFD stands for lone surrogates."""
        clean = [self.lead + without_surrogates(text) for text in texts]
        found = self.tokenizer.encode_batch_fast(clean, add_special_tokens=False)
        return [
            np.array([self.as_text.get(i, i) for i in encoding.ids[self.lead_tokens :]], dtype=np.int32)
            for encoding in found
        ]


def _names_code(folder: Path) -> bool:
    """Whether the folder names classes of its own in the place where transformers looks for a tokenizer's."""
    path = folder / "tokenizer_config.json"
    return path.is_file() and "auto_map" in json.loads(path.read_text("utf-8"))


def _as_text(tokenizer: Tokenizer) -> dict[int, int]:
    """From the ids of special tokens to that of an unknown piece, where texts can have them: in Unigram alone."""
    model = json.loads(tokenizer.to_str())["model"]
    if model["type"] != "Unigram" or model.get("unk_id") is None:
        return {}
    special = (number for number, token in tokenizer.get_added_tokens_decoder().items() if token.special)
    return dict.fromkeys(special, int(model["unk_id"]))


def _key(tokenizer: Tokenizer) -> str:
    """16 hex digits of a SHA-256."""
    whole = f"{FORMAT_VERSION}\n{tokenizers.__version__}\n{tokenizer.to_str()}"
    return hashlib.sha256(whole.encode()).hexdigest()[:16]
