"""Damaged files of every layout: loaded completely right, or refused in one sentence that names the file; nothing lost.

Each case is a change of one file's bytes. `same` changes must load as the sound folder does; `refused` ones must raise
a `DataError` of one line that names the file, or its folder where the fault is in no file alone. A change that has
no meaning in a format (an unknown column in plain text) is not listed for it.
"""

import datetime
import gzip
import io
import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from data_damages import BOM, JSON_LINES, LATIN, add, become, crlf, cut, first, replace
from data_layouts import LAYOUTS, PASSAGES, QUERIES, columns, jsonl, parquet, qa_entry, write

from corag_ray.datasets.load import load_dataset
from corag_ray.errors import CoragError

HUGE = "tea " * 300_000
OF_THE_FOLDER = {"refused: no rows", "refused: no object", "refused: unasked"}


def parquet_without_rows():
    buffer = io.BytesIO()
    pq.write_table(pa.table({"passage_id": pa.array([], pa.string()), "text": pa.array([], pa.string())}), buffer)
    return buffer.getvalue()


def parquet_with_a_column_twice():
    buffer = io.BytesIO()
    columns = [pa.array(["7"]), pa.array(["lost"]), pa.array(["Tea."])]
    pq.write_table(pa.table(columns, names=["passage_id", "text", "text"]), buffer)
    return buffer.getvalue()


NO_MARKUP = {
    "refused: declaration": add(b"\n\n<p>x</p>\n<![bad[x]]>\n"),
    "refused: long number in an attribute": add(b"\n\n<p title='&#" + b"9" * 5000 + b";'>x</p>\n"),
}
JSONL_CASES = {
    **{
        ("corpus.jsonl", name): change
        for name, change in {
            **JSON_LINES,
            "refused: deep": add(b"[" * 99_999 + b"\n"),
            "refused: two on a line": replace(b"}\n", b"} "),
            "refused: no id": replace(b'"passage_id": "7"', b'"passage_id": " "'),
            "refused: carriage returns alone": lambda c: c.replace(b"\n", b"\r"),
        }.items()
    },
    **{
        ("queries.jsonl", name): change
        for name, change in {
            "same: bom": lambda c: BOM + c,
            "same: crlf": crlf,
            "refused: cut": cut,
            "refused: empty": become(b""),
            "refused: other key": replace(b'"question"', b'"query"'),
            "refused: duplicate id": lambda c: c + c.splitlines(keepends=True)[0],
            "refused: relevant": replace(b'["7"]', b'"7"'),
            "refused: relevant of no words": replace(b'["7"]', b'""'),
            "refused: latin": add(LATIN + b"\n"),
        }.items()
    },
}
GZIP_CASES = {
    ("corpus.jsonl.gz", name): change
    for name, change in {
        "same: two members": lambda c: (lambda t: gzip.compress(t[:9]) + gzip.compress(t[9:]))(gzip.decompress(c)),
        "same: crlf": lambda c: gzip.compress(crlf(gzip.decompress(c))),
        "same: bom": lambda c: gzip.compress(BOM + gzip.decompress(c)),
        "same: uncompressed": lambda c: gzip.compress(gzip.decompress(c), 0),
        **{f"refused: cut at {n}": first(n) for n in (1, 5, 10, 15, 30, 60, -1, -5, -8)},
        "refused: empty inside": become(gzip.compress(b"")),
        "refused: not gzip": become(jsonl(PASSAGES)),
        "refused: bad sum": lambda c: c[:-8] + b"\0\0\0\0" + c[-4:],
        "refused: bad middle": lambda c: c[:40] + b"\xff" * 9 + c[49:],
        "refused: trailing text": add(b"tea"),
        "refused: latin": become(gzip.compress(LATIN)),
        "refused: zip": become(b"PK\x03\x04" + b"\0" * 40),
    }.items()
}
PARQUET_CASES = {
    ("corpus.parquet", name): change
    for name, change in {
        "same: more columns": become(parquet([p | {"extra": 1} for p in PASSAGES])),
        "same: null title": become(parquet([p | {"title": None} for p in PASSAGES])),
        "refused: empty file": become(b""),
        "refused: no rows": become(parquet_without_rows()),
        "refused: other column": become(parquet([{"passage_id": "7", "body": "x"}])),
        "refused: number": become(parquet([{"passage_id": "7", "text": 5}])),
        "refused: null text": become(parquet([PASSAGES[0], {"passage_id": "8", "doc_id": "d8", "text": None}])),
        "refused: list": become(parquet([{"passage_id": "7", "text": ["x"]}])),
        "refused: bytes": become(parquet([{"passage_id": "7", "text": b"x"}])),
        "refused: day": become(parquet([{"passage_id": "7", "text": datetime.date(1660, 1, 1)}])),
        "refused: duplicate id": become(parquet([*PASSAGES, PASSAGES[0]])),
        "refused: column twice": become(parquet_with_a_column_twice()),
        "refused: jsonl": become(jsonl(PASSAGES)),
        "same: bom over the first mark, which nothing reads": lambda c: BOM + c[3:],
        **{f"refused: cut at {n}": first(n) for n in (3, 4, 12, 100, 400, -1, -4, -8, -20)},
        "refused: bad footer": lambda c: c[:-8] + b"\xff\xff\xff\x7f" + c[-4:],
        "refused: no head": lambda c: b"\0\0\0\0" * 20,
    }.items()
}
WIKI_CASES = {
    **{
        ("document_passages.json", name): change
        for name, change in {
            "same: bom": lambda c: BOM + c,
            "same: indented": lambda c: json.dumps(json.loads(c), indent=2).encode(),
            "same: crlf": lambda c: crlf(json.dumps(json.loads(c), indent=2).encode()),
            "refused: cut": cut,
            "refused: empty": become(b""),
            "refused: list": become(b"[]"),
            "refused: flat": become(b'{"d7": "tea"}'),
            "refused: no object": become(b"{}"),
            "refused: named passage": replace(b'{"7":', b'{"seven":'),
            "refused: raised passage": replace(b'{"7":', '{"²":'.encode()),
            "refused: passage twice": replace(b'{"7":', b'{"7": "lost", "7":'),
            "refused: duplicate document": replace(b'"d8":', b'"d7":'),
            "refused: latin": replace(b"Tea", LATIN),
            "refused: number": replace(b'"Tea came to Britain in 1660."', b"1"),
            "refused: deep": become(b'{"a":' * 9999),
        }.items()
    },
    **{
        ("test.tsv", name): change
        for name, change in {
            "same: bom": lambda c: BOM + c,
            "same: crlf": crlf,
            "refused: no header": lambda c: c.split(b"\n", 1)[1],
            "refused: cut": lambda c: c[: c.rindex(b"\t")],
            "refused: empty": become(b""),
            "refused: header": replace(b"QID", b"ID"),
            "refused: commas": lambda c: c.replace(b"\t", b","),
            "refused: latin": replace(b"tea", LATIN),
            "refused: relevant": replace(b"7,99", b"seven"),
            "refused: duplicate id": replace(b"q2", b"q1"),
        }.items()
    },
}
MARCO_CASES = {
    **{
        ("collection.tsv", name): change
        for name, change in {
            "same: bom": lambda c: BOM + c,
            "same: crlf": crlf,
            "same: blank lines": add(b"\n\n"),
            "refused: cut": lambda c: c[: c.rindex(b"\t")],
            "refused: empty": become(b""),
            "refused: latin": replace(b"Tea", LATIN),
            "refused: blanks": lambda c: c.replace(b"\t", b" "),
            "refused: third column": replace(b"\n", b"\tx\n"),
            "refused: duplicate id": lambda c: c + c.splitlines(keepends=True)[0],
        }.items()
    },
    **{
        ("qrels.dev.tsv", name): change
        for name, change in {
            "same: blanks": lambda c: c.replace(b"\t", b" "),
            "same: crlf": crlf,
            "same: bom": lambda c: BOM + c,
            "same: twice": lambda c: c + c,
            "refused: empty": become(b""),
            "refused: three columns": become(b"q1 7 1\n"),
            "refused: word": replace(b"\t1\n", b"\tyes\n"),
            "refused: minus": replace(b"\t1\n", b"\t--1\n"),
            "refused: raised": replace(b"\t1\n", "\t²\n".encode()),
            "refused: other grade": add(b"q1\t0\t7\t0\n"),
            "refused: unasked": add(b"q9\t0\t7\t1\n"),
            "refused: latin": add(LATIN),
        }.items()
    },
    **{
        ("queries.dev.tsv", name): change
        for name, change in {
            "same: crlf": crlf,
            "same: bom": lambda c: BOM + c,
            "refused: empty": become(b""),
            "refused: blanks": lambda c: c.replace(b"\t", b" "),
            "refused: latin": replace(b"tea", LATIN),
            "refused: duplicate id": lambda c: c + c,
        }.items()
    },
}
ENTRIES = [qa_entry("q1"), qa_entry("q2")]
QA_CHANGES = {
    "refused: cut": cut,
    "refused: empty": become(b""),
    "refused: list": become(b"[]"),
    "refused: latin": replace(b"Tea", LATIN),
    "refused: no passages": replace(b'"passages"', b'"texts"'),
    "refused: no text": replace(b'"passage_text"', b'"txt"'),
    "refused: no query": replace(b'"query": ', b'"question": '),
    "refused: no id": replace(b'"query_id"', b'"id"'),
    "refused: deep": become(b'{"query":' * 9999),
    "refused: nul": become(b"\0\0\0"),
    "refused: text": become(b"tea\n"),
    "refused: utf-16": lambda c: c.decode().encode("utf-16"),
    "refused: key twice": replace(b'"passage_text"', b'"passage_text": "lost", "passage_text"'),
    "refused: mark": replace(b'"is_selected": 1', b'"is_selected": "1"'),
    "same: bom": lambda c: BOM + c,
}
QA1_CASES = {
    ("dev_v1.1.json", name): change
    for name, change in {
        **QA_CHANGES,
        "same: crlf": crlf,
        "same: blank lines": add(b"\n\n"),
        "refused: duplicate id": lambda c: c + c,
        "refused: answers": replace(b'["yes"]', b'"yes"'),
        "refused: passages": replace(b'"passages": [', b'"passages": [3, '),
        "refused: answer": replace(b'["yes"]', b"[1]"),
        "refused: number": replace(b'"Tea came to Britain in 1660."', b"5"),
    }.items()
}
QA2_CASES = {
    ("dev_v2.1.json", name): change
    for name, change in {
        **QA_CHANGES,
        "same: indented": lambda c: json.dumps(json.loads(c), indent=1).encode(),
        "same: crlf": lambda c: crlf(json.dumps(json.loads(c), indent=1).encode()),
        "refused: short column": replace(b'"1": ["yes"]', b'"2": ["yes"]'),
        "refused: duplicate id": become(columns([ENTRIES[0]] * 2)),
        "refused: answers": replace(b'["yes"]', b'"yes"'),
        "refused: passages": replace(b'"passages": {"0": [', b'"passages": {"0": [3, '),
        "refused: column": replace(b'"answers": {"0"', b'"answers": 5, "other": {"0"'),
        "refused: long column": replace(b'{"0": ["yes"]', b'{"9": ["lost"], "0": ["yes"]'),
        "refused: row twice": replace(b'{"0": ["yes"]', b'{"0": ["lost"], "0": ["yes"]'),
    }.items()
}
DOCUMENT_CASES = {
    **{
        ("a.txt", name): change
        for name, change in {
            "same: bom": lambda c: BOM + c,
            "refused: latin": become(LATIN),
            "refused: utf-16": lambda c: c.decode().encode("utf-16"),
            "refused: cut in a character": lambda c: c[:2],
            "refused: zip": become(b"PK\x03\x04\xff\xfe" * 9),
        }.items()
    },
    **{
        ("b.md", name): change
        for name, change in {
            "same: bom": lambda c: BOM + c,
            "same: crlf": crlf,
            "refused: latin": become(LATIN),
            "same: comment": add(b"\n<!-- no -->\n"),
            "refused: utf-16": lambda c: c.decode().encode("utf-16"),
            "refused: cut in a character": add("茶".encode()[:2]),
            "refused: deep": add(b"\n" + b"> " * 9999 + b"x"),
            **NO_MARKUP,
        }.items()
    },
    **{
        ("deep/c.html", name): change
        for name, change in {
            "same: bom": lambda c: BOM + c,
            "same: crlf": crlf,
            "same: unclosed": lambda c: c.replace(b"</body></html>", b""),
            "same: script": replace(b"</nav>", b"</nav><script>no()</script>"),
            "refused: latin": add(LATIN),
            "refused: utf-16": lambda c: c.decode().encode("utf-16"),
            "same: deep": replace(b"<h1>", b"<div>" * 9999 + b"<h1>"),
            "refused: long number": add(b"&#" + b"9" * 5000 + b";"),
            **NO_MARKUP,
        }.items()
    },
    **{
        ("d.pdf", name): change
        for name, change in {
            "refused: empty": become(b""),
            "refused: text": become(b"tea\n"),
            "refused: cut": lambda c: c[:60],
            "refused: head": become(b"%PDF-1.4\n"),
            "same: no root, which is found all the same": replace(b"/Root 1 0 R", b""),
            "refused: html": become(b"<html>"),
            **{f"refused: cut at {n}": first(n) for n in (9, 120, 330, 420, 560)},
        }.items()
    },
}


CASES = {
    "jsonl": JSONL_CASES,
    "gzip": GZIP_CASES,
    "parquet": PARQUET_CASES,
    "wikipassageqa": WIKI_CASES,
    "msmarco passages": MARCO_CASES,
    "msmarco qa 1.1": QA1_CASES,
    "msmarco qa 2.1": QA2_CASES,
    "documents": DOCUMENT_CASES,
}


def test_each_layout_has_at_least_twenty_damages():
    assert {layout: len(cases) for layout, cases in CASES.items() if len(cases) < 20} == {}


@pytest.mark.parametrize(
    ("layout", "name", "case"), [(layout, *key) for layout, cases in CASES.items() for key in cases]
)
def test_a_damaged_file_loads_right_or_is_refused_by_name(tmp_path, layout, name, case):
    files = LAYOUTS[layout]
    sound = load_dataset(write(tmp_path / "folder", files))
    folder = write(tmp_path / "folder", {name: CASES[layout][name, case](files[name])})
    if case.startswith("same"):
        assert load_dataset(folder) == sound
        return
    with pytest.raises(CoragError) as refusal:
        load_dataset(folder)
    message = str(refusal.value)
    assert (folder if case in OF_THE_FOLDER else name) in message
    assert len(message.splitlines()) == 1
    assert len(message) < 600


HUGE_FILES = {
    "jsonl": {"corpus.jsonl": jsonl([*PASSAGES, {"passage_id": "x", "text": HUGE}])},
    "gzip": {"corpus.jsonl.gz": gzip.compress(jsonl([*PASSAGES, {"passage_id": "x", "text": HUGE}]))},
    "parquet": {"corpus.parquet": parquet([*PASSAGES, {"passage_id": "x", "text": HUGE}])},
    "wikipassageqa": {"document_passages.json": json.dumps({"d7": {"7": "tea"}, "x": {"1": HUGE}}).encode()},
    "msmarco passages": {"collection.tsv": f"7\ttea\nx\t{HUGE}\n".encode()},
    "msmarco qa 1.1": {"dev_v1.1.json": jsonl([qa_entry("q1") | {"passages": [{"passage_text": HUGE}]}])},
    "msmarco qa 2.1": {"dev_v2.1.json": columns([qa_entry("q1") | {"passages": [{"passage_text": HUGE}]}])},
    "documents": {"e.md": HUGE.encode(), "e.txt": HUGE.encode(), "e.html": b"<p>" + HUGE.encode()},
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_huge_line_is_kept_whole(tmp_path, layout):
    files = HUGE_FILES[layout]
    documents = load_dataset(write(tmp_path, LAYOUTS[layout] | files), questions=False).documents
    texts = [document.text.strip() for document in documents if len(document.text) > 999]
    assert texts == [HUGE.strip()] * len(files)


def test_questions_of_the_sound_folders_are_all_there(tmp_path):
    for layout, files in LAYOUTS.items():
        data = load_dataset(write(tmp_path / layout, files))
        assert len(data.questions) == (1 if layout == "documents" else len(QUERIES))
