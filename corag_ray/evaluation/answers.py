"""Exact match and token F1 of short answers, normalised as SQuAD does (Rajpurkar et al., EMNLP 2016)."""

from __future__ import annotations

import re
import string
import unicodedata
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from corag_ray.evaluation.rouge import tokens

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_PUNCTUATION = frozenset(string.punctuation)


@dataclass(frozen=True, slots=True)
class AnswerScores:
    """Of one answer against its references, the best of each: exact match 0 or 1, token F1 in 0..1."""

    exact_match: float
    token_f1: float


def score_answer(prediction: str, references: Sequence[str]) -> AnswerScores | None:
    """Exact match and F1 of the tokens as a bag, the best reference counting for each on its own.

    Texts are lower-cased; punctuation and the articles a, an, the go; blanks are evened out. Where a script writes no
    blanks between words, a character is a token, as CMRC and DRCD count.

    Returns:
        None when there is no reference to measure against.
    """
    if not references:
        return None
    return AnswerScores(
        max(float(normalise(prediction) == normalise(reference)) for reference in references),
        max(_f1(answer_tokens(prediction), answer_tokens(reference)) for reference in references),
    )


def normalise(text: str) -> str:
    """A text as exact match compares it.

    >>> normalise("The  Eiffel Tower!")
    'eiffel tower'
    """
    kept = "".join(sign for sign in text.lower() if not _is_punctuation(sign))
    return " ".join(_ARTICLES.sub(" ", kept).split())


def answer_tokens(text: str) -> list[str]:
    """The tokens of a normalised text: words, and single characters of scripts without blanks."""
    return [
        token for word in normalise(text).split() for token in ([word] if word.isascii() else tokens(word) or [word])
    ]


def _is_punctuation(sign: str) -> bool:
    return sign in _PUNCTUATION if sign.isascii() else unicodedata.category(sign).startswith("P")


def _f1(prediction: Sequence[str], reference: Sequence[str]) -> float:
    if not prediction or not reference:  # as SQuAD: two empty texts agree, an empty and another do not
        return float(prediction == reference)
    shared = sum((Counter(prediction) & Counter(reference)).values())
    return 2.0 * shared / (len(prediction) + len(reference))
