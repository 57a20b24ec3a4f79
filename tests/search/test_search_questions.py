"""Which questions are asked: others than those that something was chosen or learned by."""

from corag_ray.types import Evidence, Question, Span
from jobs.search.questions import questions_of


def question(*doc_ids, name=""):
    return Question(
        name or " ".join(doc_ids), "why?", evidence=tuple(Evidence(Span(doc_id, 0, 9)) for doc_id in doc_ids)
    )


PARTS = {"a": "train", "b": "dev", "c d": "test", "e": "train", "f": "test"}
QUESTIONS = [question("a"), question("b"), question("c d"), question("e"), question("f"), question("a", "f")]


def asked(learned, which):
    return {one.question_id for one in questions_of(QUESTIONS, PARTS, learned, which, seed=0)}


def test_reported_are_all_but_those_that_parameters_were_chosen_by():
    assert asked({}, "reported") == {"a", "c d", "e", "f"}  # those of two parts are of none
    assert asked({}, "dev") == {"b"}


def test_of_a_trained_reranker_none_that_it_may_have_learned_from_under_any_spelling():
    learned = {"a": "train", "c_d": "dev", "f": "test", "b": "train"}
    assert asked(learned, "reported") == {"e", "f"}
    assert asked(learned, "dev") == {"b"}


def test_the_order_is_drawn_by_the_seed_and_its_beginning_stays_the_same():
    many = [question("f", name=str(n)) for n in range(20)]
    orders = [[one.question_id for one in questions_of(many, PARTS, {}, "reported", seed)] for seed in (0, 0, 1)]
    assert orders[0] == orders[1] != orders[2]
