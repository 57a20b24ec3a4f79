"""Prompts as functions: from a question and the selected passages, in their order, to the user's turn."""

from __future__ import annotations

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
    asked, information = _SEED_WORDS.get(language, _SEED_WORDS["en"])
    return _lines(f"{asked}{question}", information, passages)


_CONCISE_WORDS = {
    "en": ("Answer the question in one or two sentences, from the information given.", "Question: ", "Information:"),
    "zh": ("请根据所给信息，用一两句话回答问题。", "问题：", "信息："),
    "es": ("Responde a la pregunta en una o dos frases, según la información dada.", "Pregunta: ", "Información:"),
}


def concise(question: str, passages: Sequence[str] | None, language: str) -> str:
    """An instruction, the question, the numbered passages: small chat models answer it more to the point."""
    instruction, asked, information = _CONCISE_WORDS.get(language, _CONCISE_WORDS["en"])
    return _lines(f"{instruction}\n{asked}{question}", information, passages)


LANGUAGES = tuple(_SEED_WORDS)
"""Languages whose words the prompts know; any other gets English words."""

PROMPTS: Mapping[str, Prompt] = {"seed": seed, "concise": concise}


def _lines(head: str, information: str, passages: Sequence[str] | None) -> str:
    if passages is None:
        return f"{head}\n"
    body = "".join(numbered_passage(n, text) for n, text in enumerate(passages, start=1))
    return f"{head}\n{information}\n{body}"
