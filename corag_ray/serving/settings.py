"""What `args` of `serve_config.yaml` may hold: the run's configuration, how it is spread, the limits at the edge."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, model_validator

from corag_ray.config import Config, MethodName, Section, UserPath
from corag_ray.config_file import checked
from corag_ray.errors import ConfigError, unknown_name
from corag_ray.names import RERANKERS, cross_encoder_names
from corag_ray.problems import complaint

Seconds = Annotated[float, Field(gt=0, le=86_400, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=1, strict=True)]

STARTED = ("late_interaction", "combination")
"""Rerankers that have a replica from the beginning, as have those that a method asks; the others start when asked."""


class Scale(Section):
    """How many replicas a deployment has, and what each takes; nothing here changes a number.

    Between `min_replicas` and `max_replicas` Ray Serve keeps `target_ongoing` requests a replica, the mean over
    `look_back_s`, which is more than the 10 s between two reports of a replica; where both are one number, nothing is
    scaled. `threads` is what each process of torch uses, by default what the configuration's plan says. `max_ongoing`
    requests are sent to a replica at a time.
    """

    min_replicas: int = Field(1, ge=0, strict=True)
    max_replicas: int = Field(1, ge=1, strict=True)
    target_ongoing: float = Field(4.0, gt=0, allow_inf_nan=False)
    look_back_s: Seconds = 15.0
    upscale_delay_s: Seconds = 15.0
    downscale_delay_s: Seconds = 120.0
    num_cpus: float = Field(0.1, ge=0, allow_inf_nan=False)
    num_gpus: float = Field(0.0, ge=0, allow_inf_nan=False)
    threads: Count | None = None
    max_ongoing: Count = 256

    @model_validator(mode="after")
    def _sane(self) -> Scale:
        if self.min_replicas > self.max_replicas:
            raise complaint(f"min_replicas {self.min_replicas} exceeds max_replicas {self.max_replicas}.")
        if self.look_back_s > min(self.upscale_delay_s, self.downscale_delay_s):
            raise complaint("look_back_s must not exceed the delays: replicas would come and go in turn.")
        return self


class RerankerScale(Scale):
    """A reranker's pool: its scale, and how its replicas take work.

    `batch_pairs` bounds what a replica computes in one call, and so the time until it looks at deadlines again;
    `waiting_pairs` what waits there before more is refused. A call that takes longer than `wait_s` (a start from zero
    included) counts the pool as out of reach.
    """

    batch_pairs: Count = 256
    waiting_pairs: Count = 50_000
    wait_s: Seconds = 20.0


class Deployments(Section):
    """Every deployment's scale; `rerankers` names the pools, beside which those that a method asks have one.

    Where it is left out there is one for every reranker but packaged cross-encoders, which need a library of their own.
    """

    embedder: Scale = Scale()
    index: Scale = Scale()
    agent: Scale = Scale()
    driver: Scale = Scale()
    generator: Scale = Scale(max_ongoing=16)
    ingress: Scale = Scale()
    explanations: Scale = Scale(num_cpus=0.01)
    rerankers: dict[MethodName, RerankerScale] = Field(default_factory=dict)


class IndexFolder(Section):
    """Where indexes are: `root` as for `corag index --root`, from the folder in which Ray was started."""

    root: UserPath = Path("runs")


class Agent(Section):
    """The fixed configuration of requests that name no method: one of the configuration's."""

    method: str = "corag"


class Http(Section):
    """What the edge lets through, and who may come.

    A request may ask for less than its bounds, never for more. Keys, if any, are read from the environment variable
    `keys_variable` (several parted by commas) or from the file `keys_file`, one a line; without either being set,
    everyone is let in.
    """

    max_body_bytes: Count = 1_000_000
    max_question_characters: Count = 8_000
    max_budget_tokens: Count = 8_192
    max_new_tokens: Count = 512
    max_candidates: Count = 200
    max_pairs: Count = 5_000
    max_documents: Count = 200
    deadline_s: Seconds = 60.0
    max_deadline_s: Seconds = 300.0
    max_in_flight: Count = 64
    retry_after_s: Count = 1
    keys_variable: str = "CORAG_API_KEYS"
    keys_file: UserPath | None = None


class Explanations(Section):
    """How many explanations are kept, and in how much memory."""

    most: Count = 1_000
    most_bytes: Count = 64_000_000


class ServingSettings(Section):
    """All of it; `fallback` names the rerankers that stand in for a pool that does not answer, in this order.

    Where it is left out that is late interaction, if it has a pool.
    """

    config: Config = Config()
    deployments: Deployments = Deployments()
    index: IndexFolder = IndexFolder()
    agent: Agent = Agent()
    http: Http = Http()
    explanations: Explanations = Explanations()
    fallback: tuple[str, ...] | None = None

    @model_validator(mode="after")
    def _one_store(self) -> ServingSettings:
        if self.deployments.explanations.max_replicas > 1:
            raise complaint("deployments.explanations has one replica: each would know other requests.")
        return self

    @property
    def pools(self) -> dict[str, RerankerScale]:
        """By reranker, its pool."""
        named = self.deployments.rerankers
        asked = self.config.rerankers
        first = named or [*RERANKERS, *self.config.cross_encoders]
        names = dict.fromkeys([*first, *sorted(asked)])
        started = {name: RerankerScale() for name in {*STARTED, *asked}}
        from_zero = RerankerScale(min_replicas=0)
        return {name: named.get(name) or started.get(name, from_zero) for name in names}

    @property
    def standing_in(self) -> tuple[str, ...]:
        """The rerankers of `fallback`, or its default."""
        return tuple(name for name in STARTED[:1] if name in self.pools) if self.fallback is None else self.fallback


def read_settings(values: Mapping[str, Any]) -> ServingSettings:
    """The settings from what stands under `args`.

    Raises:
        ConfigError: an unknown key or name, or a bad value; the message names the place.
    """
    if not isinstance(values.get("config", {}), Mapping):
        raise ConfigError("args.config must hold a mapping.")
    config = checked(Config, values.get("config", {}), "args.config")
    settings = checked(ServingSettings, {**values, "config": config}, "args")
    _check_names("args.agent.method", [settings.agent.method], config.methods)
    _check_names("args.deployments.rerankers", settings.pools, {*RERANKERS, *cross_encoder_names(config)})
    _check_names("args.fallback", settings.standing_in, settings.pools)
    return settings


def _check_names(place: str, names: Iterable[str], known: Collection[str]) -> None:
    for name in names:
        if name not in known:
            raise ConfigError(f"{place}: {unknown_name('name', name, known)}")
