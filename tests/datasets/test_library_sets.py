"""Sets of `ir_datasets` and of the hub's library, from local files in each library's own format, sound and damaged."""

import logging
import sys

import pytest
from data_damages import BOM, JSON_LINES, LATIN, add, become, crlf, cut, replace
from data_layouts import LAYOUTS, PASSAGES, QUERIES, QUESTIONS, TEXTS, jsonl, parquet, tsv, write
from test_damaged_files import HUGE

from corag_ray.datasets.load import load_dataset
from corag_ray.errors import ConfigError, CoragError, DataError, MissingModelError

LOCAL = "tests-of-corag/local"
PASSAGE_RANKING, DOCUMENT_RANKING = "msmarco-passage/tests-of-corag", "msmarco-document/tests-of-corag"
LANGUAGES = {LOCAL: None, PASSAGE_RANKING: "de", DOCUMENT_RANKING: None}
"""By set, the language that it states of its queries."""
TABLES = LAYOUTS["msmarco passages"]
CONFIGURATIONS = b"""---
configs:
- config_name: corpus
  data_files: corpus.jsonl
- config_name: queries
  data_files:
  - {split: dev, path: queries.jsonl}
  - {split: test, path: test.jsonl}
---
"""
HUB_FILES = {
    "README.md": CONFIGURATIONS,
    "corpus.jsonl": jsonl(PASSAGES),
    "queries.jsonl": jsonl(QUERIES),
    "test.jsonl": jsonl([{"query_id": "q3", "question": "Where does it grow?", "relevant_passage_ids": ["9", "99"]}]),
}
EVIDENCE = {key: [TEXTS[passage]] for key, (_, passage) in QUESTIONS.items()}


@pytest.fixture
def load(tmp_path, monkeypatch):
    """Writes a set's files and loads it through its library, whose cache is a folder of this test."""
    import datasets
    import ir_datasets
    from ir_datasets.formats import TrecQrels, TsvDocs, TsvQueries
    from ir_datasets.util import PackageDataFile

    class Local(PackageDataFile):
        def __init__(self, name):
            self.file = tmp_path / "set" / name

        def path(self, force=True):
            return str(self.file)

        def stream(self):
            return self.file.open("rb")

    for name, language in LANGUAGES.items():
        parts = (
            TsvDocs(Local("collection.tsv")),
            TsvQueries(Local("queries.dev.tsv"), lang=language),
            TrecQrels(Local("qrels.dev.tsv"), {0: "no", 1: "yes", 2: "very"}),
        )
        ir_datasets.registry.register(name, ir_datasets.Dataset(*parts))
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")

    def write_and_load(files, split="", name=LOCAL, **options):
        folder = write(tmp_path / "set", files)
        return load_dataset(f"hub:{folder}{split}" if "README.md" in files else f"ir_datasets:{name}", **options)

    yield write_and_load
    for name in LANGUAGES:
        ir_datasets.registry._registered.pop(name)


def texts_of(data):
    return [document.text for document in data.documents]


def evidence_of(data):
    return {question.question_id: [evidence.text for evidence in question.evidence] for question in data.questions}


def test_a_set_of_ir_datasets(load):
    data = load(TABLES)
    assert texts_of(data) == list(TEXTS.values())
    assert evidence_of(data) == EVIDENCE
    assert load(TABLES, questions=False).questions == ()


def test_a_query_of_ir_datasets_without_a_judgement_is_left_out_and_one_judged_without_relevant_ones_stays(load):
    qrels = tsv(("q2", "0", "7", "0"), ("q1", "0", "7", "1"))
    assert evidence_of(load(TABLES | {"qrels.dev.tsv": qrels})) == {"q1": [TEXTS["7"]], "q2": []}  # no q3


@pytest.mark.parametrize(
    ("name", "related", "alone"),
    [(LOCAL, ["7"], ["7"]), (DOCUMENT_RANKING, ["7"], ["7"]), (PASSAGE_RANKING, [], ["7"])],
)
def test_grade_1_beside_2_is_relevant_but_among_ms_marcos_passages(load, name, related, alone):
    graded = tsv(("q1", "0", "7", "1"), ("q1", "0", "8", "0"), ("q2", "0", "8", "2"))
    found = evidence_of(load(TABLES | {"qrels.dev.tsv": graded}, name=name))
    assert found == {"q1": [TEXTS[p] for p in related], "q2": [TEXTS["8"]]}
    found = evidence_of(load(TABLES | {"qrels.dev.tsv": tsv(("q1", "0", "7", "1"))}, name=name))
    assert found == {"q1": [TEXTS[p] for p in alone]}


def test_questions_of_ir_datasets_are_in_the_language_that_it_states(load):
    assert {q.language for q in load(TABLES, name=PASSAGE_RANKING).questions} == {"de"}
    assert {q.language for q in load(TABLES).questions} == {"en"}


def test_a_librarys_set_may_stand_among_several_names(load, tmp_path):
    data = load(TABLES, name=f"{LOCAL}, {write(tmp_path / 'lines', LAYOUTS['jsonl'])}")
    assert [document.doc_id for document in data.documents] == [
        *(f"ir_datasets:{LOCAL}/{n}" for n in (7, 8, 9)),
        *(f"lines/d{n}" for n in (7, 8, 9)),
    ]


def test_a_folder_whose_name_has_a_comma_is_one_set_of_the_hubs_library(load, tmp_path):
    folder = write(tmp_path / "tea, old", HUB_FILES)
    assert texts_of(load_dataset(f"hub:{folder}")) == list(TEXTS.values())


def test_judgements_of_queries_that_ir_datasets_does_not_hold_are_told(load, caplog):
    caplog.set_level(logging.WARNING)
    load(TABLES | {"qrels.dev.tsv": TABLES["qrels.dev.tsv"] + tsv(("q9", "0", "7", "1"))})
    assert "1 judged queries are not among its queries: q9" in caplog.text


def test_an_unknown_id_of_ir_datasets_is_one_sentence():
    with pytest.raises(ConfigError, match="ir_datasets knows no 'nothing-of-the-kind'"):
        load_dataset("ir_datasets:nothing-of-the-kind")


def test_a_set_of_the_hubs_library_whole_and_by_split(load):
    data = load(HUB_FILES)
    assert texts_of(data) == list(TEXTS.values())
    assert evidence_of(data) == EVIDENCE | {"q3": [TEXTS["9"]]}
    assert data.missing_evidence == 1
    dev = load(HUB_FILES, ":dev")
    assert (texts_of(dev), evidence_of(dev)) == (list(TEXTS.values()), EVIDENCE)
    with pytest.raises(ConfigError, match=r"unknown split of hub:.*'tset'; did you mean 'test'\? Known: dev, test"):
        load(HUB_FILES, ":tset")


def test_the_hubs_parquet_and_its_nulls_are_read_as_lines_are(load):
    quote = {"passage_id": "7", "quote": "1660", "answer": "1660"}
    entries = [quote, {"passage_id": "8", "quote": "330", "answer": None}]
    files = {
        "README.md": CONFIGURATIONS.replace(b"jsonl", b"parquet"),
        "corpus.parquet": parquet([passage | {"title": None} for passage in PASSAGES]),
        "queries.parquet": parquet([{"query_id": "q1", "question": "?", "evidence": entries}]),
        "test.parquet": parquet([{"query_id": "q2", "question": "?", "evidence": [quote]}]),
    }
    assert evidence_of(load(files)) == {"q1": ["1660", "330"], "q2": ["1660"]}


def test_a_set_that_the_hub_does_not_give_is_one_sentence(monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(DataError, match=r"hub:nobody/nothing \('corpus'\) cannot be loaded .* check the name"):
        load_dataset("hub:nobody/nothing")


def test_a_set_that_ir_datasets_cannot_fetch_is_one_sentence(load, monkeypatch):
    import ir_datasets

    def refuse(*_):
        raise ConnectionError("no route\nto the host")

    monkeypatch.setattr(ir_datasets.registry[LOCAL], "docs_iter", refuse, raising=False)
    with pytest.raises(DataError, match=r"cannot be fetched or read .*ConnectionError: no route to the host"):
        load(TABLES)


@pytest.mark.parametrize(("library", "name"), [("ir_datasets", "ir_datasets:x"), ("datasets", "hub:x")])
def test_a_library_that_is_not_installed_is_one_sentence_with_the_extra(monkeypatch, library, name):
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(MissingModelError, match=rf"the library {library}: pip install 'corag_ray\[data\]'"):
        load_dataset(name)


HUB_CASES = {
    **{
        ("corpus.jsonl", name): change
        for name, change in {
            **JSON_LINES,
            "same: two on a line, which the library parts": replace(b"}\n", b"} "),
            "refused: gzip": become(b"\x1f\x8b\x08\x00tea"),
        }.items()
    },
    ("queries.jsonl", "refused: cut"): cut,
    ("queries.jsonl", "refused: relevant"): lambda c: c.replace(b'["7"]', b'"7"').replace(b'["8"]', b'"8"'),
    ("queries.jsonl", "refused: duplicate id"): replace(b"q2", b"q1"),
    ("README.md", "refused: no configurations"): become(b"tea\n"),
}
IR_CASES = {
    **{
        ("collection.tsv", name): change
        for name, change in {
            "same: bom": lambda c: BOM + c,
            "same: crlf": crlf,
            "same: blank lines": add(b"\n\n"),
            "refused: cut": lambda c: c[: c.rindex(b"\t")],
            "refused: empty": become(b""),
            "refused: latin": replace(b"Tea", LATIN),
            "refused: utf-16": lambda c: c.decode().encode("utf-16"),
            "refused: blanks": lambda c: c.replace(b"\t", b" "),
            "refused: third column": replace(b"\n", b"\tx\n"),
            "refused: duplicate id": lambda c: c + c,
            "refused: no id": replace(b"7\t", b"\t"),
        }.items()
    },
    **{
        ("qrels.dev.tsv", name): change
        for name, change in {
            "same: bom": lambda c: BOM + c,
            "same: crlf": crlf,
            "same: twice": lambda c: c + c,
            "refused: empty": become(b""),
            "refused: three columns": become(b"q1 7 1\n"),
            "refused: word": replace(b"\t1\n", b"\tyes\n"),
            "refused: latin": add(LATIN),
        }.items()
    },
    **{
        ("queries.dev.tsv", name): change
        for name, change in {
            "same: bom": lambda c: BOM + c,
            "same: crlf": crlf,
            "refused: cut": lambda c: c[: c.rindex(b"\t")],
            "refused: empty": become(b""),
            "refused: duplicate id": lambda c: c + c,
            "refused: blanks": lambda c: c.replace(b"\t", b" "),
            "refused: latin": replace(b"tea", LATIN),
        }.items()
    },
}
CASES = {"hub": (HUB_FILES, HUB_CASES), "ir_datasets": (TABLES, IR_CASES)}


def test_each_library_has_at_least_twenty_damages():
    assert min(len(cases) for _, cases in CASES.values()) >= 20


@pytest.mark.parametrize(
    ("library", "name", "case"), [(library, *key) for library, (_, cases) in CASES.items() for key in cases]
)
def test_a_damaged_set_loads_right_or_is_refused_by_name(load, tmp_path, library, name, case):
    files, cases = CASES[library]
    changed = files | {name: cases[name, case](files[name])}
    if case.startswith("same"):
        data = load(changed)
        assert texts_of(data) == list(TEXTS.values())
        assert evidence_of(data) == EVIDENCE | ({"q3": [TEXTS["9"]]} if library == "hub" else {})
        assert [q.text for q in data.questions[:2]] == [question for question, _ in QUESTIONS.values()]
        return
    with pytest.raises(CoragError) as refusal:
        load(changed)
    message = str(refusal.value)
    assert (str(tmp_path) if library == "hub" else LOCAL) in message
    assert len(message.splitlines()) == 1
    assert len(message) < 600


@pytest.mark.parametrize(
    "files",
    [
        HUB_FILES | {"corpus.jsonl": jsonl([*PASSAGES, {"passage_id": "x", "doc_id": "x", "text": HUGE}])},
        TABLES | {"collection.tsv": TABLES["collection.tsv"] + f"x\t{HUGE}\n".encode()},
    ],
    ids=["hub", "ir_datasets"],
)
def test_a_huge_line_is_kept_whole(load, files):
    assert load(files).documents[-1].text.strip() == HUGE.strip()
