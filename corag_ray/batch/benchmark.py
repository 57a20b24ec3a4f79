"""A benchmark with Ray Data over a finished index: select, generate, score; a killed run goes on from its row log."""

from __future__ import annotations

import functools
import pickle
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import ray

from corag_ray.batch.cluster import ACTOR_OPTIONS, as_done, ray_cluster
from corag_ray.batch.preflight import check_cpus
from corag_ray.batch.progress import Advance, untold
from corag_ray.batch.row_writer import RowWriter, open_row_writer
from corag_ray.build import build_answerer, build_selector
from corag_ray.config import Config
from corag_ray.datasets.assemble import Dataset
from corag_ray.evaluation.make_row import make_row
from corag_ray.evaluation.row_log import Row
from corag_ray.identity import index_spec, run_fingerprint
from corag_ray.indexing.versions import IndexSpec
from corag_ray.pipeline import Choices
from corag_ray.types import Generation, Question


@dataclass(frozen=True, slots=True)
class Group:
    """Questions by fixed position: the unit of merged batches and of resume. `position` is the first one's."""

    number: int
    position: int
    questions: tuple[Question, ...]


def cut_groups(questions: Sequence[Question], group_size: int) -> list[Group]:
    """Groups of `group_size` questions in order; the last may be smaller."""
    starts = range(0, len(questions), group_size)
    return [Group(n, start, tuple(questions[start : start + group_size])) for n, start in enumerate(starts)]


def groups_of(config: Config, dataset: Dataset) -> list[Group]:
    """The groups of a run: its questions up to the limit."""
    return cut_groups(dataset.questions[: config.limit], config.group_size)


def run_benchmark(
    config: Config, dataset: Dataset, index_folder: Path, run_folder: Path, advance: Advance = untold
) -> list[Row]:
    """Run every question that the run folder does not hold yet; returns all rows, one a question, by position.

    Raises:
        DataError: the run folder cannot be used, or the index does not fit.
        ConfigError: the plan cannot run on this cluster.
        CoragError: a worker failed.
    """
    with open_run(config, dataset, run_folder) as writer:
        run_missing(config, dataset, index_folder, writer, advance)
        return writer.rows


def open_run(config: Config, dataset: Dataset, run_folder: Path) -> AbstractContextManager[RowWriter]:
    """The run folder's row log, held against other runs."""
    groups = groups_of(config, dataset)
    ids = {group.number: [question.question_id for question in group.questions] for group in groups}
    return open_row_writer(run_folder, run_fingerprint(config, dataset), ids)


def run_missing(
    config: Config, dataset: Dataset, index_folder: Path, writer: RowWriter, advance: Advance = untold
) -> None:
    """Run the groups that the row log lacks and append them as they are done."""
    groups = groups_of(config, dataset)
    total = sum(len(group.questions) for group in groups)
    missing = [groups[number] for number in writer.missing_groups]
    advance(len(writer.rows), total)
    if missing:
        fingerprint = run_fingerprint(config, dataset)
        for group, batch, answers in run_groups(config, index_folder, index_spec(config, dataset), missing):
            writer.append(group_rows(config, fingerprint, group, batch, answers))
            advance(len(writer.rows), total)


def group_rows(
    config: Config,
    fingerprint: str,
    group: Group,
    choices: Sequence[Choices],
    answers: Sequence[Mapping[str, Generation]],
) -> list[Row]:
    """The stored rows of a group."""
    return [
        make_row(
            chosen,
            written,
            fingerprint=fingerprint,
            position=position,
            budget_tokens=config.budget_tokens,
            prompt=config.generation.prompt,
        )
        for position, (chosen, written) in enumerate(zip(choices, answers, strict=True), start=group.position)
    ]


def run_groups(
    config: Config, index_folder: Path, spec: IndexSpec, groups: Sequence[Group]
) -> Iterator[tuple[Group, list[Choices], list[dict[str, Generation]]]]:
    """Each group with its choices and answers, as they are done; groups are spread over the stages' actor pools."""
    plan = config.plan
    stages = {"select": plan.select_actors}
    if config.generation.enabled:
        stages["generate"] = plan.generate_actors
    by_number = {group.number: group for group in groups}
    with ray_cluster(functools.partial(check_cpus, stages, plan)):
        items = [{"number": group.number, "payload": pickle.dumps(group.questions)} for group in groups]
        data = ray.data.from_items(items, override_num_blocks=len(items))
        data = data.map_batches(
            _SelectStage,
            fn_constructor_args=(config, index_folder.resolve(), spec),
            batch_size=1,
            compute=ray.data.ActorPoolStrategy(size=plan.select_actors),
            num_cpus=plan.cpus_an_actor,
            **ACTOR_OPTIONS,
        )
        if config.generation.enabled:
            data = data.map_batches(
                _GenerateStage,
                fn_constructor_args=(config,),
                batch_size=1,
                compute=ray.data.ActorPoolStrategy(size=plan.generate_actors),
                num_cpus=plan.cpus_an_actor,
                **ACTOR_OPTIONS,
            )
        for output in as_done(data):
            for number, payload in zip(output["number"], output["payload"], strict=True):
                batch, answers = pickle.loads(payload)
                yield by_number[int(number)], batch, answers


class _SelectStage:
    """Ray Data actor: contexts for a group of questions a call."""

    def __init__(self, config: Config, index_folder: Path, spec: IndexSpec) -> None:
        self._selector = build_selector(config, index_folder, spec)

    def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
        choices = self._selector.select(pickle.loads(batch["payload"][0]))
        return _one_row(batch, (choices, [{} for _ in choices]))


class _GenerateStage:
    """Ray Data actor: answers for a group of questions a call."""

    def __init__(self, config: Config) -> None:
        self._answerer = build_answerer(config)

    def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
        choices, _ = pickle.loads(batch["payload"][0])
        answers = self._answerer.answer(choices)
        return _one_row(batch, (choices, answers))


def _one_row(batch: dict[str, Any], payload: object) -> dict[str, Any]:
    return {"number": batch["number"], "payload": np.array([pickle.dumps(payload)], dtype=object)}
