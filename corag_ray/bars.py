"""What a command shows while it works: a bar for what has units, and on a terminal the name of what has none."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TaskID, TextColumn
from rich.text import Text

BAR_CELLS = 20
"""With the longest words and times beside it a line still has 80."""


@contextmanager
def shown_bars(screen: Console, stages: logging.Logger) -> Iterator[Bars]:
    """Bars on `screen`, and what `stages` is told at INFO; a terminal sees them move, a file gets the bars' last state.

    A stage is shown until the next one, a step of a bar or the end, whichever comes first.
    """
    columns = TextColumn("{task.description:<9}"), BarColumn(BAR_CELLS), TextColumn("{task.fields[count]}"), _Times()
    with Progress(*columns, console=screen) as progress:
        bars = Bars(progress)
        listener, level = _Listener(bars), stages.level
        stages.addHandler(listener)
        stages.setLevel(logging.INFO)
        try:
            yield bars
        finally:
            stages.setLevel(level)
            stages.removeHandler(listener)
            bars.end_stage()


class Bars:
    """Bars by their labels, and the stage that is going on."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._stage: TaskID | None = None

    def advance(self, label: str) -> Callable[[int, int], None]:
        """A callback (done, total) that draws one bar; the bar appears when it is first told something.

        Time left counts the steps seen here alone, not what an earlier run has done; a new total starts anew.
        """
        task: TaskID | None = None
        first, first_seconds = 0, 0.0

        def told(done: int, total: int) -> None:
            nonlocal task, first, first_seconds
            self.end_stage()
            count = f"{done}/{total}"
            if task is None:
                task = self._progress.add_task(label, total=total, completed=done, count=count, ends_seconds=None)
                first = done
            shown = self._shown(task)
            passed = shown.elapsed or 0.0
            if shown.total != total:
                first, first_seconds = done, passed
            ends = passed + (passed - first_seconds) / (done - first) * (total - done) if done > first else None
            self._progress.update(task, completed=done, total=total, count=count, ends_seconds=ends)

        return told

    def begin_stage(self, what: str) -> None:
        """Show instead of the last stage that this is going on, without an end in sight; only a terminal needs it."""
        self.end_stage()
        if self._progress.console.is_terminal:
            self._stage = self._progress.add_task(what, total=None, count="", ends_seconds=None)

    def end_stage(self) -> None:
        """Show no stage any more."""
        if self._stage is not None:
            self._progress.remove_task(self._stage)
            self._stage = None

    def _shown(self, task: TaskID) -> Task:
        return next(shown for shown in self._progress.tasks if shown.id == task)


class _Listener(logging.Handler):
    """What the logger is told is the stage."""

    def __init__(self, bars: Bars) -> None:
        super().__init__(logging.INFO)
        self._bars = bars

    def emit(self, record: logging.LogRecord) -> None:
        self._bars.begin_stage(record.getMessage())


class _Times(ProgressColumn):
    """Time passed, and time left as soon as a step has shown how long one takes."""

    def render(self, task: Task) -> Text:
        passed = task.elapsed or 0.0 if task.finished_time is None else task.finished_time
        return Text(times_text(passed, None if task.finished else task.fields["ends_seconds"]), "progress.elapsed")


def times_text(passed_seconds: float, ends_seconds: float | None) -> str:
    """'48 s passed, 1:36 left'; without an end the first half. Both count from the start; a late end has 0 s left."""
    passed = f"{_clock(passed_seconds)} passed"
    return passed if ends_seconds is None else f"{passed}, {_clock(max(0.0, ends_seconds - passed_seconds))} left"


def _clock(seconds: float) -> str:
    """48 s, 1:36 or 1:02:03."""
    minutes, left = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours}:{minutes:02}:{left:02}"
    return f"{minutes}:{left:02}" if minutes else f"{left} s"
