"""Data folders: documents rebuilt from passages, questions with their evidence, and errors with file and line."""

import gzip
import json

import pytest

from corag_ray.datasets.load import load_dataset
from corag_ray.errors import ConfigError, DataError
from corag_ray.types import Document, Evidence, Question, Span

PASSAGES = [{"passage_id": "p", "text": "Tea is old."}]
QUERIES = [{"query_id": "q", "question": "How old?"}]


def lines(records):
    return "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records).encode()


@pytest.fixture
def load(tmp_path):
    """Writes a folder from records, or from bytes as they are, and loads it."""

    def write_and_load(corpus=PASSAGES, queries=QUERIES, suffix=""):
        for stem, content in (("corpus", corpus), ("queries", queries)):
            content = content if isinstance(content, bytes) else lines(content)
            (tmp_path / f"{stem}.jsonl{suffix}").write_bytes(content)
        return load_dataset(str(tmp_path))

    return write_and_load


# The sample that comes with the package.


@pytest.fixture(scope="module")
def sample():
    return load_dataset("sample")


def test_the_sample_is_a_corpus_of_three_languages(sample):
    assert sample.name == "sample"
    assert len(sample.documents) >= 60
    assert len(sample.questions) >= 120
    assert len({d.doc_id for d in sample.documents}) == len(sample.documents)
    for language in ("en", "zh", "es"):
        assert sum(q.language == language for q in sample.questions) >= 0.15 * len(sample.questions)
    chinese = [q for q in sample.questions if q.language == "zh"]
    assert all(any("\u4e00" <= c <= "\u9fff" for c in q.text) for q in chinese)


def test_every_question_of_the_sample_has_answers_and_evidence_that_stands_in_its_document(sample):
    texts = {d.doc_id: d.text for d in sample.documents}
    for question in sample.questions:
        assert question.text.strip()
        assert question.answers
        assert question.evidence
        for evidence in question.evidence:
            span = evidence.span
            assert texts[span.doc_id][span.start : span.end] == evidence.text != ""


def test_the_samples_documents_are_longer_than_a_passage_and_begin_with_their_title(sample):
    tower = next(d for d in sample.documents if d.doc_id == "eiffel-tower")
    assert tower.text.startswith("Eiffel Tower\nThe Eiffel Tower is a wrought-iron lattice tower")
    positions = [tower.text.index(words) for words in ("wrought-iron", "Today the Eiffel Tower is 330", "centrepiece")]
    assert positions == sorted(positions)


# Documents from passages.


def passage(passage_id, text, **more):
    return {"passage_id": passage_id, "text": text} | more


def test_a_quote_is_evidence_at_its_place_and_outranks_the_relevant_passages(load):
    query = QUERIES[0] | {"relevant_passage_ids": ["p"], "evidence": [{"passage_id": "p", "quote": "old"}]}
    [question] = load([passage("p", "Tea is old.", title="茶")], [query]).questions
    assert question.evidence == (Evidence(Span("p", 9, 12), text="old"),)


def test_a_quote_may_mark_the_answer_within_it(load):
    entry = {"passage_id": "p", "quote": "is old", "answer": "old"}
    queries = [QUERIES[0] | {"evidence": [entry, {"passage_id": "p", "quote": "Tea", "answer": ""}]}]
    [question] = load([passage("p", "Tea is old.", title="茶")], queries).questions
    assert question.evidence == (
        Evidence(Span("p", 6, 12), Span("p", 9, 12), "is old"),
        Evidence(Span("p", 2, 5), None, "Tea"),
    )


def test_relevant_passages_that_the_corpus_lacks_are_counted(load):
    assert load().missing_evidence == 0
    named = [["p", "gone"], ["gone", "lost"], []]
    queries = [{"query_id": n, "question": "?", "relevant_passage_ids": ids} for n, ids in enumerate(named)]
    data = load(queries=queries)
    assert data.missing_evidence == 3
    assert [len(question.evidence) for question in data.questions] == [1, 0, 0]


def test_what_a_line_names_twice_is_evidence_once_and_missing_once(load):
    quote = {"passage_id": "p", "quote": "old"}
    queries = [
        {"query_id": "a", "question": "?", "relevant_passage_ids": ["p", "gone", "p", "gone"]},
        {"query_id": "b", "question": "?", "evidence": [quote, quote]},
    ]
    data = load(queries=queries)
    assert [[e.text for e in question.evidence] for question in data.questions] == [["Tea is old."], ["old"]]
    assert data.missing_evidence == 1


def test_an_empty_list_of_quotes_leaves_the_relevant_passages(load):
    [question] = load(queries=[QUERIES[0] | {"evidence": [], "relevant_passage_ids": ["p"]}]).questions
    assert question.evidence == (Evidence(Span("p", 0, 11), text="Tea is old."),)


@pytest.mark.parametrize(
    ("answers", "marked"),
    [
        (["old"], (9, 12)),
        (["young", "is old", "old"], (6, 12)),
        (["a"], (4, 5)),
        (["Old"], None),
        (["", " "], None),
        ([], None),
    ],
)
def test_an_answer_that_stands_once_in_a_relevant_passage_is_marked_in_it(load, answers, marked):
    query = QUERIES[0] | {"relevant_passage_ids": ["p"], "answers": answers}
    [question] = load([passage("p", "Tea is old.", title="茶")], [query]).questions
    expected = marked and Span("p", *marked)
    assert question.evidence == (Evidence(Span("p", 2, 13), expected, "Tea is old."),)


def test_an_answer_that_stands_in_a_passage_twice_marks_no_place(load):
    query = QUERIES[0] | {"relevant_passage_ids": ["p"], "answers": ["is"]}
    [question] = load([passage("p", "This is old.")], [query]).questions
    assert question.evidence[0].answer is None


def test_a_question_carries_what_its_line_says(load):
    full = {"query_id": 7, "question": "多高？", "answers": ["330"], "language": "zh", "meta": {"kind": "fact"}}
    assert load(queries=[full, *QUERIES]).questions == (
        Question("7", "多高？", ("330",), (), "zh", "fact"),
        Question("q", "How old?", (), (), "en", None),
    )


@pytest.mark.parametrize(
    ("said", "answerable"), [({"answerable": True}, True), ({"answerable": False}, False), ({"answerable": None}, None)]
)
def test_a_line_may_say_whether_the_corpus_holds_the_answer(load, said, answerable):
    [marked, unmarked] = load(queries=[{"query_id": "r", "question": "?"} | said, *QUERIES]).questions
    assert (marked.answerable, unmarked.answerable) == (answerable, None)


def test_ids_may_be_numbers_wherever_they_stand(load):
    corpus = [passage(5, "five"), passage(6, "six", doc_id=3)]
    data = load(corpus, [{"query_id": 1, "question": "?", "relevant_passage_ids": [6, "5"]}])
    assert [d.doc_id for d in data.documents] == ["5", "3"]
    assert [e.text for e in data.questions[0].evidence] == ["six", "five"]


# Files as they come.


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_byte_order_mark_carriage_returns_blank_lines_and_gzip_change_nothing(load, suffix):
    plain = lines([passage("p#1", "é 茶", doc_id="p"), passage("p#2", "two", doc_id="p")])
    dressed = b"\xef\xbb\xbf" + plain.replace(b"\n", b"\r\n\r\n").rstrip()
    pack = gzip.compress if suffix else bytes
    data = load(pack(dressed), pack(b"\xef\xbb\xbf" + lines(QUERIES)), suffix)
    assert data.documents == (Document("p", "é 茶\ntwo"),)
    assert data.questions[0].question_id == "q"


def test_the_fingerprint_changes_with_texts_ids_and_order_and_with_nothing_else(load):
    one, two = passage("a", "x"), passage("b", "y")
    first = load([one, two])
    assert load([one, two], [QUERIES[0] | {"question": "Why?"}]).fingerprint == first.fingerprint
    others = [load(c).fingerprint for c in ([two, one], [one], [passage("a", "xb"), two], [passage("ax", ""), two])]
    assert len({first.fingerprint, *others}) == 5


def test_the_questions_fingerprint_changes_with_answers_and_evidence(load):
    first = load().questions_fingerprint
    assert load([*PASSAGES, passage("z", "more")]).questions_fingerprint == first
    assert load(queries=[QUERIES[0] | {"answers": ["x"]}]).questions_fingerprint != first
    assert load(queries=[QUERIES[0] | {"relevant_passage_ids": ["p"]}]).questions_fingerprint != first
    assert load(queries=[QUERIES[0] | {"answerable": False}]).questions_fingerprint != first


def test_without_questions_no_queries_file_is_read(load, tmp_path):
    whole = load()
    (tmp_path / "queries.jsonl").write_bytes(b"{broken")
    corpus = load_dataset(str(tmp_path), questions=False)
    (tmp_path / "queries.jsonl").unlink()
    assert load_dataset(str(tmp_path), questions=False) == corpus
    assert (corpus.questions, corpus.missing_evidence) == ((), 0)
    assert (corpus.documents, corpus.fingerprint) == (whole.documents, whole.fingerprint)  # so the index is the same


# What is refused, with its place.

GOOD = lines([passage("a", "x")])


@pytest.mark.parametrize(
    ("corpus", "place", "words"),
    [
        (GOOD + b"{broken\n", 2, "not a line of JSON in UTF-8"),
        (GOOD + b"\n\n" + b'{"passage_id": "b", "text": "caf\xe9"}\n', 4, "not a line of text in UTF-8"),
        (GOOD + b'["b", "x"]\n', 2, "expected a JSON object, found list"),
        (GOOD + b"null\n", 2, "expected a JSON object, found NoneType"),
        (GOOD + b"[" * 100_000 + b"\n", 2, "not a line of JSON in UTF-8"),
        (GOOD + GOOD, 2, "passage_id 'a' was already used at"),
        (GOOD + lines([{"text": "x"}]), 2, "the key 'passage_id' is missing; found text"),
        (GOOD + lines([{"passage_id": "b"}]), 2, "the key 'text' is missing; found passage_id"),
        (GOOD + lines([passage("b", ["x"])]), 2, "'text' must be a string"),
        (GOOD + lines([passage(True, "x")]), 2, "'passage_id' must be a string, found true"),
        (GOOD + b'{"passage_id": "b", "text": "x\\ud83d"}\n', 2, "half of a character"),
    ],
)
def test_a_broken_passage_is_named_by_file_and_line(load, corpus, place, words):
    with pytest.raises(DataError, match=words) as error:
        load(corpus)
    assert f"corpus.jsonl:{place}" in str(error.value).split(": ")[0]
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ({"question": "?"}, "the key 'query_id' is missing; found question"),
        ({"query_id": "r"}, "the key 'question' is missing; found query_id"),
        ({"query_id": "q", "question": "?"}, "query_id 'q' was used before"),
        ({"query_id": "r", "question": "?", "answers": "tea"}, "'answers' must be a list, found str"),
        ({"query_id": "r", "question": "?", "answers": [1660]}, "'answers' must be a string, found 1660"),
        ({"query_id": "r", "question": "?", "relevant_passage_ids": {"p": 1}}, "must be a list, found dict"),
        ({"query_id": "r", "question": "?", "answerable": "no"}, "'answerable' must be true or false, found \"no\""),
        ({"query_id": "r", "question": "?", "answerable": 0}, "'answerable' must be true or false, found 0"),
        (
            {"query_id": "r", "question": "?", "evidence": [{"passage_id": "p", "quote": "new"}]},
            "the quote 'new' does not stand in passage 'p'",
        ),
        (
            {"query_id": "r", "question": "?", "evidence": [{"passage_id": "z", "quote": "old"}]},
            "the quote 'old' does not stand in passage 'z'",
        ),
        (
            {"query_id": "r", "question": "?", "evidence": [{"passage_id": "p", "quote": ""}]},
            "the quote '' does not stand in passage 'p'",
        ),
        (
            {"query_id": "r", "question": "?", "evidence": [{"passage_id": "p", "quote": "is old", "answer": "Tea"}]},
            "the answer 'Tea' does not stand in its quote",
        ),
        (
            {"query_id": "r", "question": "?", "evidence": [{"passage_id": "p", "quote": "is old", "answer": 3}]},
            "'answer' must be a string, found 3",
        ),
        ({"query_id": "r", "question": "?", "evidence": ["old"]}, "'evidence' must be a list of objects"),
        ({"query_id": "r", "question": "?", "evidence": None}, "'evidence' must be a list of objects"),
        ({"query_id": "r", "question": "?", "evidence": {"quote": "old"}}, "'evidence' must be a list of objects"),
    ],
)
def test_a_broken_question_is_named_by_file_and_line(load, query, words):
    with pytest.raises(DataError, match=words) as error:
        load(queries=[*QUERIES, query])
    assert "queries.jsonl:2: " in str(error.value)


def test_a_truncated_gzip_is_named(load):
    many = gzip.compress(lines([passage(f"p{n}", "text " * 50) for n in range(500)]))
    with pytest.raises(DataError, match=r"corpus\.jsonl\.gz:\d+: cannot be read"):
        load(many[: len(many) // 2], gzip.compress(lines(QUERIES)), ".gz")


def test_a_file_that_is_called_gz_and_is_not_is_named(load):
    with pytest.raises(DataError, match=r"corpus\.jsonl\.gz:1: "):
        load(GOOD, lines(QUERIES), ".gz")


@pytest.mark.parametrize("corpus", [b"", b"\n \n"])
def test_an_empty_corpus_is_refused(load, corpus):
    with pytest.raises(DataError, match=r"corpus\.jsonl: the file is empty: it holds no line"):
        load(corpus)


@pytest.mark.parametrize("queries", [b"", b"\n \n"])
def test_an_empty_queries_file_is_refused(load, queries):
    with pytest.raises(DataError, match=r"queries\.jsonl: the file is empty: it holds no line"):
        load(queries=queries)


def test_an_id_of_two_documents_is_refused(load):
    corpus = [passage("intro", "a", doc_id="d"), passage("body", "b", doc_id="d"), passage("x", "c", doc_id="intro")]
    with pytest.raises(DataError, match="'intro' names two documents"):
        load(corpus)


@pytest.mark.parametrize("missing", ["corpus", "queries"])
def test_a_folder_without_one_of_its_files_says_which(load, tmp_path, missing):
    load()
    (tmp_path / f"{missing}.jsonl").unlink()
    with pytest.raises(DataError, match=rf"{missing}\.jsonl"):
        load_dataset(str(tmp_path))


def test_an_unknown_name_suggests_the_nearest_and_says_where_it_looked(tmp_path, monkeypatch):
    (tmp_path / "hotpot").mkdir()
    monkeypatch.setenv("CORAG_DATA", str(tmp_path))
    with pytest.raises(ConfigError, match=r"data set .* 'hotpt'; did you mean 'hotpot'\? Known: hotpot, sample"):
        load_dataset("hotpt")
    with pytest.raises(ConfigError, match="did you mean 'sample'"):
        load_dataset("smaple")
    monkeypatch.setenv("CORAG_DATA", str(tmp_path / "nowhere"))
    with pytest.raises(ConfigError, match=r"nowhere.*Known: sample\."):
        load_dataset("xyz")


def test_the_data_variable_is_said_to_set_the_folder_only_where_it_does(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("CORAG_DATA", raising=False)
    with pytest.raises(ConfigError, match=r"looked in 'data', the default; CORAG_DATA can name another folder"):
        load_dataset("xyz")
    monkeypatch.setenv("CORAG_DATA", "data")
    with pytest.raises(ConfigError, match="looked in 'data', which CORAG_DATA sets"):
        load_dataset("xyz")


def test_a_name_is_looked_up_under_the_data_variable(load, tmp_path, monkeypatch):
    load()
    monkeypatch.setenv("CORAG_DATA", str(tmp_path.parent))
    assert load_dataset(tmp_path.name).documents == (Document("p", "Tea is old."),)
