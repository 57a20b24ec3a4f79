"""Errors: one base for all that a user can mend, and the sentence that suggests a name."""

import pytest

from corag_ray import errors
from corag_ray.errors import ConfigError, CoragError, unknown_name

KINDS = ["ConfigError", "DataError", "ProtocolError", "MissingModelError", "MemoryLimitError", "RowError"]


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_is_caught_as_a_corag_error_and_none_as_another_kind(kind):
    others = {k for k in vars(errors).values() if isinstance(k, type) and issubclass(k, CoragError)} - {CoragError}
    caught = {k.__name__ for k in others if issubclass(getattr(errors, kind), k)}
    assert caught == {kind}
    assert issubclass(getattr(errors, kind), CoragError)


def test_a_near_miss_suggests_the_nearest_name_and_lists_all_sorted():
    error = unknown_name("preset", "repot", ["seed", "report", "carrot"])
    assert isinstance(error, ConfigError)
    assert str(error) == "unknown preset 'repot'; did you mean 'report'? Known: carrot, report, seed."


def test_a_name_near_to_nothing_gets_the_list_without_a_suggestion():
    assert str(unknown_name("preset", "zzz", ["seed", "carrot"])) == "unknown preset 'zzz'; Known: carrot, seed."


def test_known_names_may_be_an_iterator():
    assert str(unknown_name("x", "b1", iter(["b", "a"]))).endswith("Known: a, b.")
