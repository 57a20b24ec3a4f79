"""Token matches on disk come back as they were computed, once, and whole or not at all."""

import numpy as np
import pytest
from made_questions import DIM, asked_of, made_example, unit

from corag_ray.models.set_head import HeadShape, SetHead
from corag_ray.models.token_matches import match_tokens
from jobs.combination import features
from jobs.combination.features import identity_of, prepared_rows, read_matches, stored_matches, write_matches


def vectors(*seeds):
    return [unit(np.random.default_rng(seed).normal(size=(3 + seed % 2, DIM))) for seed in seeds]


class Words:
    """Vectors by the seed that a text ends with."""

    def __init__(self):
        self.texts = []

    def embed_with_tokens(self, texts):
        self.texts += texts
        return None, vectors(*(int(text.split()[-1]) for text in texts))


class Index:
    """One that keeps token vectors, of seed 10 and on by row, or none."""

    def __init__(self, kept, version="1"):
        self.version = version
        self.token_vectors = (lambda rows: vectors(*(10 + row for row in rows))) if kept else None


ASKED = [
    asked_of([{0}, set()], text="why 7"),
    asked_of([{0}], text="how 8"),
    asked_of([{0}, set(), set()], text="who 9"),
]


@pytest.mark.parametrize("kept", [True, False])
def test_matches_are_of_stored_vectors_or_else_of_the_texts_and_come_back_as_float16(tmp_path, kept):
    found = stored_matches(ASKED, Index(kept), Words(), tmp_path)
    assert len(found) == 3
    for asked, seed, one in zip(ASKED, (7, 8, 9), found, strict=True):
        chunks = [10 * kept + row for row in asked.rows]
        expected = match_tokens(vectors(seed)[0], vectors(*chunks)).as_type(np.float16)
        for name in ("query", "nearest", "cosines"):
            stored = getattr(one, name)
            assert stored.dtype == np.float16
            np.testing.assert_array_equal(stored, getattr(expected, name))


def test_they_are_computed_once_and_anew_for_another_index_question_or_candidate(tmp_path):
    words = Words()
    for _ in range(2):
        stored_matches(ASKED, Index(True), words, tmp_path)
    assert words.texts == ["why 7", "how 8", "who 9"]
    changes = [(ASKED, "2"), (ASKED[:2], "1"), ([asked_of([{0}, set()], text="why 5"), *ASKED[1:]], "1")]
    assert len({identity_of(ASKED, "1"), *(identity_of(*change) for change in changes)}) == 4


def test_a_run_killed_while_it_writes_leaves_nothing_that_is_taken_for_whole(tmp_path):
    def broken():
        yield made_example(0).matches
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_matches(tmp_path / "m", broken())
    assert not (tmp_path / "m").exists()
    write_matches(tmp_path / "m", [made_example(1).matches])
    assert len(read_matches(tmp_path / "m")) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["m"]


def test_no_questions_give_no_matches(tmp_path):
    assert stored_matches([], Index(True), Words(), tmp_path) == []
    assert stored_matches([], Index(True), Words(), tmp_path) == []


def test_prepared_rows_are_those_of_the_head_and_a_copy_stands_behind():
    head = SetHead(HeadShape(DIM, projected=4, width=8, heads=2, hidden=8)).eval()
    matches = made_example(3).matches
    plain, copied = prepared_rows(head, matches), prepared_rows(head, matches, copied=2)
    assert plain.dtype == np.float16
    np.testing.assert_array_equal(plain, head.rows(matches.as_type(np.float32)).detach().half().numpy())
    np.testing.assert_array_equal(copied[:-1], plain)
    np.testing.assert_array_equal(copied[-1], plain[3])  # row 0 is that of no chunk
    assert features.NUMBERS != features.SHAPES
