"""What a reranker is trained on, and which save a killed training goes on from."""

from corag_ray.types import Chunk, Question
from jobs.train_reranker import Asked, last_whole_save, pairs_of

CHUNKS = [Chunk(n, "d", n, 0, 1, f"text {n}", 1) for n in range(7)]


def asked(*holding):
    return Asked(Question("q", "why?"), CHUNKS, [n in holding for n in range(7)])


def test_the_highest_chunk_with_evidence_stands_against_the_three_highest_without():
    expected = [("text 2", 1.0), ("text 0", 0.0), ("text 1", 0.0), ("text 3", 0.0)]
    assert pairs_of(asked(2, 5)) == [("why?", text, label) for text, label in expected]


def test_a_question_without_evidence_or_without_anything_else_teaches_nothing():
    assert pairs_of(asked()) == pairs_of(asked(*range(7))) == []


def test_training_goes_on_from_the_newest_save_that_was_written_whole(tmp_path):
    for step, whole in ((50, True), (100, True), (950, False)):
        (tmp_path / f"checkpoint-{step}").mkdir()
        if whole:
            (tmp_path / f"checkpoint-{step}" / "trainer_state.json").write_text("{}")
    assert last_whole_save(tmp_path) == str(tmp_path / "checkpoint-100")
    assert not (tmp_path / "checkpoint-950").exists()
    assert last_whole_save(tmp_path / "checkpoint-50") is None
