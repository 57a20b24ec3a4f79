"""Rows as a run stores them, and what their tables and their page show."""

from __future__ import annotations

import io
from html.parser import HTMLParser
from typing import Any

import stored_rows
from rich.console import Console

from corag_ray.reports.table import summary_table

NASTY = "<script>alert('x')</script> & $x_1$"
MANIFEST = {
    "name": "sample run",
    "fingerprint": "9b1c77e0",
    "config": {"search": {"c": 2.4}},
    "sessions": [{"started": "2026-11-30T02:23:16+00:00", "commit": "3f2a91c", "versions": {"ray": "2.60.0"}}],
}


def result(rouge: float, tokens: int, **changes: Any) -> dict[str, Any]:
    shown = {
        "selection": [{"chunk_id": "0f", "doc_id": "castles/7", "start": 10, "end": 500, "cost": tokens}],
        "context_tokens": tokens,
        "prompt_tokens": tokens + 60,
        "finish_reason": "length",
        "answer": f"answer {NASTY}",
        "evidence_precision": None,
        "exact_match": None,
        "token_f1": None,
        "rouge_set": {"rouge1": rouge, "rouge2": rouge, "rougeL": rouge},
        "notes": ["budget cut to 400 tokens by the model's window"],
    }
    return stored_rows.result(**shown | changes)


def row(position: int, methods: dict[str, Any], **changes: Any) -> Any:
    shown = {
        "language": "en" if position % 2 else "ja",
        "question": f"question {position} {NASTY}",
        "answers": ["the reference"],
    }
    return stored_rows.row(position, methods, **shown | changes)


LONG = ["word " * 11]
ASKED = [
    row(
        i,
        {
            "naive": result(0.5, 400, abstained=False),
            "corag": result(0.5, 400, abstained=i in (0, 4)),
            "no_context": result(0.5, 0, source="none", abstained=True),
        },
        answerable=i > 2,
        answers=[] if i < 3 else LONG,
    )
    for i in range(5)
]


def printed(summary):
    console = Console(width=200, file=io.StringIO(), color_system=None)
    console.print(summary_table(summary))
    return console.file.getvalue()  # type: ignore[attr-defined]


class Page(HTMLParser):
    """What a page holds: its tags with attributes, and its text."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(html)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data):
        self.text += data
