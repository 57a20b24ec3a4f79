"""Facts of public sets beside the checkout: read whole, in order, nothing lost."""

import os
from collections import Counter
from pathlib import Path

import pytest

from corag_ray.datasets.load import load_dataset

pytestmark = pytest.mark.data


@pytest.fixture(scope="module")
def data_set():
    root = Path(os.environ.get("CORAG_DATA", "data"))
    loaded = {}

    def load(name):
        if not (root / name).is_dir():
            pytest.skip(f"NOT RUN: {root.resolve()} holds no {name}; set CORAG_DATA to the folder that does")
        if name not in loaded:
            loaded[name] = load_dataset(name)
        return loaded[name]

    return load


def check_evidence(data):
    texts = {d.doc_id: d.text for d in data.documents}
    for question in data.questions:
        for evidence in question.evidence:
            assert texts[evidence.span.doc_id][evidence.span.start : evidence.span.end] == evidence.text


def test_hotpotqa_sample_has_its_counts_and_two_passages_of_evidence_a_question(data_set):
    data = data_set("hotpotqa-sample")
    assert (len(data.documents), len(data.questions)) == (7611, 464)
    assert {len(q.evidence) for q in data.questions} == {2}
    check_evidence(data)


def test_hotpotqa_sample_documents_first_tenth_last(data_set):
    documents = data_set("hotpotqa-sample").documents
    first, tenth, last = documents[0], documents[9], documents[-1]
    assert (first.doc_id, tenth.doc_id, last.doc_id) == ("1-Hexanol", "9 to 5 (musical)", "♯JusticeForFlint")
    assert first.text.startswith("1-Hexanol is an organic alcohol with a six-carbon chain")
    assert tenth.text.startswith("9 to 5 (musical)\n9 to 5: The Musical is a musical based on the 1980 movie")
    assert last.text.startswith('♯JusticeForFlint\nInitiated by "Creed" director Ryan Coogler')


def test_hotpotqa_sample_questions_first_tenth_last(data_set):
    questions = data_set("hotpotqa-sample").questions
    assert [
        (q.question_id, q.text[:30], q.answers, [e.span.doc_id for e in q.evidence])
        for q in (questions[0], questions[9], questions[-1])
    ] == [
        (
            "5ae1f4cb554299234fd0436d",
            "What is the inhabitant of the ",
            ("276,170 inhabitants",),
            ["122nd SS-Standarte", "Strasbourg"],
        ),
        (
            "5a8baf775542996e8ac889c8",
            "Signed with Maybach Music Grou",
            ("Wale",),
            ["Wale (rapper)", "Fire of Zamani"],
        ),
        (
            "5ae534bb5542990ba0bbb21d",
            "In between Liberty and MIT Tec",
            ("Liberty",),
            ["MIT Technology Review", "Liberty (Adventist magazine)"],
        ),
    ]


def test_squad_part_is_44_articles_rebuilt_from_2430_paragraphs(data_set):
    data = data_set("squad-v1.1-part")
    assert (len(data.documents), len(data.questions)) == (44, 7018)
    assert {len(q.evidence) for q in data.questions} == {1}
    check_evidence(data)
    assert all(set(q.answers) and any(a in q.evidence[0].text for a in q.answers) for q in data.questions)


def test_squad_part_documents_begin_with_title_and_first_paragraph_and_keep_the_paragraphs_order(data_set):
    documents = data_set("squad-v1.1-part").documents
    first, last = documents[0], documents[-1]
    assert (first.doc_id, last.doc_id) == ("2008_Sichuan_earthquake", "Wayback_Machine")
    assert first.text.startswith(
        "2008 Sichuan earthquake\nThe 2008 Sichuan earthquake or the Great Sichuan earthquake,"
    )
    tenth_paragraph = "\n(The Ms 6.1 earthquake on August 30, 2008 in southern Sichuan was not part of this series"
    assert first.text.split("\n")[10] == (tenth_paragraph[1:] + first.text.split(tenth_paragraph)[1].split("\n")[0])
    assert last.text.split("\n")[-1].startswith("In 2013–14 a pornographic actor was trying to remove archived images")


def test_squad_part_questions_first_tenth_last(data_set):
    questions = data_set("squad-v1.1-part").questions
    assert [
        (q.question_id, q.text[:24], q.answers, q.evidence[0].span.doc_id)
        for q in (questions[0], questions[9], questions[-1])
    ] == [
        ("56d1c3cae7d4791d0090212b", 'Who believes "the outlin', ("Michael Carrithers",), "Buddhism"),
        ("573381524776f41900660c19", "On November 5, 2008, the", ("3%",), "Financial_crisis_of_2007%E2%80%9308"),
        ("56cfeae2234ae51400d9c0ba", "How long was Chopin's fu", ("two weeks",), "Frédéric_Chopin"),
    ]


def test_half_of_squad_2_is_1909_questions_without_and_1662_with_an_answer(data_set):
    questions = data_set("squad-v2-half-dev").questions
    assert Counter((q.answerable, bool(q.answers)) for q in questions) == {(False, False): 1909, (True, True): 1662}


def test_the_unanswerable_questions_of_mtrag_keep_the_refusal_that_the_set_gives_as_their_answer(data_set):
    questions = data_set("mtrag-un").questions
    assert Counter((q.answerable, bool(q.answers)) for q in questions) == {(False, True): 129, (True, True): 169}
