"""Words and characters of every script: where words end, and which scripts write none apart."""

from __future__ import annotations

import unicodedata

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
_JOINER = "\N{COMBINING GRAPHEME JOINER}"
_MARKS_IN_A_ROW = 30  # UAX #15, stream-safe text
_GAP = "\n"  # is in no word


def words(text: str) -> list[str]:
    """The words of a text, case-folded and NFKC-normalised: runs of letters, digits and their combining marks.

    A character of an unspaced script (Han, kana, Thai, Lao, Khmer, Myanmar) is a word by itself, with its marks.

    >>> words("The cafés of 東京")
    ['the', 'cafés', 'of', '東', '京']
    """
    pieces: list[str] = []  # joined once at the end: a word grown piece by piece takes the square of its length
    takes_letters = takes_marks = False  # whether the last word is still open to a letter, to a combining mark
    for character in folded(text):
        category = unicodedata.category(character)
        if category[0] == "M":
            if takes_marks:
                pieces.append(character)
        elif category[0] in "LN":
            single = _is_unspaced(character)
            if single or not takes_letters:
                pieces.append(_GAP)
            pieces.append(character)
            takes_letters, takes_marks = not single, True
        else:
            takes_letters = takes_marks = False
    return "".join(pieces).split(_GAP)[1:]


def folded(text: str) -> str:
    """A text as words are compared: NFKC-normalised, case-folded, without signs that are not seen.

    >>> folded("Cafe\u0301 １２, co\u00adop")
    'café 12, coop'
    """
    if text.isascii():
        return text.lower()  # the same, at once
    normal = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", _stream_safe(text)).casefold())
    # Joiners and soft hyphens stand inside words (Persian, Hindi); the zero-width space parts them.
    parted = normal.replace(_ZERO_WIDTH_SPACE, " ")
    return "".join(character for character in parted if unicodedata.category(character) != "Cf")


def characters_apart(word: str) -> list[str]:
    """A word cut at the characters of unspaced scripts, each of them with its marks; nothing else is changed.

    >>> characters_apart("2020年元旦!")
    ['2020', '年', '元', '旦', '!']
    """
    pieces: list[str] = []
    was_single = False
    for character in word:
        is_mark = unicodedata.category(character)[0] == "M"
        single = was_single if is_mark else _is_unspaced(character)
        if (single or was_single) and not is_mark:
            pieces.append(_GAP)
        pieces.append(character)
        was_single = single
    return [piece for piece in "".join(pieces).split(_GAP) if piece]


def _is_unspaced(character: str) -> bool:
    code = ord(character)
    return code >= _UNSPACED[0][0] and any(first <= code <= last for first, last in _UNSPACED)


def _stream_safe(text: str) -> str:
    """The text with a joiner after every 30 combining marks in a row: to order a longer run takes its square."""
    pieces: list[str] = []
    row = 0
    for character in text:
        row = row + 1 if unicodedata.combining(character) else 0
        pieces.append(character)
        if row == _MARKS_IN_A_ROW:
            pieces.append(_JOINER)
            row = 0
    return "".join(pieces)
