"""Prompts as functions: from a question and the selected passages, in their order, to the user's turn."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Protocol


class Prompt(Protocol):
    """Renders the user's turn; the generator adds its chat template."""

    def __call__(self, question: str, passages: Sequence[str] | None, language: str) -> str:
        """The prompt; without passages (`None`) it has no information section, with `[]` an empty one."""
        ...


def numbered_passage(number: int, text: str) -> str:
    """One passage as every prompt renders it: its cost is counted on this."""
    return f"{number}. {text}\n"


_SEED_WORDS = {
    "en": ("User question: ", "Relevant information:"),
    "zh": ("用户查询：", "相关信息："),
    "es": ("Consulta del usuario: ", "Información relevante:"),
}


def seed(question: str, passages: Sequence[str] | None, language: str) -> str:
    """The paper's example: question, then numbered passages, in the question's language (English if unknown)."""
    asked, information = _SEED_WORDS[_known(language)]
    return _lines(f"{asked}{question}", information, passages)


_CONCISE_WORDS = {
    "en": ("Answer the question in one or two sentences, from the information given.", "Question: ", "Information:"),
    "zh": ("请根据所给信息，用一两句话回答问题。", "问题：", "信息："),
    "es": ("Responde a la pregunta en una o dos frases, según la información dada.", "Pregunta: ", "Información:"),
}


def concise(question: str, passages: Sequence[str] | None, language: str) -> str:
    """An instruction, the question, the numbered passages: small chat models answer it more to the point."""
    instruction, asked, information = _CONCISE_WORDS[_known(language)]
    return _lines(f"{instruction}\n{asked}{question}", information, passages)


_ABSTENTIONS = {"en": "unanswerable", "zh": "无法回答", "es": "sin respuesta"}
_OR_ABSTAIN_WORDS = {
    "en": "If the information does not hold the answer, write nothing but: ",
    "zh": "如果所给信息中没有答案，请只写：",
    "es": "Si la información no contiene la respuesta, escribe solamente: ",
}


def concise_or_abstain(question: str, passages: Sequence[str] | None, language: str) -> str:
    """As `concise`, with agreed words for when the information does not hold the answer; `abstains` knows them.

    That is the task of SQuAD 2.0 (Rajpurkar, Jia and Liang, "Know What You Don't Know", ACL 2018).
    """
    known = _known(language)
    instruction, asked, information = _CONCISE_WORDS[known]
    abstain = f"{_OR_ABSTAIN_WORDS[known]}{_ABSTENTIONS[known]}"
    return _lines(f"{instruction}\n{abstain}\n{asked}{question}", information, passages)


def abstains(prompt: str, answer: str, language: str) -> bool | None:
    """Whether the answer is what the prompt of this name agrees on for no answer; None where it agrees on nothing.

    Case and what stands around the words (punctuation, blanks) do not count. More words than the agreed ones are an
    answer: nothing is guessed from what they say.
    """
    if PROMPTS.get(prompt) is not concise_or_abstain:
        return None
    agreed = _ABSTENTIONS[_known(language)]
    return re.fullmatch(rf"[\W_]*{agreed}[\W_]*", answer, re.IGNORECASE) is not None


LANGUAGES = tuple(_SEED_WORDS)
"""Languages whose words every prompt knows; any other gets English words."""

PROMPTS: Mapping[str, Prompt] = {"seed": seed, "concise": concise, "concise_or_abstain": concise_or_abstain}


def _known(language: str) -> str:
    """The language whose words stand in the prompts, by the first subtag of a language tag; English if unknown.

    Its subtags may be joined as in the names of locales, too.

    >>> _known("zh-Hant"), _known("zh_CN"), _known("ES"), _known("de")
    ('zh', 'zh', 'es', 'en')
    """
    first = language.replace("_", "-").split("-")[0].lower()
    return first if first in LANGUAGES else "en"


def _lines(head: str, information: str, passages: Sequence[str] | None) -> str:
    if passages is None:
        return f"{head}\n"
    body = "".join(numbered_passage(n, text) for n, text in enumerate(passages, start=1))
    return f"{head}\n{information}\n{body}"
