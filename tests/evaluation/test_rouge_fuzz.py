"""ROUGE over 12,000 random pairs in 12 scripts and over megabytes: rouge-score's values, 1 on itself, symmetric."""

from __future__ import annotations

import itertools
import random

import pytest
from rouge_score.rouge_scorer import RougeScorer

from corag_ray.evaluation.rouge import RougeScores, rouge, tokens

NAMES = ("rouge1", "rouge2", "rougeL")
STEMMING = RougeScorer(list(NAMES), use_stemmer=True)
PLAIN = RougeScorer(list(NAMES), use_stemmer=False)
PAIRS = 1000
MEGABYTE = 1_000_000

# Letters and marks of each script: few, so that words of two random texts meet.
ALPHABETS = {
    "ascii": "aabdeeginrsy'_-.09YING",
    "accented latin": "aàâçéèïñößœüİe\u0301o\u0308ﬁ",
    "greek": "αβγάέήίόσςΣΩώ",
    "cyrillic": "абвгдеёжйЁЖщыя",
    "arabic": "ابتثجحسعفقلم\u064e\u0651\u200c",
    "hebrew": "אבגדהוזחם\u05b0\u05b7",
    "devanagari": "कखगनमहिीे्द\u093c",
    "thai": "กขคงนมาิี่้เแ",
    "han": "东京是日本的首都𠀀々",
    "kana": "あいうカキｶﾞー゛ぱ",
    "hangul": "가나다한국어\u1100\u1161\u11a8",
    "khmer": "កខគងចា្ុំ",
}
ANYWHERE = ["😀", "👩\u200d🔬", "❤\ufe0f", "🇫🇷", "\ud800", "\udfff", "\u200b", "\u202e", "\x00", "﷽", "½", "!", "\n"]


def random_text(draw, alphabet, extras):
    words = ["".join(draw.choices(alphabet, k=draw.randint(1, 5))) for _ in range(draw.randint(0, 12))]
    words += draw.choices(extras, k=draw.randint(0, 2)) if extras else []
    draw.shuffle(words)
    return " ".join(words)


def random_pair(draw, alphabet, extras):
    """Two texts, the second half of the time the first with words dropped, doubled and moved."""
    first = random_text(draw, alphabet, extras)
    if draw.random() < 0.5:
        return first, random_text(draw, alphabet, extras)
    words = first.split(" ") + random_text(draw, alphabet, extras).split(" ")[:2]
    return first, " ".join(draw.choices(words, k=len(words)) if draw.random() < 0.5 else words[len(words) // 3 :])


def of_rouge_score(scorer, prediction, reference):
    scores = scorer.score(reference, prediction)
    return RougeScores(*(scores[name].fmeasure for name in NAMES))


@pytest.mark.parametrize("script", ALPHABETS)
def test_random_pairs_have_rouge_scores_values_and_are_symmetric_and_1_on_themselves(script):
    draw = random.Random(script)
    partly_alike = 0
    for _ in range(PAIRS):
        prediction, reference = random_pair(draw, ALPHABETS[script], [] if script == "ascii" else ANYWHERE)
        scores = rouge(prediction, [reference])
        predicted, expected = tokens(prediction), tokens(reference)
        if not expected:
            assert scores is None
            continue
        assert scores is not None
        # rouge-score sees no other script; of the same tokens under ASCII names it counts the same matches.
        names = {token: f"w{number}" for number, token in enumerate([*predicted, *expected])}
        renamed = (" ".join(names[token] for token in text) for text in (predicted, expected))
        assert scores == of_rouge_score(PLAIN, *renamed)
        if script == "ascii":
            assert scores == of_rouge_score(STEMMING, prediction, reference)
        if predicted:
            assert rouge(reference, [prediction]) == scores
        assert rouge(reference, [reference]) == RougeScores(1.0, 1.0 if len(expected) > 1 else 0.0, 1.0)
        partly_alike += 0 < scores.rougeL < 1
    assert partly_alike > PAIRS / 3


@pytest.mark.parametrize("text", ["\ud800", "x \udfff y", "😀", "\x00", "👩\u200d🔬 a", "\u0301", "\u202e"])
def test_odd_characters_break_nothing(text):
    assert rouge(text, ["a b"]) is not None
    scores = rouge(text, [text])
    assert scores is None if not tokens(text) else scores.rouge1 == scores.rougeL == 1.0


def test_two_texts_of_a_megabyte_are_scored():
    draw = random.Random(0)
    vocabulary = ["".join(draw.choices("bcdfghjklmnpqrtv", k=12)) for _ in range(3000)]
    text = draw.choices(vocabulary, k=MEGABYTE // 16)
    # The text with a strange word before each of its words.
    mixed = [word for pair in zip(itertools.repeat("zz"), text, strict=False) for word in pair]
    assert len(" ".join(mixed)) > 0.99 * MEGABYTE
    scores = rouge(" ".join(mixed), [" ".join(text)])
    assert scores is not None
    assert scores.rouge1 == scores.rougeL == pytest.approx(2 / 3)  # half of the one, all of the other, in order
    assert scores.rouge2 == 0.0


@pytest.mark.parametrize(
    "text",
    [
        "y" * MEGABYTE,
        "Ж" * (MEGABYTE // 2),  # one word
        "東京" * (MEGABYTE // 6),
        "a" + "\u0301\u0327" * (MEGABYTE // 4),  # one letter under marks that must be put in order
        "😀" * (MEGABYTE // 4) + " a b",
    ],
    ids=["y", "cyrillic", "han", "marks", "emoji"],
)
def test_a_megabyte_of_one_kind_scores_1_against_itself(text):
    scores = rouge(text, [text])
    assert scores is not None
    assert (scores.rouge1, scores.rougeL) == (1.0, 1.0)


def test_without_a_prediction_or_a_reference_nothing_is_measured():
    assert rouge(None, ["a"]) is None
    assert rouge("a", []) is None
    assert rouge("", [""]) is None
    assert rouge("", ["a"]) == RougeScores(0.0, 0.0, 0.0)
