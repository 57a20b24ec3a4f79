"""What a question asks for, told by its words: a fact or an explanation."""

from __future__ import annotations

import re
from typing import Literal

Kind = Literal["facts", "explanations"]

ASKS_A_FACT = re.compile(
    r"\b(who|whom|whose|when|where|which|"
    r"how (many|much|long|old|far|often|large|big|tall|high|fast|deep|wide|heavy)|"
    r"what (\w+ ){0,2}(year|date|day|month|century|decade|time|age|"
    r"name|city|country|state|place|number|percentage|amount))\b"
)
"""Its answer is a name, a place, a time or an amount."""


def kind_of(question: str) -> Kind:
    """`facts` where words of the question ask for one; all else, what, why and how, asks for an explanation."""
    return "facts" if ASKS_A_FACT.search(question.lower()) else "explanations"
