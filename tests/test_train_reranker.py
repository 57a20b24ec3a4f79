"""What a reranker is trained on, and which save a killed training goes on from."""

import random

import pytest

from corag_ray.errors import MissingModelError
from corag_ray.types import Chunk, Evidence, Question, Score, Span
from jobs.question_kinds import kind_of
from jobs.train_reranker import (
    EXCERPT,
    RIGHT,
    RIGHT_BESIDE_TEACHER,
    Asked,
    evenly,
    excerpt,
    figures_of,
    last_whole_save,
    lesson_of,
    standard_scores,
)

CHUNKS = [Chunk(n, "d", n, 10 * n, 10 * n + 6, f"text {n}", 1) for n in range(7)]


def asked(*holding):
    return Asked(Question("q", "why?"), CHUNKS, [n in holding for n in range(7)], [0.0] * 7)


def lesson(*holding, seed=0):
    return lesson_of(asked(*holding), RIGHT, random.Random(seed))


def test_the_highest_chunk_with_evidence_stands_against_the_two_highest_without_and_one_of_the_others():
    others = set()
    for seed in range(30):
        found = lesson(2, 5, seed=seed)
        assert (found.question, found.texts[:3]) == ("why?", ["text 2", "text 0", "text 1"])
        assert found.labels == [RIGHT, 0.0, 0.0, 0.0]
        others.add(found.texts[3])
    assert others == {"text 3", "text 4", "text 6"}


def test_a_lesson_of_few_candidates_is_short():
    two = Asked(Question("q", "why?"), CHUNKS[:2], [False, True], [0.0, 0.0])
    found = lesson_of(two, RIGHT, random.Random(0))
    assert (found.texts, found.labels) == (["text 1", "text 0"], [RIGHT, 0.0])


def test_a_teacher_s_scores_stand_beside_the_evidence():
    taught = Asked(Question("q", "why?"), CHUNKS[:3], [False, True, False], [1.5, -0.5, -1.0])
    assert lesson_of(taught, RIGHT_BESIDE_TEACHER, random.Random(0)).labels == [2.5, 1.5, -1.0]


def test_a_teacher_s_scores_of_one_question_are_told_in_units_of_their_spread():
    class Teacher:
        def prepare(self, query, candidates, rows):
            return dict(zip(range(len(rows)), rows, strict=True))

        def score(self, pairs):
            return [Score(raw=raws[table[place]], calibrated=0.5) for table, (place,) in pairs]

    raws = {3: 0.2, 9: 0.6, 4: 0.5, 1: 0.3}  # mean .4, variance .025
    found = standard_scores(Teacher(), Question("q", "?"), CHUNKS[:4], [3, 9, 4, 1])
    assert found == pytest.approx([-1.2649, 1.2649, 0.6325, -0.6325], abs=1e-4)
    assert standard_scores(Teacher(), Question("q", "?"), CHUNKS[:2], [3, 3]) == [0.0, 0.0]
    assert standard_scores(Teacher(), Question("q", "?"), [], []) == []


def test_a_question_without_evidence_or_without_anything_else_teaches_nothing():
    assert lesson() is lesson(*range(7)) is None


@pytest.mark.parametrize("place", [0, 300, 590, 610, 1400, 1940])
def test_an_excerpt_holds_the_marked_answer_wherever_it_stands(place):
    text = "." * place + "<answer>" + "." * (2000 - place - 8)
    chunk = Chunk(1, "d", 0, 100, 2100, text, 1)
    answer = Span("d", 100 + place, 100 + place + 8)
    evidence = (Evidence(Span("d", 100, 2100), answer),)
    other = Chunk(2, "d", 1, 2100, 2103, "???", 1)
    starts = set()
    for seed in range(20):
        drawn = random.Random(seed)
        question = Question("q", "?", evidence=evidence)
        one = lesson_of(Asked(question, [other, chunk], [False, True], [0.0, 0.0]), RIGHT, drawn)
        assert len(one.texts[0]) == EXCERPT and "<answer>" in one.texts[0]
        starts.add(one.texts[0].index("<answer>"))
    assert len(starts) > 1 or place == 0


def test_an_excerpt_is_drawn_from_all_of_a_chunk_and_a_short_chunk_is_read_whole():
    chunk = Chunk(1, "d", 0, 0, 1400, "".join(f"{n:04}" for n in range(350)), 1)
    found = [excerpt(chunk, None, random.Random(seed)) for seed in range(200)]
    assert {len(text) for text in found} == {EXCERPT} and all(text in chunk.text for text in found)
    starts = [chunk.text.index(text[:8]) for text in found]
    assert min(starts) < 80 and max(starts) > 720
    assert excerpt(CHUNKS[0], Span("d", 0, 2), random.Random(0)) == "text 0"


def test_questions_are_taken_from_all_over():
    assert evenly(range(101), 5) == [0, 25, 50, 75, 100]
    assert evenly([3, 1, 2], 9) == [3, 1, 2]


def test_training_goes_on_from_the_newest_save_that_was_written_whole(tmp_path):
    for step, whole in ((50, True), (100, True), (950, False)):
        (tmp_path / f"checkpoint-{step}").mkdir()
        if whole:
            (tmp_path / f"checkpoint-{step}" / "trainer_state.json").write_text("{}")
    assert last_whole_save(tmp_path) == str(tmp_path / "checkpoint-100")
    assert not (tmp_path / "checkpoint-950").exists()
    assert last_whole_save(tmp_path / "checkpoint-50") is None


@pytest.mark.parametrize(
    ("question", "kind"),
    [
        ("Who wrote Emma?", "facts"),
        ("In what year was the bridge opened?", "facts"),
        ("what former capital city lies on the Nile?", "facts"),
        ("How many moons has Mars?", "facts"),
        ("For WHOM was it built?", "facts"),
        ("How does a sail lift a boat?", "explanations"),
        ("Why is the sea salt?", "explanations"),
        ("What causes tides, somewhat?", "explanations"),
        ("", "explanations"),
    ],
)
def test_a_question_is_told_by_its_words(question, kind):
    assert kind_of(question) == kind


def test_a_model_to_go_on_from_must_tell_what_it_learned_from(tmp_path):
    assert figures_of(None) == {}
    with pytest.raises(MissingModelError, match="name a folder that this job has written"):
        figures_of(tmp_path)
    (tmp_path / "figures.json").write_text('{"data": ["selqa"]}')
    assert figures_of(tmp_path) == {"data": ["selqa"]}
