"""Exact match and token F1 of short answers, normalised as SQuAD does (Rajpurkar et al., EMNLP 2016)."""

from __future__ import annotations

import re
import string
import unicodedata
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from corag_ray.evaluation.rouge import tokens
from corag_ray.evaluation.scripts import characters_apart, folded

SHORT_ANSWER_TOKENS = 10
_ARTICLES = re.compile(r"\b(a|an|the)\b")
_PUNCTUATION = frozenset(string.punctuation)


@dataclass(frozen=True, slots=True)
class AnswerScores:
    """Of one answer against its references, the best of each: exact match 0 or 1, token F1 in 0..1."""

    exact_match: float
    token_f1: float


def score_answer(prediction: str | None, references: Sequence[str]) -> AnswerScores | None:
    """Exact match and F1 of the tokens as a bag, the best reference counting for each on its own.

    Texts are folded as ROUGE folds them (NFKC and case); punctuation and the articles a, an, the go; blanks are evened
    out. Where a script writes no blanks between words, a character is a token of the bag; the script of CMRC 2018
    counts the longest common substring of the characters instead, so its F1 is another.

    Returns:
        None where ROUGE has nothing to measure either: there is no prediction, or no reference holds a token.
    """
    usable = [reference for reference in references if tokens(reference)]
    if prediction is None or not usable:
        return None
    return AnswerScores(
        max(float(normalise(prediction) == normalise(reference)) for reference in usable),
        max(_f1(answer_tokens(prediction), answer_tokens(reference)) for reference in usable),
    )


def are_short(references_by_question: Sequence[Sequence[str]]) -> bool:
    """Whether a set's answers are short enough for exact match and F1 to mean something.

    That is when half of the questions with answers have one of at most ten tokens: names and numbers, no sentences.
    """
    lengths = [min(len(answer_tokens(text)) for text in texts) for texts in references_by_question if texts]
    return bool(lengths) and median(lengths) <= SHORT_ANSWER_TOKENS


def normalise(text: str) -> str:
    """A text as exact match compares it.

    >>> normalise("The  Eiffel Tower!")
    'eiffel tower'
    """
    kept = "".join(sign for sign in folded(text) if not _is_punctuation(sign))
    return " ".join(_ARTICLES.sub(" ", kept).split())


def answer_tokens(text: str) -> list[str]:
    """The tokens of a normalised text: words, and single characters of scripts without blanks."""
    found: list[str] = []
    for word in normalise(text).split():
        found += [word] if word.isascii() else characters_apart(word)
    return found


def _is_punctuation(sign: str) -> bool:
    return sign in _PUNCTUATION if sign.isascii() else unicodedata.category(sign).startswith("P")


def _f1(prediction: Sequence[str], reference: Sequence[str]) -> float:
    if not prediction or not reference:  # as SQuAD: two empty texts agree, an empty and another do not
        return float(prediction == reference)
    shared = sum((Counter(prediction) & Counter(reference)).values())
    return 2.0 * shared / (len(prediction) + len(reference))
