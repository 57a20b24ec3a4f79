"""Too few CPUs are refused before a Ray starts; what goes wrong in a worker reaches the user as one sentence."""

import logging

import pytest
import ray
from ray.exceptions import RayError, RayTaskError

from corag_ray.batch.cluster import ray_cluster
from corag_ray.batch.progress import stages
from corag_ray.errors import ConfigError, CoragError, DataError, ProtocolError


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


def any_number(cpus):
    assert cpus >= 1


def raised_for(error):
    with pytest.raises(CoragError) as caught, ray_cluster(any_number):
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
    with pytest.raises(ZeroDivisionError), ray_cluster(any_number):
        raise ZeroDivisionError


def refuse(cpus):
    raise ConfigError(f"{cpus:g} CPUs are too few.")


@pytest.mark.parametrize(("processors", "cpus"), [(6, 6), (1, 2), (None, 2)])
def test_cpus_that_are_refused_are_known_before_a_ray_of_our_own_starts(monkeypatch, processors, cpus):
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setattr("os.cpu_count", lambda: processors)
    # To start Ray here would fail with another error: the test is not marked `ray`.
    with pytest.raises(ConfigError, match=f"^{cpus} CPUs are too few"), ray_cluster(refuse):
        pass


def test_a_running_ray_is_asked_for_its_cpus(running):
    with pytest.raises(ConfigError, match=r"^4 CPUs are too few"), ray_cluster(refuse):
        pass


def test_a_cluster_to_join_is_joined_before_its_cpus_are_judged(monkeypatch):
    joined = []
    monkeypatch.setattr(ray, "is_initialized", lambda: bool(joined))
    monkeypatch.setattr(ray, "init", lambda **options: joined.append((options["address"], options["num_cpus"])))
    monkeypatch.setattr(ray, "cluster_resources", lambda: {"CPU": 64.0})
    monkeypatch.setattr(ray, "shutdown", lambda: joined.append("left"))
    monkeypatch.setenv("RAY_ADDRESS", "10.0.0.1:6379")
    with pytest.raises(ConfigError, match=r"^64 CPUs are too few"), ray_cluster(refuse):
        pass
    assert joined == [("10.0.0.1:6379", None), "left"]


TIMED_OUT = (
    "The current node timed out during startup. This could happen because some of the raylet failed to startup or the "
    "GCS has become overloaded."
)


def not_started(monkeypatch, message, address=None):
    """What the user reads when Ray fails to start, or to be joined, with this message."""

    def fail(**options):
        raise Exception(message)

    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr(ray, "init", fail)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    if address:
        monkeypatch.setenv("RAY_ADDRESS", address)
    with pytest.raises(CoragError) as caught, ray_cluster(any_number):
        pass
    return str(caught.value)


def test_a_ray_that_does_not_come_up_in_time_is_told_with_what_to_do(monkeypatch):
    assert not_started(monkeypatch, TIMED_OUT) == (
        f"Ray did not start: {TIMED_OUT.removesuffix('.')}; probably the machine is busy or short of memory: "
        "end other work, or try again."
    )


@pytest.mark.parametrize(
    ("message", "address", "words"),
    [
        ("no room\nframes", None, "Ray did not start: no room"),
        ("", None, "Ray did not start: no message"),
        ("it timed out.", "10.0.0.1:6379", "no Ray cluster was reached at RAY_ADDRESS=10.0.0.1:6379: it timed out."),
    ],
)
def test_of_another_failure_nothing_is_guessed(monkeypatch, message, address, words):
    assert not_started(monkeypatch, message, address) == words


@pytest.mark.parametrize(("address", "first"), [(None, "starting Ray"), ("10.0.0.1:6379", "joining Ray")])
def test_whoever_shows_progress_is_told_of_the_start_and_of_the_loading(monkeypatch, caplog, address, first):
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr(ray, "init", lambda **options: None)
    monkeypatch.setattr(ray, "cluster_resources", lambda: {"CPU": 4.0})
    monkeypatch.setattr(ray, "shutdown", lambda: None)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    if address:
        monkeypatch.setenv("RAY_ADDRESS", address)
    with caplog.at_level(logging.INFO, stages.name), ray_cluster(any_number):
        pass
    assert caplog.messages == [first, "loading models, first step"]
