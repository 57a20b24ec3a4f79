"""Every layout of folders, on small sets of its own format."""

import gzip
import io
import json
import logging
import os
import sys
from pathlib import Path

import pypdf
import pytest
from data_layouts import LAYOUTS, QUERIES, QUESTIONS, TEXTS, columns, jsonl, parquet, pdf, qa_entry, tsv, write

from corag_ray.datasets.load import load_dataset
from corag_ray.datasets.wikipassageqa import COLUMNS
from corag_ray.errors import ConfigError, DataError, MissingModelError
from corag_ray.types import Evidence, Span


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


@pytest.mark.parametrize(
    ("given", "answers", "answerable"),
    [
        (["No Answer Present."], (), False),
        (["in 1660"], ("in 1660",), True),
        (["No Answer Present.", "in 1660"], ("in 1660",), True),
        ([], (), None),
    ],
)
def test_ms_marcos_words_for_no_answer_are_no_answer_and_make_its_question_unanswerable(
    tmp_path, given, answers, answerable
):
    entry = qa_entry("q1") | {"answers": given}
    [question] = load_dataset(write(tmp_path, {"dev_v2.1.json": columns([entry])})).questions
    assert (question.answers, question.answerable) == (answers, answerable)


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
    assert "1 of 2 files are left out: blank.md (no text)" in caplog.text
    with pytest.raises(DataError, match=r"no queries\.jsonl: only `ask` and `index` can use it"):
        load_dataset(folder)


def test_pipes_are_named_and_never_waited_for(tmp_path, caplog):
    folder = write(tmp_path, {"b.md": b"tea"})
    os.mkfifo(tmp_path / "a.txt")
    (tmp_path / "link.html").symlink_to("a.txt")
    (tmp_path / "linked.txt").symlink_to("b.md")
    data = load_dataset(folder, questions=False)
    assert [document.doc_id for document in data.documents] == ["b.md", "linked.txt"]
    assert "2 of 4 files are left out: a.txt (no regular file), link.html (no regular file)" in caplog.text


def test_a_link_to_a_document_that_is_gone_is_refused(tmp_path):
    folder = write(tmp_path, {"b.md": b"tea"})
    (tmp_path / "a.txt").symlink_to("gone.txt")
    with pytest.raises(DataError, match=r"a\.txt: cannot be read \(No such file"):
        load_dataset(folder, questions=False)


def test_a_folder_whose_name_is_not_utf_8_is_refused_however_it_is_named(tmp_path, monkeypatch):
    folder = tmp_path / os.fsdecode(b"caf\xe9")
    folder.mkdir()
    write(folder, {"b.md": b"tea"})
    monkeypatch.chdir(folder)
    for name in (str(folder), "."):
        with pytest.raises(ConfigError, match=r"caf\\udce9' of a data set is not UTF-8: rename its folder"):
            load_dataset(name, questions=False)


def test_a_folder_of_no_known_layout_lists_them(tmp_path):
    with pytest.raises(DataError, match=r"a folder must hold one of: corpus\.jsonl.*WikiPassageQA.*MS MARCO.*\.pdf"):
        load_dataset(str(tmp_path))


def test_a_folder_of_two_layouts_or_of_one_file_in_two_forms_is_refused_and_never_half_read(tmp_path):
    both = write(tmp_path / "layouts", LAYOUTS["jsonl"] | LAYOUTS["msmarco passages"])
    with pytest.raises(
        DataError, match=r"holds more than one layout \(corpus\.jsonl.*; collection\.tsv .*must hold one of"
    ):
        load_dataset(both)
    forms = write(tmp_path / "forms", LAYOUTS["jsonl"] | LAYOUTS["parquet"])
    with pytest.raises(DataError, match=r"holds corpus\.jsonl and corpus\.parquet: leave one of them"):
        load_dataset(forms)
    queries = write(tmp_path / "queries", LAYOUTS["jsonl"] | {"queries.jsonl.gz": gzip.compress(jsonl(QUERIES))})
    with pytest.raises(DataError, match=r"holds queries\.jsonl and queries\.jsonl\.gz: leave one of them"):
        load_dataset(queries)


@pytest.mark.parametrize("names", ["", " ", ",", "sample,", ",sample", "sample,,drcd"])
def test_an_empty_name_is_refused_and_never_the_folder_that_the_program_runs_in(tmp_path, monkeypatch, names):
    monkeypatch.chdir(write(tmp_path, LAYOUTS["jsonl"]))
    with pytest.raises(ConfigError, match="leaves a name of a data set empty: expected names parted by single commas"):
        load_dataset(names)


def test_notes_beside_a_data_sets_files_are_no_documents(tmp_path):
    folder = write(tmp_path, LAYOUTS["jsonl"] | {"README.md": b"# About", "LICENSE.txt": b"free"})
    assert texts_of(load_dataset(folder)) == list(TEXTS.values())


@pytest.mark.parametrize("layout", ["msmarco passages", "msmarco qa 1.1", "msmarco qa 2.1"])
def test_ms_marco_is_the_same_gzipped(tmp_path, layout):
    plain = load_dataset(write(tmp_path / "plain" / "set", LAYOUTS[layout]))
    packed = {f"{name}.gz": gzip.compress(content) for name, content in LAYOUTS[layout].items()}
    assert load_dataset(write(tmp_path / "packed" / "set", packed)) == plain


def test_ms_marco_qa_2_1_may_also_stand_an_object_a_line(tmp_path):
    entries = [qa_entry("q1"), qa_entry("q2")]
    by_column = load_dataset(write(tmp_path / "columns" / "set", {"dev_v2.1.json": columns(entries)}))
    assert load_dataset(write(tmp_path / "lines" / "set", {"dev_v2.1.json": jsonl(entries)})) == by_column


def test_ms_marco_qa_without_answers_and_marks_has_questions_without_evidence(tmp_path):
    entry = {"query_id": 5, "query": "How?", "passages": [{"passage_text": "So."}, {"passage_text": "Or so."}]}
    data = load_dataset(write(tmp_path, {"eval_v2.1_public.json": columns([entry])}))
    assert texts_of(data) == ["So.", "Or so."]
    assert [(q.question_id, q.answers, q.evidence, q.answerable) for q in data.questions] == [("5", (), (), None)]


def test_ms_marcos_tables_overlap_as_they_are_published_and_may_not_contradict(tmp_path):
    files = LAYOUTS["msmarco passages"] | {"queries.dev.small.tsv": tsv(("q1", QUESTIONS["q1"][0]))}
    files["qrels.dev.small.tsv"] = tsv(("q1", "0", "7", "1"))
    data = load_dataset(write(tmp_path, files))
    assert evidence_of(data) == {"q1": [TEXTS["7"]], "q2": [TEXTS["8"]]}
    with pytest.raises(DataError, match=r"queries\.dev\.tsv:1: query_id 'q1' was used before"):
        load_dataset(write(tmp_path, {"queries.dev.small.tsv": tsv(("q1", "Another question?"))}))
    with pytest.raises(DataError, match=r"qrels\.dev\.tsv:1: passage '7' has another grade"):
        load_dataset(write(tmp_path, {"qrels.dev.small.tsv": tsv(("q1", "0", "7", "2"))}))


def test_among_ms_marcos_grades_1_is_related_and_no_evidence_where_the_same_table_grades_higher(tmp_path):
    files = LAYOUTS["msmarco passages"] | {"queries.2019.tsv": tsv(("q4", "Where does tea grow?"))}
    # dev knows 1 alone, which is relevant there; 2019 has a 2, so that its 1 only relates.
    files["qrels.2019.tsv"] = tsv(("q4", "0", "7", "1"), ("q4", "0", "8", "0"), ("q4", "0", "9", "2"))
    data = load_dataset(write(tmp_path, files))
    assert evidence_of(data) == {"q1": [TEXTS["7"]], "q2": [TEXTS["8"]], "q4": [TEXTS["9"]]}


def test_rows_of_parquet_are_all_read_and_their_nulls_are_what_lines_leave_out(tmp_path):
    passages = [{"passage_id": f"p{n}x", "text": f"text {n}"} for n in range(2500)]
    quotes = [{"passage_id": "p2x", "quote": "text 2", "answer": "2"}, {"passage_id": "p3x", "quote": "text"}]
    queries = [
        {"query_id": "a", "question": "?", "evidence": quotes, "meta": {"kind": "fact"}},
        {"query_id": "b", "question": "?", "relevant_passage_ids": ["p2499x"], "answerable": False, "evidence": []},
    ]
    lines = {"corpus.jsonl": jsonl(passages), "queries.jsonl": jsonl(queries)}
    rows = {"corpus.parquet": parquet(passages), "queries.parquet": parquet_of_all_keys(queries)}
    from_lines = load_dataset(write(tmp_path / "lines" / "set", lines))
    assert load_dataset(write(tmp_path / "rows" / "set", rows)) == from_lines
    assert len(from_lines.documents) == 2500
    assert [question.answerable for question in from_lines.questions] == [None, False]
    assert evidence_of(from_lines) == {"a": ["text 2", "text"], "b": ["text 2499"]}
    with pytest.raises(DataError, match=r"corpus\.parquet row 2501: passage_id 'p0x' was already used at .* row 1\."):
        load_dataset(write(tmp_path / "twice", rows | {"corpus.parquet": parquet([*passages, passages[0]])}))


def parquet_of_all_keys(records):
    """Parquet with a column for every key of any record; `parquet` takes those of the first."""
    keys = {key: None for record in records for key in record}
    return parquet([keys | record for record in records])


def test_documents_evidence_may_quote_a_document_by_its_path(tmp_path):
    quoted = {"doc_id": "deep/c.html", "quote": "It is 330 metres", "answer": "330"}
    query = {"query_id": "q", "question": "How high?", "evidence": [quoted]}
    folder = write(tmp_path, LAYOUTS["documents"] | {"queries.jsonl": jsonl([query])})
    [evidence] = load_dataset(folder).questions[0].evidence
    assert evidence == Evidence(Span("deep/c.html", 16, 32), Span("deep/c.html", 22, 25), "It is 330 metres")
    query["evidence"] = [quoted | {"doc_id": "c.html"}]
    with pytest.raises(DataError, match=r"queries\.jsonl:1: the quote .* does not stand in document 'c\.html'"):
        load_dataset(write(tmp_path, {"queries.jsonl": jsonl([query])}))


def test_words_of_neighbouring_html_blocks_and_of_deep_lists_are_neither_joined_nor_lost(tmp_path):
    deep = "".join("  " * depth + f"- level{depth}\n" for depth in range(30))
    files = {"a.html": b"<div>one</div><div>two<br>thr<b>ee</b></div><section>four</section>", "b.md": deep.encode()}
    html, markdown = texts_of(load_dataset(write(tmp_path, files), questions=False))
    assert html == "one\ntwo\nthree\nfour"
    assert markdown.split() == [f"level{depth}" for depth in range(30)]


def test_a_wrapped_paragraph_is_a_line_whose_words_may_be_quoted_across_the_wrap(tmp_path):
    html = b"<title>Tea\nhouses</title><p>Tea came to\n<b>Britain</b>\r\nin 1660.</p><pre>one\ntwo</pre>"
    markdown = b"Tea came\nto Britain.  \nIt stayed.\n\n- green\n  or black\n\n```\none\ntwo\n```\n"
    quotes = [{"doc_id": "a.html", "quote": "to Britain in"}, {"doc_id": "b.md", "quote": "came to"}]
    query = {"query_id": "q", "question": "?", "evidence": quotes}
    data = load_dataset(write(tmp_path, {"a.html": html, "b.md": markdown, "queries.jsonl": jsonl([query])}))
    assert texts_of(data) == [
        "Tea houses\nTea came to Britain in 1660.\none\ntwo",
        "Tea came to Britain.\nIt stayed.\ngreen or black\none\ntwo",
    ]
    assert [evidence.span for evidence in data.questions[0].evidence] == [Span("a.html", 20, 33), Span("b.md", 4, 11)]


@pytest.mark.parametrize(
    ("before", "kept"),
    [
        ("---\ntitle: Tea\ntags: [old]\n---\n", ""),
        ("---\r\ntitle: Tea\r\n...\r\n", ""),
        ("---\nIt is old.\n\n---\n", "It is old.\n"),  # words between two rules
        ("---\nkey: [\n\n---\n", "key: [\n"),  # no YAML
        ("---\nkey: value\n\n", "key: value\n"),  # never closed
        ("It is old.\n\n---\nkey: value\n\n---\n", "It is old.\nkey: value\n"),  # not at the head
    ],
)
def test_markdowns_settings_at_the_head_are_no_text_and_nothing_else_is_lost(tmp_path, before, kept):
    folder = write(tmp_path, {"a.md": f"{before}Tea came.\n".encode()})
    assert texts_of(load_dataset(folder, questions=False)) == [f"{kept}Tea came."]


def pdf_of(pages, password=None):
    """A file of as many pages: the sample's text, or nothing where a page is False."""
    writer = pypdf.PdfWriter()
    for has_text in pages:
        if has_text:
            writer.append(io.BytesIO(pdf()))
        else:
            writer.add_blank_page(300, 100)
    if password:
        writer.encrypt(password)
    buffer = io.BytesIO()
    writer.write(buffer)
    return buffer.getvalue()


def test_encrypted_and_scanned_files_are_all_named_in_one_warning(tmp_path, caplog):
    files = {"a.txt": b"tea", "locked.pdf": pdf_of([True], "secret"), "scan.pdf": pdf_of([False, False])}
    data = load_dataset(write(tmp_path, files), questions=False)
    assert [document.doc_id for document in data.documents] == ["a.txt"]
    [warning] = [record.getMessage() for record in caplog.records if record.name.startswith("corag_ray")]
    assert warning == "2 of 3 files are left out: locked.pdf (encrypted), scan.pdf (no text)"
    (tmp_path / "a.txt").unlink()
    with pytest.raises(
        DataError, match=r"none of its 2 documents .*: locked\.pdf \(encrypted\), scan\.pdf \(no text\)"
    ):
        load_dataset(str(tmp_path), questions=False)


def test_pages_are_joined_and_those_without_text_are_named(tmp_path, caplog):
    [text] = texts_of(load_dataset(write(tmp_path, {"a.pdf": pdf_of([True, False, True])}), questions=False))
    assert text.split("\n") == ["Tea came to Britain in 1660.", "", "Tea came to Britain in 1660."]
    assert "a.pdf: 1 of 3 pages hold no text: 2" in caplog.text


@pytest.mark.parametrize(("library", "name"), [("markdown_it", "b.md"), ("bs4", "deep/c.html"), ("pypdf", "d.pdf")])
def test_a_library_that_is_not_installed_is_one_sentence_with_the_extra(tmp_path, monkeypatch, library, name):
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(MissingModelError, match=rf"needs the library {library}: pip install 'corag_ray\[data\]'"):
        load_dataset(write(tmp_path, {name: LAYOUTS["documents"][name]}), questions=False)


@pytest.mark.data
def test_wikipassageqa_in_its_official_layout_holds_what_the_data_folder_holds(tmp_path):
    root = Path(os.environ.get("CORAG_DATA", "data")) / "wikipassageqa"
    if not root.is_dir():
        pytest.skip(f"NOT RUN: there is no {root}; set CORAG_DATA to the folder that holds wikipassageqa")
    corpus, queries = (
        [json.loads(line) for line in gzip.decompress((root / f"{stem}.jsonl.gz").read_bytes()).splitlines()]
        for stem in ("corpus", "queries")
    )
    passages, tables = {}, {split: [tuple(COLUMNS)] for split in ("train", "dev", "test")}
    for record in corpus:
        passages.setdefault(record["doc_id"], {})[record["passage_id"].rpartition("-")[2]] = record["text"]
    for record in queries:
        numbers = ",".join(name.rpartition("-")[2] for name in record["relevant_passage_ids"])
        row = (record["query_id"], record["question"], record["relevant_doc_ids"][0], "name", numbers)
        tables[record["meta"]["official_split"]].append(row)
    files = {f"{split}.tsv": tsv(*rows) for split, rows in tables.items()}
    data = load_dataset(write(tmp_path, files | {"document_passages.json": json.dumps(passages).encode()}))

    assert (len(data.documents), len(corpus), len(data.questions)) == (5, 214, 2481)
    held = {record["passage_id"] for record in corpus}
    named = [name for record in queries for name in record["relevant_passage_ids"]]
    assert data.missing_evidence == sum(name not in held for name in named) > 0
    assert sum(map(len, evidence_of(data).values())) == sum(name in held for name in named) > 0
    for split in tables:
        (tmp_path / f"{split}.tsv").rename(tmp_path / f"{split}.off")
    for split, rows in tables.items():  # one split alone
        (tmp_path / f"{split}.off").rename(tmp_path / f"{split}.tsv")
        questions = load_dataset(str(tmp_path)).questions
        assert len(questions) == len(rows) - 1
        for n in (0, 9, -1):
            row = rows[1:][n]
            assert (questions[n].question_id, questions[n].text) == (row[0], row[1].strip())
        (tmp_path / f"{split}.tsv").rename(tmp_path / f"{split}.off")
    texts = {record["passage_id"]: record["text"] for record in corpus}
    for name in (corpus[0]["passage_id"], corpus[9]["passage_id"], corpus[-1]["passage_id"]):
        doc_id = name.rpartition("-")[0]
        assert texts[name] in next(d.text for d in data.documents if d.doc_id == doc_id)
