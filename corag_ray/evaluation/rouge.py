"""ROUGE of an answer against its references: rouge-score's own numbers for ASCII, and words of every script besides."""

from __future__ import annotations

import functools
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass

from rouge_score.rouge_scorer import RougeScorer
from rouge_score.tokenizers import DefaultTokenizer

# Blocks written without blanks between words: a word cannot be found without a dictionary, so each character counts.
_UNSPACED = (
    (0x0E00, 0x0EFF),  # Thai, Lao
    (0x1000, 0x109F),  # Myanmar
    (0x1780, 0x17FF),  # Khmer
    (0x2E80, 0x2FDF),  # Han radicals
    (0x3005, 0x312F),  # Han marks, Hiragana, Katakana, Bopomofo
    (0x31A0, 0x31FF),  # Bopomofo and Katakana extensions
    (0x3400, 0x4DBF),  # Han, extension A
    (0x4E00, 0x9FFF),  # Han
    (0xF900, 0xFAFF),  # Han, compatibility
    (0x1B000, 0x1B16F),  # Kana supplements
    (0x20000, 0x3FFFF),  # Han, extensions B and later
)
_ZERO_WIDTH_SPACE = "\u200b"


@dataclass(frozen=True, slots=True)
class RougeScores:
    """F1 of single words, word pairs and longest common subsequence, 0..1; named as rouge-score and the row log do."""

    rouge1: float
    rouge2: float
    rougeL: float


def rouge(prediction: str, references: Sequence[str]) -> RougeScores | None:
    """ROUGE F1 with Porter stemming, the best reference counting **for each measure on its own**.

    The maximum per measure is what rouge-score's `score_multi` and the common evaluation harnesses do, so numbers can
    be set beside published ones; rouge1 and rougeL may therefore come from different references.

    A text equal to its reference scores 1 (rouge2 needs two tokens; with one it is 0, as in rouge-score). A prediction
    without tokens scores 0.

    Returns:
        None when nothing can be measured: no reference holds a token.
    """
    usable = [reference for reference in references if tokens(reference)]
    if not usable:
        return None
    best = _scorer().score_multi(usable, prediction)
    return RougeScores(*(float(best[name].fmeasure) for name in ("rouge1", "rouge2", "rougeL")))


def tokens(text: str) -> list[str]:
    """The tokens that ROUGE counts: words, case-folded, stemmed where they are ASCII.

    ASCII text gives rouge-score's own tokens. Other text is NFKC-normalised; a word is a run of letters, digits and
    their combining marks; a character of an unspaced script (Han, kana, Thai, Lao, Khmer, Myanmar) is a token by
    itself, with its marks.

    >>> tokens("The cafés of 東京")
    ['the', 'cafés', 'of', '東', '京']
    """
    if text.isascii():
        return list(_ascii_tokenizer().tokenize(text))
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())
    found: list[str] = []
    for word in _words(folded):
        # An English word must stem alike whatever stands beside it, or `running` and `running, naïve` would not match.
        found.extend(_ascii_tokenizer().tokenize(word) if word.isascii() else [word])
    return found


def _words(text: str) -> list[str]:
    words: list[str] = []
    takes_letters = takes_marks = False  # whether the last word is still open to a letter, to a combining mark
    for character in text:
        category = unicodedata.category(character)
        if category == "Cf" and character != _ZERO_WIDTH_SPACE:
            continue  # joiners and soft hyphens stand inside words (Persian, Hindi) and are not seen
        if category[0] == "M":
            if takes_marks:
                words[-1] += character
        elif category[0] in "LN":
            single = _is_unspaced(character)
            if takes_letters and not single:
                words[-1] += character
            else:
                words.append(character)
            takes_letters, takes_marks = not single, True
        else:
            takes_letters = takes_marks = False
    return words


def _is_unspaced(character: str) -> bool:
    code = ord(character)
    return any(first <= code <= last for first, last in _UNSPACED)


class _WordTokenizer:
    """What RougeScorer asks for: an object with a `tokenize` method."""

    def tokenize(self, text: str) -> list[str]:
        return tokens(text)


@functools.cache
def _ascii_tokenizer() -> DefaultTokenizer:
    return DefaultTokenizer(use_stemmer=True)


@functools.cache
def _scorer() -> RougeScorer:
    return RougeScorer(["rouge1", "rouge2", "rougeL"], tokenizer=_WordTokenizer())
