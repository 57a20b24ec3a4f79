"""Every layout of folders, and the two libraries, on small sets of their own format."""

import gzip
import json
import logging
import os
from pathlib import Path

import pytest
from data_layouts import LAYOUTS, PASSAGES, QUERIES, QUESTIONS, TEXTS, columns, parquet, qa_entry, write

from corag_ray.datasets.load import load_dataset
from corag_ray.errors import ConfigError, DataError


def texts_of(data):
    return [document.text for document in data.documents]


def evidence_of(data):
    return {question.question_id: [evidence.text for evidence in question.evidence] for question in data.questions}


@pytest.mark.parametrize("layout", ["jsonl", "gzip", "parquet", "wikipassageqa", "msmarco passages"])
def test_the_same_corpus_and_questions_in_every_layout_of_passages(tmp_path, layout):
    data = load_dataset(write(tmp_path, LAYOUTS[layout]))
    assert texts_of(data) == list(TEXTS.values())
    assert [(q.question_id, q.text) for q in data.questions] == [(key, q) for key, (q, _) in QUESTIONS.items()]
    assert evidence_of(data) == {key: [TEXTS[p]] for key, (_, p) in QUESTIONS.items()}
    assert data.missing_evidence == (2 if layout == "wikipassageqa" else 0)


@pytest.mark.parametrize("layout", ["msmarco qa 1.1", "msmarco qa 2.1"])
def test_ms_marco_qa_has_answers_and_each_querys_own_passages(tmp_path, layout):
    data = load_dataset(write(tmp_path, LAYOUTS[layout]))
    assert texts_of(data) == list(TEXTS.values()) * 2
    assert evidence_of(data) == {key: [TEXTS[p]] for key, (_, p) in QUESTIONS.items()}
    assert {(q.answers, q.kind) for q in data.questions} == {(("yes",), "numeric")}


def test_ms_marcos_words_for_no_answer_are_no_answer(tmp_path):
    entry = qa_entry("q1") | {"answers": ["No Answer Present."]}
    [question] = load_dataset(write(tmp_path, {"dev_v2.1.json": columns([entry])})).questions
    assert question.answers == ()


def test_documents_are_read_without_markup_each_file_one(tmp_path):
    data = load_dataset(write(tmp_path, LAYOUTS["documents"]))
    assert {document.doc_id: document.text for document in data.documents} == {
        "a.txt": TEXTS["9"],
        "b.md": "Tea\nIt came to Britain in 1660.\ngreen\nblack",
        "d.pdf": "Tea came to Britain in 1660.",
        "deep/c.html": "Tower\nThe tower\nIt is 330 metres high.\nlifts 5",
    }
    assert evidence_of(data) == {"q1": ["Tea\nIt came to Britain in 1660.\ngreen\nblack"]}


def test_documents_without_text_are_named_and_hidden_files_left_alone(tmp_path, caplog):
    caplog.set_level(logging.WARNING)
    folder = write(tmp_path, {"a.txt": b"tea", "blank.md": b"\n", ".git/b.txt": b"not this", "c.py": b"nor this"})
    data = load_dataset(folder, questions=False)
    assert [document.doc_id for document in data.documents] == ["a.txt"]
    assert "1 files hold no text and are left out: blank.md" in caplog.text
    with pytest.raises(DataError, match=r"no queries\.jsonl: only `ask` and `index` can use it"):
        load_dataset(folder)


def test_a_folder_of_no_known_layout_lists_them(tmp_path):
    with pytest.raises(DataError, match=r"a folder must hold one of: corpus\.jsonl.*WikiPassageQA.*MS MARCO.*\.pdf"):
        load_dataset(str(tmp_path))


def test_a_set_of_the_hubs_library_from_a_local_folder(tmp_path):
    readme = "---\nconfigs:\n- config_name: corpus\n  data_files: corpus.parquet\n"
    readme += "- config_name: queries\n  data_files: queries.parquet\n---\n"
    files = {"corpus.parquet": parquet(PASSAGES), "queries.parquet": parquet(QUERIES), "README.md": readme.encode()}
    data = load_dataset(f"hub:{write(tmp_path / 'set', files)}")
    assert texts_of(data) == list(TEXTS.values())
    assert evidence_of(data) == {key: [TEXTS[p]] for key, (_, p) in QUESTIONS.items()}


def test_a_set_that_the_hub_does_not_give_is_one_sentence(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(DataError, match=r"hub:nobody/nothing \('corpus'\) cannot be loaded .* check the name"):
        load_dataset("hub:nobody/nothing")


@pytest.fixture
def registered(tmp_path):
    """A set of ir_datasets' own classes over local files."""
    import ir_datasets
    from ir_datasets.formats import TrecQrels, TsvDocs, TsvQueries
    from ir_datasets.util import PackageDataFile

    class Local(PackageDataFile):
        def __init__(self, name):
            self.file = tmp_path / name

        def path(self, force=True):
            return str(self.file)

        def stream(self):
            return self.file.open("rb")

    write(tmp_path, LAYOUTS["msmarco passages"])
    parts = (
        TsvDocs(Local("collection.tsv")),
        TsvQueries(Local("queries.dev.tsv")),
        TrecQrels(Local("qrels.dev.tsv"), {0: "no", 1: "yes", 3: "very"}),
    )
    ir_datasets.registry.register("tests-of-corag/local", ir_datasets.Dataset(*parts))
    yield "ir_datasets:tests-of-corag/local"
    ir_datasets.registry._registered.pop("tests-of-corag/local")


def test_a_set_of_ir_datasets(registered):
    data = load_dataset(registered)
    assert texts_of(data) == list(TEXTS.values())
    assert evidence_of(data) == {key: [TEXTS[p]] for key, (_, p) in QUESTIONS.items()} | {"q3": []}


def test_an_unknown_id_of_ir_datasets_is_one_sentence():
    with pytest.raises(ConfigError, match="ir_datasets knows no 'nothing-of-the-kind'"):
        load_dataset("ir_datasets:nothing-of-the-kind")


@pytest.mark.data
def test_wikipassageqa_in_its_official_layout_holds_what_the_data_folder_holds(tmp_path):
    root = Path(os.environ.get("CORAG_DATA", "data")) / "wikipassageqa"
    if not root.is_dir():
        pytest.skip(f"NOT RUN: there is no {root}; set CORAG_DATA to the folder that holds wikipassageqa")
    passages, rows = {}, []
    with gzip.open(root / "corpus.jsonl.gz", "rt", encoding="utf-8") as lines:
        for record in map(json.loads, lines):
            number = record["passage_id"].rpartition("_")[2].rpartition("-")[2].rpartition("#")[2]
            passages.setdefault(record["doc_id"], {})[number] = record["text"]
    with gzip.open(root / "queries.jsonl.gz", "rt", encoding="utf-8") as lines:
        for record in map(json.loads, lines):
            ids = record["relevant_passage_ids"]
            numbers = [i.rpartition("_")[2].rpartition("-")[2].rpartition("#")[2] for i in ids]
            doc_id = (record["relevant_doc_ids"] or ["?"])[0]
            rows.append((record["query_id"], record["question"], doc_id, "name", ",".join(numbers)))
    header = ("QID", "Question", "DocumentID", "DocumentName", "RelevantPassages")
    table = "".join("\t".join(" ".join(field.split()) for field in row) + "\n" for row in [header, *rows])
    files = {"document_passages.json": json.dumps(passages).encode(), "train.tsv": table.encode()}
    data = load_dataset(write(tmp_path, files))
    assert (len(data.documents), sum(map(len, passages.values())), len(data.questions)) == (5, 214, len(rows))
    expected = load_dataset(str(root))
    assert data.missing_evidence == expected.missing_evidence > 0
    assert sum(map(len, evidence_of(data).values())) == sum(map(len, evidence_of(expected).values())) > 0
    for n in (0, 9, -1):
        assert data.questions[n].text == " ".join(expected.questions[n].text.split())
