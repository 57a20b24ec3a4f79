"""One small, sound folder in each layout: the same three documents and two questions as bytes by file name."""

import gzip
import io
import json

import pyarrow as pa
import pyarrow.parquet as pq

TEXTS = {"7": "Tea came to Britain in 1660.", "8": "The tower is 330 metres high.", "9": "茶 is grown on hills."}
QUESTIONS = {"q1": ("When did tea come?", "7"), "q2": ("How high is the tower?", "8")}
PASSAGES = [{"passage_id": key, "doc_id": f"d{key}", "text": text} for key, text in TEXTS.items()]
QUERIES = [{"query_id": key, "question": q, "relevant_passage_ids": [p]} for key, (q, p) in QUESTIONS.items()]


def jsonl(records):
    return "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records).encode()


def parquet(records):
    buffer = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(records), buffer)
    return buffer.getvalue()


def tsv(*rows):
    return "".join("\t".join(row) + "\n" for row in rows).encode()


def qa_entry(key):
    question, relevant = QUESTIONS[key]
    passages = [{"passage_text": text, "is_selected": int(n == relevant)} for n, text in TEXTS.items()]
    return {"query_id": key, "query": question, "answers": ["yes"], "passages": passages, "query_type": "numeric"}


def columns(entries):
    return json.dumps({key: {str(n): e[key] for n, e in enumerate(entries)} for key in entries[0]}).encode()


PDF_OBJECTS = [
    b"<< /Type /Catalog /Pages 2 0 R >>",
    b"<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
    b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 300 100] /Contents 4 0 R /Resources << /Font << /F1 5 0 R >> >> >>",
    b"<< /Length 57 >>\nstream\nBT /F1 12 Tf 10 50 Td (Tea came to Britain in 1660.) Tj ET\nendstream",
    b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
]


def pdf():
    """A page with one line of text."""
    content, places = b"%PDF-1.4\n", []
    for number, body in enumerate(PDF_OBJECTS, start=1):
        places.append(len(content))
        content += b"%d 0 obj\n%s\nendobj\n" % (number, body)
    table = b"".join(b"%010d 00000 n \n" % place for place in places)
    head = b"xref\n0 %d\n0000000000 65535 f \n" % (len(places) + 1)
    return content + head + table + b"trailer << /Size 6 /Root 1 0 R >>\nstartxref\n%d\n%%%%EOF\n" % len(content)


HTML = b"""<!doctype html><html><head><title>Tower</title><style>p {}</style></head><body><nav>Menu</nav>
<h1>The tower</h1><p>It is <b>330</b> metres high.</p><table><tr><td>lifts</td><td>5</td></tr></table></body></html>"""
MARKDOWN = b"# Tea\n\nIt came to *Britain* in [1660](http://x.y).\n\n- green\n- black\n"

LAYOUTS = {
    "jsonl": {"corpus.jsonl": jsonl(PASSAGES), "queries.jsonl": jsonl(QUERIES)},
    "gzip": {"corpus.jsonl.gz": gzip.compress(jsonl(PASSAGES)), "queries.jsonl.gz": gzip.compress(jsonl(QUERIES))},
    "parquet": {"corpus.parquet": parquet(PASSAGES), "queries.parquet": parquet(QUERIES)},
    "wikipassageqa": {
        "document_passages.json": json.dumps({f"d{key}": {key: text} for key, text in TEXTS.items()}).encode(),
        "test.tsv": tsv(
            ("QID", "Question", "DocumentID", "DocumentName", "RelevantPassages"),
            *((key, question, f"d{p}", "name", f"{p},99") for key, (question, p) in QUESTIONS.items()),
        ),
    },
    "msmarco passages": {
        "collection.tsv": tsv(*TEXTS.items()),
        "queries.dev.tsv": tsv(*((key, question) for key, (question, _) in QUESTIONS.items()), ("q3", "not judged")),
        "qrels.dev.tsv": tsv(("q1", "0", "7", "1"), ("q1", "0", "8", "0"), ("q2", "0", "8", "1")),
    },
    "msmarco qa 1.1": {"dev_v1.1.json": jsonl([qa_entry("q1"), qa_entry("q2")])},
    "msmarco qa 2.1": {"dev_v2.1.json": columns([qa_entry("q1"), qa_entry("q2")])},
    "documents": {
        "a.txt": TEXTS["9"].encode(),
        "b.md": MARKDOWN,
        "deep/c.html": HTML,
        "d.pdf": pdf(),
        "queries.jsonl": jsonl([{"query_id": "q1", "question": "When?", "relevant_passage_ids": ["b.md"]}]),
    },
}


def write(folder, files):
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    return str(folder)
