"""A YAML file as the checks see it: its value, the line of every entry, and how each scalar is written."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from yaml.composer import ComposerError

from corag_ray.checks.finding import Finding, Place
from corag_ray.config_file import scalar_problem
from corag_ray.errors import ConfigError

TEXT, MERGE = "tag:yaml.org,2002:str", "tag:yaml.org,2002:merge"
MOST_ENTRIES = 50_000
DEEPEST = 50
"""Aliases can nest a few lines without end; what exceeds either number is no file that a person wrote."""


@dataclass(frozen=True, slots=True)
class Source:
    """A file that YAML can read. `written` holds the text of scalars: `yes` where `value` has True."""

    path: Path
    value: Any
    lines: Mapping[Place, int]
    written: Mapping[Place, str]

    def at(self, place: Place) -> Any:
        """What stands there, None where nothing does."""
        value = self.value
        for part in place:
            try:
                value = value[part]
            except (KeyError, IndexError, TypeError):
                return None
        return value

    def mapping(self, place: Place) -> dict[Any, Any]:
        """The mapping that stands there, an empty one where something else does."""
        value = self.at(place)
        return value if isinstance(value, dict) else {}

    def mappings(self, place: Place) -> Iterator[tuple[Place, dict[Any, Any]]]:
        """The mappings in the list there, each with its place."""
        entries = self.at(place)
        for number, entry in enumerate(entries if isinstance(entries, list) else []):
            if isinstance(entry, dict):
                yield (*place, number), entry

    def existing(self, place: Place) -> Place:
        """The place, or the nearest above it that exists."""
        while place not in self.lines:
            place = place[:-1]
        return place

    def error(self, place: Place, sentence: str) -> Finding:
        """A finding that the file must not be used with."""
        return Finding(self.path, self.lines[self.existing(place)], sentence, place=place)

    def warning(self, place: Place, sentence: str) -> Finding:
        """A finding that may be meant so."""
        return Finding(self.path, self.lines[self.existing(place)], sentence, False, place)


def dotted(place: Place) -> str:
    """The place as it is said: `applications.0.name`."""
    return ".".join(map(str, place))


def read_source(path: Path) -> tuple[Source | None, list[Finding]]:
    """The file, None where YAML cannot read it, and what is wrong with it as YAML.

    Raises:
        ConfigError: the file cannot be read at all.
    """
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read {path}: {getattr(error, 'strerror', None) or error}.") from error
    try:
        loader = yaml.SafeLoader(text)
        node = loader.get_single_node()
        if node is None:
            return None, [Finding(path, 1, "the file is empty: name a Serve config or a cluster file.")]
        findings = [Finding(path, line, sentence) for line, sentence in _silent_readings(node)]
        if numbered := list(_keys_that_are_no_text(node)):
            return None, findings + [Finding(path, line, sentence) for line, sentence in numbered]
        value = loader.construct_document(node)  # from here on, what `<<` brings stands among the mapping's own keys
        lines, written = _entries(loader, node)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        return None, [Finding(path, mark.line + 1 if mark else 1, f"YAML cannot read this: {error.problem}.")]
    except (ValueError, RecursionError, yaml.YAMLError) as error:  # ValueError: a date that does not exist
        return None, [Finding(path, 1, f"YAML cannot read this: {str(error).splitlines()[0]}.")]
    return Source(path, value, lines, written), findings


def _nodes(root: yaml.Node) -> Iterator[yaml.Node]:
    """Every node once, however many aliases lead to it."""
    waiting, seen = [root], set()
    while waiting:
        node = waiting.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        yield node
        if isinstance(node, yaml.SequenceNode):
            waiting += node.value
        if isinstance(node, yaml.MappingNode):
            waiting += [part for pair in node.value for part in pair]


def _silent_readings(root: yaml.Node) -> Iterator[tuple[int, str]]:
    """Lines that YAML reads without a word as something else: keys that stand twice, numbers to another base."""
    for node in _nodes(root):
        if isinstance(node, yaml.ScalarNode) and (problem := scalar_problem(node)):
            yield node.start_mark.line + 1, f"{problem}."
        if isinstance(node, yaml.MappingNode):
            yield from _doubled_keys(node)


def _keys_that_are_no_text(root: yaml.Node) -> Iterator[tuple[int, str]]:
    """Lines of keys such as `on` and `8000`; no schema here has one, and Ray's own validators break at them."""
    for node in _nodes(root):
        for key, _ in node.value if isinstance(node, yaml.MappingNode) else ():
            if isinstance(key, yaml.ScalarNode) and key.tag not in (TEXT, MERGE):
                yield key.start_mark.line + 1, f"the key '{key.value}' is read as no text: write it in quotes."


def _doubled_keys(node: yaml.MappingNode) -> Iterator[tuple[int, str]]:
    first: dict[tuple[str, str], yaml.ScalarNode] = {}
    for key, _ in node.value:
        if isinstance(key, yaml.ScalarNode):
            earlier = first.setdefault((key.tag, key.value), key)
            if earlier is not key:
                line = earlier.start_mark.line + 1
                said = f"the key '{key.value}' stands twice, in line {line} too, and the last one wins: remove one."
                yield key.start_mark.line + 1, said


def _entries(loader: yaml.SafeLoader, root: yaml.Node) -> tuple[dict[Place, int], dict[Place, str]]:
    """By place, the line of every entry (of a mapping's entry that of its key) and the text of every scalar."""
    lines: dict[Place, int] = {(): root.start_mark.line + 1}
    written: dict[Place, str] = {}
    waiting: deque[tuple[Place, yaml.Node]] = deque([((), root)])
    while waiting:
        place, node = waiting.popleft()
        if len(place) > DEEPEST or len(lines) > MOST_ENTRIES:
            raise ComposerError(problem="aliases nest it without end", problem_mark=root.start_mark)
        if isinstance(node, yaml.ScalarNode):
            written[place] = node.value
            continue
        if isinstance(node, yaml.MappingNode):
            parts = [(loader.construct_object(key, deep=True), key, inner) for key, inner in node.value]
        else:
            parts = [(number, inner, inner) for number, inner in enumerate(node.value)]
        for part, shown, inner in parts:
            lines[*place, part] = shown.start_mark.line + 1
            waiting.append(((*place, part), inner))
    return lines, written
