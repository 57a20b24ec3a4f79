"""ROUGE of an answer against its references: rouge-score's own numbers for ASCII, and words of every script besides."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass

from rouge_score.rouge_scorer import RougeScorer
from rouge_score.scoring import fmeasure
from rouge_score.tokenizers import DefaultTokenizer

from corag_ray.evaluation.common_subsequence import common_subsequence_length
from corag_ray.evaluation.scripts import words


@dataclass(frozen=True, slots=True)
class RougeScores:
    """F1 of single words, word pairs and longest common subsequence, 0..1; named as rouge-score and the row log do."""

    rouge1: float
    rouge2: float
    rougeL: float


def rouge(prediction: str | None, references: Sequence[str]) -> RougeScores | None:
    """ROUGE F1 with Porter stemming, the best reference counting **for each measure on its own**.

    The maximum per measure is what rouge-score's `score_multi` and the common evaluation harnesses do, so numbers can
    be set beside published ones; rouge1 and rougeL may therefore come from different references.

    A text equal to its reference scores 1 (rouge2 needs two tokens; with one it is 0, as in rouge-score). A prediction
    without tokens scores 0.

    Returns:
        None when nothing can be measured: there is no prediction, or no reference holds a token.
    """
    usable = [found for found in map(tokens, references) if found]
    if prediction is None or not usable:
        return None
    predicted = tokens(prediction)
    best = _scorer().score_multi(usable, predicted)
    return RougeScores(
        float(best["rouge1"].fmeasure),
        float(best["rouge2"].fmeasure),
        max(_rouge_l(predicted, reference) for reference in usable),
    )


def tokens(text: str) -> list[str]:
    """The tokens that ROUGE counts: the words of `scripts.words`, stemmed where they are ASCII.

    ASCII text gives rouge-score's own tokens.

    >>> tokens("The cafés of 東京 opened")
    ['the', 'cafés', 'of', '東', '京', 'open']
    """
    if text.isascii():
        return list(_ascii_tokenizer().tokenize(text))
    found: list[str] = []
    for word in words(text):
        # An English word must stem alike whatever stands beside it, or `running` and `running, naïve` would not match.
        found.extend(_ascii_tokenizer().tokenize(word) if word.isascii() else [word])
    return found


def _rouge_l(prediction: Sequence[str], reference: Sequence[str]) -> float:
    if not prediction:
        return 0.0
    length = common_subsequence_length(prediction, reference)
    return float(fmeasure(length / len(prediction), length / len(reference)))


class _Tokens:
    """What RougeScorer asks for, where each text is handed over as its tokens already."""

    def tokenize(self, found: list[str]) -> list[str]:
        return found


@functools.cache
def _ascii_tokenizer() -> DefaultTokenizer:
    return DefaultTokenizer(use_stemmer=True)


@functools.cache
def _scorer() -> RougeScorer:
    return RougeScorer(["rouge1", "rouge2"], tokenizer=_Tokens())
