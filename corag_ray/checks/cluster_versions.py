"""What a cluster's nodes run, and who may talk to them: the version of Ray, and its token."""

from __future__ import annotations

import importlib.metadata
import re
import shlex
from collections.abc import Iterator

from packaging.requirements import InvalidRequirement, Requirement

from corag_ray.checks.finding import Finding, Place
from corag_ray.checks.source import Source

RAY_IMAGE = re.compile(r"rayproject/ray(?:-ml|-llm)?(?::(?P<tag>\S+))?")
TOKEN_MODE = re.compile(r"RAY_AUTH_MODE=[\"']?token")
WRITTEN_TOKEN = re.compile(r"RAY_AUTH_TOKEN=[\"']?[^\s\"'$]")
BETWEEN_COMMANDS = ("&&", "||", ";", "|")
IMAGE_KEYS = ("image", "head_image", "worker_image")


def version_findings(source: Source) -> Iterator[Finding]:
    """Images and installations of another Ray than the one here: nodes of two versions do not make one cluster."""
    ours = importlib.metadata.version("ray")
    for place, text in _texts(source):
        if place[-1] in IMAGE_KEYS and (image := RAY_IMAGE.fullmatch(text)):
            found = re.match(r"\d[\w.]*", image["tag"] or "")
            if found is None:
                said = f"the image {text} names no version of Ray"
                yield source.error(place, f"{said}: write {text.partition(':')[0]}:{ours}, as is pinned here.")
            elif found[0] != ours:
                yield source.error(place, f"the image {text} has another Ray than the pinned {ours}: write that one.")
        for requirement in _installed(text):
            if str(requirement.specifier) != f"=={ours}":
                shown = f"Ray {requirement.specifier}" if requirement.specifier else "any version of Ray"
                yield source.error(place, f"the command installs {shown}: write =={ours}, as is pinned here.")


def security_findings(source: Source) -> Iterator[Finding]:
    """A cluster without a token runs whatever whoever reaches it sends; a token in the file is no secret."""
    texts = list(_texts(source))
    for place, text in texts:
        if WRITTEN_TOKEN.search(text):
            said = "the token is written into the file"
            yield source.error(place, f"{said}: mount ~/.ray/auth_token by file_mounts, and take it out.")
    if not any(TOKEN_MODE.search(text) for _, text in texts):
        said = "no command and no run option sets RAY_AUTH_MODE=token, so whoever reaches the head runs code on it"
        yield source.warning(("cluster_name",), f"{said}: set it on every node, with the token in ~/.ray/auth_token.")


def _texts(source: Source) -> Iterator[tuple[Place, str]]:
    for place in source.lines:
        if place and isinstance(text := source.at(place), str):
            yield place, text


def _installed(command: str) -> Iterator[Requirement]:
    """What a shell command installs of Ray by pip or uv, where it names it."""
    try:
        words = shlex.split(command)
    except ValueError:  # quotes that do not close: the shell will tell
        return
    installing = False
    for word in words:
        if word == "install" or word in BETWEEN_COMMANDS:
            installing = word == "install"
        elif installing and (requirement := _requirement(word)) and requirement.name == "ray":
            yield requirement


def _requirement(word: str) -> Requirement | None:
    try:
        return Requirement(word)
    except InvalidRequirement:  # an option, a folder
        return None
