"""What goes wrong in a worker reaches the user as one sentence."""

import pytest
import ray
from ray.exceptions import RayError, RayTaskError

from corag_ray.batch.cluster import ray_cluster
from corag_ray.errors import CoragError, DataError, ProtocolError


class Wrapped(RayError):
    """An error of Ray's that holds what happened in the worker."""

    def __init__(self, cause):
        self.cause = cause
        super().__init__("frames\nof a worker\nand of Ray")


def caused_by(inner, outer):
    outer.__cause__ = inner
    return outer


@pytest.fixture
def running(monkeypatch):
    """A Ray that seems to run: nothing is started."""
    monkeypatch.setattr(ray, "is_initialized", lambda: True)
    monkeypatch.setattr(ray, "cluster_resources", lambda: {"CPU": 4.0})


def raised_for(error):
    with pytest.raises(CoragError) as caught, ray_cluster() as cpus:
        assert cpus == 4.0
        raise error
    assert "\n" not in str(caught.value)
    return caught.value


@pytest.mark.parametrize("kind", [DataError, ProtocolError])
@pytest.mark.parametrize(
    "wrap",
    [
        Wrapped,
        lambda error: Wrapped(Wrapped(error)),
        lambda error: caused_by(Wrapped(error), Wrapped(None)),
        lambda error: RayTaskError("f", "Traceback ..", error).as_instanceof_cause(),
    ],
    ids=["once", "twice", "by cause", "as a task"],
)
def test_an_error_of_ours_comes_out_as_it_was_raised(running, kind, wrap):
    found = raised_for(wrap(kind("the file is broken.")))
    assert (type(found), str(found)) == (kind, "the file is broken.")


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (ValueError("boom"), "a worker failed with ValueError: boom"),
        (MemoryError(), "a worker failed with MemoryError: no message"),
        (OSError("first line\n\nlast line\n"), "a worker failed with OSError: last line"),
    ],
)
def test_any_other_error_is_named_in_one_sentence(running, error, words):
    assert str(raised_for(Wrapped(error))) == words


def test_an_error_of_the_driver_passes_through(running):
    with pytest.raises(ZeroDivisionError), ray_cluster():
        raise ZeroDivisionError
