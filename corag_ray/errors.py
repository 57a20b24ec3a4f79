"""The project's error kinds, and the sentence that suggests what was meant."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class CoragError(Exception):
    """Base of the project's errors; the message is one sentence that says what to do."""


class ConfigError(CoragError):
    """The configuration or the command line asks for something that does not exist or cannot work (fatal)."""


class DataError(CoragError):
    """An input file, corpus or stored index is not what it should be (fatal; names file and place)."""


class ProtocolError(CoragError):
    """A model or strategy answered in the wrong shape: a defect of that class, not of the user's input (fatal)."""


class MissingModelError(CoragError):
    """A model or package that the profile needs is not installed; the message carries the command that installs it."""


class MemoryLimitError(CoragError):
    """A model's batch does not fit the memory, however it is cut; the message says what to lower (fatal)."""


class RowError(CoragError):
    """One question cannot be answered; it is recorded in its row and counted, and the run goes on."""


class OverloadedError(CoragError):
    """More is waiting than the service lets wait; the same request may succeed a little later."""


class DeadlineError(CoragError):
    """A request's time is up, and nothing of it is there to answer with."""


class UnavailableError(CoragError):
    """A part of the service is out of reach: dead, not up yet, or too slow for the request's time."""


def unknown_name(what: str, name: str, known: Iterable[str]) -> ConfigError:
    """An error for a name that is not in a table, with the nearest known name.

    >>> str(unknown_name("strategy", "rankd", ["ranked", "policy_tree"]))
    "unknown strategy 'rankd'; did you mean 'ranked'? Known: policy_tree, ranked."
    """
    names = sorted(known)
    close = difflib.get_close_matches(name, names, n=1)
    hint = f"did you mean '{close[0]}'? " if close else ""
    return ConfigError(f"unknown {what} '{name}'; {hint}Known: {', '.join(names)}.")
