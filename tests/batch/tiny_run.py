"""A tiny data folder and the configuration of a tiny run over it."""

import json
from pathlib import Path

SUBJECTS = {
    "harbour": "The harbour of Ostrel was dug by hand in 1712. Its two moles are built of granite from Venn.",
    "bridge": "The iron bridge at Malk has nine arches. It was opened in 1854 and carries one railway track.",
    "tea": "Tea is grown on the slopes above Malk. The first bushes were planted by the botanist Ines Carrow in 1803.",
    "clock": "The clock of the town hall strikes thirteen at noon. Its maker, Piet Lund, never told the reason.",
    "island": "Venn is an island of four square kilometres. Sixty people live there, and the ferry sails from Ostrel.",
    "library": "The library of Ostrel owns nine thousand books. Its founder, Ines Carrow, left it her house.",
}  # fmt: skip
QUESTIONS = {
    "q8": ("When was the harbour of Ostrel dug?", "in 1712", "harbour"),
    "q1": ("How many arches has the iron bridge at Malk?", "nine", "bridge"),
    "q5": ("Who planted the first tea bushes above Malk?", "Ines Carrow", "tea"),
    "q2": ("What does the clock of the town hall do at noon?", "it strikes thirteen", "clock"),
    "q7": ("How many people live on the island of Venn?", "sixty", "island"),
    "q3": ("Who founded the library of Ostrel?", "Ines Carrow", "library"),
    "q6": ("Where does the granite of the harbour come from?", "from the island of Venn", "harbour"),
    "q4": ("From where does the ferry to Venn sail?", "from Ostrel", "island"),
}
FILLER = "Little else is known of it, for the archive burnt down in a winter storm and nobody wrote the story again."


def write_folder(folder: Path, **empty: str) -> Path:
    """The tiny data folder; `empty` gives other texts to questions by id."""
    folder.mkdir()
    passages = [
        {"passage_id": f"{name}#{n}", "doc_id": name, "title": name.title(), "text": text}
        for name, subject in SUBJECTS.items()
        for n, text in enumerate((subject, FILLER))
    ]
    queries = [
        {
            "query_id": query_id,
            "question": empty.get(query_id, text),
            "answers": [answer],
            "relevant_passage_ids": [f"{where}#0"],
        }
        for query_id, (text, answer, where) in QUESTIONS.items()
    ]
    for name, records in (("corpus", passages), ("queries", queries)):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(r) + "\n" for r in records), encoding="utf-8")
    return folder


def config_values(data: Path) -> dict[str, object]:
    """The tiny run: three methods, groups of two, a budget of two chunks."""
    return {
        "dataset": str(data),
        "deterministic": True,
        "budget_tokens": 64,
        "group_size": 2,
        "chunking": {"size_tokens": 24},
        "retrieval": {"num_candidates": 8},
        "generation": {"max_new_tokens": 4},
        "methods": {
            "naive_rag": {"strategy": {"kind": "ranked"}},
            "corag": {"strategy": {"kind": "policy_tree", "preset": "report"}},
            "gold_passages": {"source": "gold"},
        },
    }
