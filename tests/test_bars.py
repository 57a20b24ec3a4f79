"""Progress: how long, how long still, and what is going on while nothing can be counted."""

import io
import logging

import pytest
from rich.console import Console

from corag_ray.bars import shown_bars, times_text

STAGES = logging.getLogger("tests.stages")


class Watch:
    """A clock that is set by hand, in seconds."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


@pytest.fixture
def watch():
    return Watch()


@pytest.fixture
def screen(watch):
    """A file of 80 columns."""
    return Console(file=io.StringIO(), width=80, get_time=watch)


@pytest.fixture
def terminal(watch, monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    return Console(file=io.StringIO(), width=80, force_terminal=True, color_system=None, get_time=watch)


def steps(screen, watch, *steps, until=None):
    """What stands there at last, after (second, done, total) each."""
    with shown_bars(screen, STAGES) as bars:
        told = bars.advance("indexing")
        for watch.now, done, total in steps:
            told(done, total)
        watch.now = watch.now if until is None else until
    return " ".join(screen.file.getvalue().split())


@pytest.mark.parametrize(
    ("passed", "ends", "text"),
    [
        (0, None, "0 s passed"),
        (48, 144, "48 s passed, 1:36 left"),
        (59.6, None, "1:00 passed"),
        (3723, 3723 + 59, "1:02:03 passed, 59 s left"),
        (50, 48, "50 s passed, 0 s left"),
    ],
)
def test_times_are_said_with_a_word_each(passed, ends, text):
    assert times_text(passed, ends) == text


def test_after_one_step_of_three_twice_its_time_is_left(screen, watch):
    assert steps(screen, watch, (0, 0, 3), (48, 1, 3)).endswith(" 1/3 48 s passed, 1:36 left")


def test_before_the_first_step_nobody_knows_what_is_left(screen, watch):
    assert steps(screen, watch, (0, 0, 3), until=48).endswith(" 0/3 48 s passed")


def test_what_is_left_runs_down_between_steps(screen, watch):
    # The end is at 3 x 48 = 144 s.
    assert steps(screen, watch, (0, 0, 3), (48, 1, 3), until=60).endswith(" 1/3 1:00 passed, 1:24 left")


def test_at_the_end_nothing_is_left_and_the_time_stands(screen, watch):
    assert steps(screen, watch, (0, 0, 3), (144, 3, 3), until=200).endswith(" 3/3 2:24 passed")


def test_steps_of_an_earlier_run_took_no_time(screen, watch):
    # Two of the last four in 10 s.
    assert steps(screen, watch, (0, 100, 104), (10, 102, 104)).endswith(" 102/104 10 s passed, 10 s left")


def test_steps_of_another_size_are_counted_anew(screen, watch):
    # 256 of 1,024 chunks in 10 s, 256 left; the two shards before say nothing of them.
    shown = steps(screen, watch, (0, 0, 2), (100, 2, 2), (101, 512, 1024), (111, 768, 1024))
    assert shown.endswith(" 768/1024 1:51 passed, 10 s left")


def test_a_line_of_long_counts_and_times_has_room_in_80_columns(screen, watch):
    assert "…" not in steps(screen, watch, (0, 0, 9999), (4000, 4999, 9999))


def test_a_terminal_is_told_what_is_going_on_until_a_step_is_done(terminal):
    with shown_bars(terminal, STAGES) as bars:
        told = bars.advance("indexing")
        told(0, 3)
        STAGES.info("starting Ray")
        assert "starting Ray" in terminal.file.getvalue()
        told(1, 3)
        before = len(terminal.file.getvalue())
    last = terminal.file.getvalue()[before:]
    assert "1/3" in last
    assert "starting Ray" not in last


def test_a_stage_takes_the_place_of_the_one_before_and_leaves_no_trace_at_the_end(terminal):
    with shown_bars(terminal, STAGES):
        STAGES.info("starting Ray")
        before = len(terminal.file.getvalue())
        STAGES.info("loading models")
        shown = terminal.file.getvalue()[before:]
        assert "loading models" in shown
        before = len(terminal.file.getvalue())
    assert "models" not in terminal.file.getvalue()[before:].rpartition("\x1b[2K")[2]


def test_a_file_gets_bars_alone(screen, watch):
    with shown_bars(screen, STAGES):
        STAGES.info("starting Ray")
    assert screen.file.getvalue().strip() == ""


def test_nobody_listens_before_and_after(terminal):
    with pytest.raises(KeyboardInterrupt), shown_bars(terminal, STAGES):
        raise KeyboardInterrupt
    assert (STAGES.handlers, STAGES.level) == ([], logging.NOTSET)
