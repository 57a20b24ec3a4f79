"""Which combinations a question is learned with."""

from made_questions import asked_of

from jobs.combination.lessons import drawn, few

ASKED = asked_of([{0}, set(), {1}, set(), set(), set(), set()])


def test_a_few_are_of_the_passes_all_different_and_the_ideal_one_stands_first():
    chosen = few(ASKED, 3, 1, 6)
    assert chosen[0] == ASKED.ideal() == (0, 2)
    assert len(set(chosen)) == len(chosen) == 6
    assert set(chosen) <= set(drawn(ASKED, 3, 1))
    assert len(few(ASKED, 3, 1, 99)) == len(set(drawn(ASKED, 3, 1)))


def test_seed_pass_and_question_decide_and_nothing_else():
    other = asked_of([{0}, set(), {1}, set(), set(), set(), set()], text="how?")
    assert few(ASKED, 3, 1, 6) == few(ASKED, 3, 1, 6)
    assert len({tuple(few(*told, 6)) for told in [(ASKED, 3, 1), (ASKED, 4, 1), (ASKED, 3, 2), (other, 3, 1)]}) == 4
