"""A contest: what its sides have alike, how each is trained and judged, and what comes out."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console

from jobs.combination.checkpoint import Example
from jobs.combination.labels import Labelled, agreement
from jobs.combination.sense import Sense, figures, mean_share
from jobs.combination.timed import Learner, Run, Terms, train_for

Judged = Callable[[Sequence[Example]], tuple[list[Sense], float]]
"""What a side makes of questions, and the pairs that it scored in a second."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a side did.

    Attributes:
        figures: of the test part, as `sense.figures` gives them.
        pairs_per_s: scored in judging, preparation left out.
        seconds: CPU seconds of training; of a finished head what its card says, by the clock, all included.
        steps: of the optimiser.
        passes: over the questions that it learns from, as a number with a fraction.
        questions: that it learns from, in all.
        dev: the mean share of the checks at each judgement; the side has the weights of the highest.
    """

    figures: dict[str, dict[str, float | int | None]]
    pairs_per_s: float
    seconds: float
    steps: int | None = None
    passes: float | None = None
    questions: int | None = None
    dev: list[float] = field(default_factory=list)

    def label(self, name: str) -> str:
        """Its row in the table: a finished head's seconds are the clock's."""
        return f"{name}, {self.seconds:.0f} {'s by its card' if self.steps is None else 'CPU s'}"


@dataclass(frozen=True, slots=True)
class Teaching:
    """Questions with labels by the generator, and the difference from which on a pair of these counts, in nats."""

    examples: list[Example]
    labels: list[Labelled]
    threshold: float

    def figures(self) -> dict[str, float | int | None]:
        """How many labels there are, what they cost, and how far they agree with evidence."""
        of_evidence = agreement([example.asked for example in self.examples], self.labels, self.threshold)
        return {
            "questions": len(self.labels),
            "combinations": sum(len(one.combinations) for one in self.labels),
            "cpu_seconds": round(sum(one.cpu_seconds for one in self.labels), 1),
            "threshold": self.threshold,
        } | of_evidence


@dataclass(frozen=True, slots=True)
class Contest:
    """What every side has alike: questions of the three parts, terms, and where to keep checkpoints."""

    train: list[Example]
    dev: list[Example]
    test: list[Example]
    terms: Terms
    work: Path
    screen: Console

    def outcome(self, name: str, learner: Learner, peak: float, told: Any, questions: int, judged: Judged) -> Outcome:
        """Train one side, or go on where it was stopped, and judge it.

        `told` is all that its weights depend on beside terms and `peak`, the learning rate's; JSON must know it.
        """
        judging = [(example.asked.text, example.asked.rows) for example in self.dev]
        depends = [name, peak, asdict(self.terms), told, judging]
        identity = hashlib.sha256(json.dumps(depends).encode()).hexdigest()[:16]
        run = train_for(
            learner,
            peak,
            self.terms,
            self.work / f"contest-{name}-{identity}.pt",
            identity,
            lambda: mean_share(figures(judged(self.dev)[0])),
            self._watch(name),
        )
        senses, rate = judged(self.test)
        return Outcome(
            figures(senses),
            round(rate, 1),
            round(run.seconds, 1),
            run.step,
            round(run.step / learner.steps_a_pass, 2),
            questions,
            [round(value, 4) for value in run.judged],
        )

    def _watch(self, name: str) -> Callable[[Run, float], None]:
        """Prints a line at each tenth of a training."""
        shown = 0

        def watch(run: Run, progress: float) -> None:
            nonlocal shown
            if int(10 * progress) > shown:
                shown = int(10 * progress)
                told = f"{name}: {progress:.0%}, step {run.step}, {run.seconds:.0f} CPU s, loss {run.losses[-1]:.3f}"
                judged = f", dev {run.judged[-1]:.3f}" if run.judged else ""
                self.screen.print(told + judged, soft_wrap=True)

        return watch
