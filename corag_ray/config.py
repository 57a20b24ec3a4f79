"""The one schema: what a run is made of. Text from outside (YAML, later HTTP) must fit it; unknown keys are refused."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, cast, get_type_hints

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    TypeAdapter,
    ValidationError,
    model_validator,
)

from corag_ray.core.beam import BeamParams
from corag_ray.core.diverse import CoverageParams, MmrParams, SimilarityPenaltyParams
from corag_ray.core.exhaustive import ExhaustiveParams
from corag_ray.core.guided_tree import GuidedParams
from corag_ray.core.orders import Order
from corag_ray.core.policy_tree import PRESETS, SearchParams
from corag_ray.core.random_fill import RandomParams
from corag_ray.core.ranked import RankedParams
from corag_ray.errors import ConfigError, unknown_name
from corag_ray.indexing.chunking import Chunking
from corag_ray.indexing.token_vectors import TokenVectorFormat
from corag_ray.models.paper_rerankers import PAPER_RERANKERS, check_row
from corag_ray.models.remote_code import check_allow_list
from corag_ray.problems import beginning, complaint, value_problem

_Checked = TypeVar("_Checked", bound="Section")


class Section(BaseModel):
    """Base of every section: frozen, unknown keys refused."""

    model_config = ConfigDict(frozen=True, extra="forbid")


def _placed(check: Callable[[_Checked], _Checked]) -> Callable[[_Checked], _Checked]:
    """A check of a section whose complaint is given the section's place, which only pydantic knows."""

    def placed(section: _Checked) -> _Checked:
        try:
            return check(section)
        except ConfigError as error:
            raise complaint(str(error)) from error

    return placed


def _expanded(path: Path) -> Path:
    """With `~` read as the shell reads it; an empty text, which would be the working folder, is refused."""
    if path == Path():
        raise complaint("name a folder or a file; this means the folder that the command is run from.")
    try:
        return path.expanduser()
    except RuntimeError as error:
        raise complaint(f"there is no home folder for {path}.") from error


UserPath = Annotated[Path, AfterValidator(_expanded)]
"""A path as a person writes it."""


class Retrieval(Section):
    """The first stage: which index, and how many candidates."""

    kind: Literal["hybrid", "dense", "lexical"] = "hybrid"
    num_candidates: int = Field(60, ge=1, le=1000, strict=True)


class PlainStrategy(Section):
    """Any strategy but the paper's: its defaults, with single parameters changed if wanted."""

    kind: Literal["corag", "ranked", "exhaustive", "greedy", "beam", "mmr", "coverage", "similarity_penalty", "random"]
    changes: Mapping[str, Any] = Field(default_factory=dict)

    @model_validator(mode="after")
    @_placed
    def _known(self) -> PlainStrategy:
        _ = self.params
        if self.kind == "greedy" and "width" in self.changes:
            raise ConfigError("search parameter 'width': greedy is the beam of width 1; take kind beam for another.")
        return self

    @property
    def params(self) -> Any:
        """The parameters of its kind, in `DEFAULT_PARAMS`, with its changes."""
        return _changed(DEFAULT_PARAMS[self.kind], self.changes)


DEFAULT_PARAMS: Mapping[str, Any] = {
    "corag": GuidedParams(),
    "ranked": RankedParams(),
    "exhaustive": ExhaustiveParams(),
    "greedy": BeamParams(width=1),
    "beam": BeamParams(),
    "mmr": MmrParams(),
    "coverage": CoverageParams(),
    "similarity_penalty": SimilarityPenaltyParams(),
    "random": RandomParams(),
}


class PolicyTreeStrategy(Section):
    """The paper's tree search: a preset, with single parameters changed if wanted."""

    kind: Literal["policy_tree"]
    preset: str = "report"
    changes: Mapping[str, Any] = Field(default_factory=dict)

    @model_validator(mode="after")
    @_placed
    def _known(self) -> PolicyTreeStrategy:
        _ = self.params
        return self

    @property
    def params(self) -> SearchParams:
        """The preset with its changes."""
        if self.preset not in PRESETS:
            raise unknown_name("preset", self.preset, PRESETS)
        return _changed(PRESETS[self.preset], self.changes)


def _exact(values: Any, *, kind: type, what: str = "", path: str = "") -> Any:
    """Parameters of the dataclass `kind`, each of its field's very type: pydantic would read 1 from true, 7 from "7".

    Its strict mode for the whole would refuse a mapping in place of a dataclass. What is no mapping, and names that are
    no field, are left for pydantic to refuse. `what` and `path` stand before the name in a complaint.
    """
    if not isinstance(values, Mapping):
        return values
    hints, known = get_type_hints(kind), {field.name for field in dataclasses.fields(kind)}
    return {
        name: _exact_value(v, hints[name], what, f"{path}{name}") if name in known else v for name, v in values.items()
    }


def _exact_value(value: Any, kind: Any, what: str, place: str) -> Any:
    """The value; a whole number as a fraction where one may stand."""
    if isinstance(value, bool):
        raise ConfigError(f"{what}'{place}' is no switch, but {str(value).lower()} was found.")
    try:
        return TypeAdapter(kind).validate_python(value, strict=True)
    except ValidationError as error:
        raise ConfigError(f"{what}{value_problem(place, error.errors()[0])}") from error


_exact_chunking = partial(_exact, kind=Chunking, path="chunking.")
_exact_token_vectors = partial(_exact, kind=TokenVectorFormat, path="token_vectors.")

_Params = TypeVar("_Params")


def _changed(defaults: _Params, changes: Mapping[str, Any]) -> _Params:
    """A frozen dataclass of parameters with some of them changed, checked as text from outside."""
    known = [field.name for field in dataclasses.fields(cast(Any, defaults))]
    for name in changes:
        if name not in known:
            raise unknown_name("search parameter", name, known)
    exact = _exact(changes, kind=type(defaults), what="search parameter ")
    changed: _Params = dataclasses.replace(cast(Any, defaults), **exact)
    return changed


MethodName = Annotated[str, Field(pattern=r"^[\w][\w .+-]{0,59}$")]
"""Letters, digits, blank, and . + - _: a name stands in tables, pages and keys."""


def _with_short_kind(strategy: Any) -> Any:
    """A strategy whose kind is a text: an unknown one is written out by pydantic, and a list of aliases has no end."""
    if isinstance(strategy, str):
        raise complaint(f"write {{kind: {beginning(strategy)}}}.")
    if not isinstance(strategy, Mapping) or isinstance(strategy.get("kind", ""), str):
        return strategy
    return {**strategy, "kind": beginning(strategy["kind"])}


Strategy = Annotated[PlainStrategy | PolicyTreeStrategy, Field(discriminator="kind"), BeforeValidator(_with_short_kind)]


class Method(Section):
    """A candidate source; for retrieved candidates also a strategy, the reranker it asks and the answer's order."""

    source: Literal["retrieval", "gold", "none"] = "retrieval"
    strategy: Strategy | None = None
    reranker: str = "late_interaction"
    order: Order = "chosen"

    @model_validator(mode="after")
    @_placed
    def _complete(self) -> Method:
        if (self.source == "retrieval") != (self.strategy is not None):
            raise ConfigError("a method over retrieved candidates needs a strategy; `gold` and `none` take none.")
        return self


def _default_methods() -> dict[str, Method]:
    return {
        "naive_rag": Method(strategy=PlainStrategy(kind="ranked")),
        "corag": Method(strategy=PolicyTreeStrategy(kind="policy_tree", preset="report")),
        "no_context": Method(source="none"),
        "gold_passages": Method(source="gold"),
    }


WINDOW_TOKENS = 512
"""Of a cross-encoder whose entry says nothing else and names none of the paper's."""


def _window_tokens(entry: dict[str, Any]) -> int:
    row = PAPER_RERANKERS.get(entry.get("model") or "")
    return WINDOW_TOKENS if row is None else row.window_tokens


class CrossEncoderFolder(Section):
    """A folder with a sequence-classification checkpoint, and its window: of the user's own, or one of the paper's.

    `model` names a row of `PAPER_RERANKERS`; `max_tokens` is then its window, and may be lowered. `pooling` is what
    makes one score of the windows of a combination that exceeds it (`models.pair_inputs.Pooling`). `backend` is what
    computes: torch in the run's `dtype`, or ONNX Runtime in int8, which ranks nearly alike.
    """

    model: str | None = None
    folder: UserPath
    max_tokens: int = Field(default_factory=_window_tokens, ge=8, strict=True)
    pooling: Literal["maximum", "mean", "soft_maximum"] = "soft_maximum"
    backend: Literal["torch", "onnx_int8"] = "torch"

    @model_validator(mode="before")
    @classmethod
    def _fetched(cls, entry: Any) -> Any:
        row = PAPER_RERANKERS.get(str(entry.get("model"))) if isinstance(entry, Mapping) else None
        if row is not None and "folder" not in entry:
            raise complaint(f"name the `folder` into which {row.hub_id} was fetched, at {row.revision}.")
        return entry

    @property
    def is_int8(self) -> bool:
        """Whether ONNX Runtime computes, in int8 whatever the run's `dtype`."""
        return self.backend == "onnx_int8"


class Server(Section):
    """A server that speaks OpenAI's chat completions, asked instead of a local model.

    The key comes from the environment variable `key_variable` alone. Tokens are counted with the tokenizer in the
    folder `tokenizer` (`tokenizer.json`, `tokenizer_config.json` with the chat template), which must be the model's.
    Without it they are bounded by UTF-8 bytes: budgets are kept, and English text fills about a quarter of them.
    """

    base_url: str
    model: str
    tokenizer: UserPath | None = None
    context_window: int = Field(ge=1, strict=True)
    key_variable: str = "OPENAI_API_KEY"
    timeout_s: float = Field(120.0, gt=0, le=86_400, allow_inf_nan=False, strict=True)
    attempts: int = Field(5, ge=1, strict=True)
    concurrency: int = Field(8, ge=1, le=256, strict=True)

    @model_validator(mode="after")
    def _addressed(self) -> Server:
        from corag_ray.models.http_client import check_address  # httpx is for those who name a server

        check_address(self.base_url, self.key_variable)
        return self


NO_NUMBERS_OF_A_SERVER = {"tokenizer", "key_variable", "timeout_s", "attempts", "concurrency"}
"""Settings of a server that change no answer; a tokenizer counts by its content, not by its folder."""


class Generation(Section):
    """The answer: length, prompt, who writes it, and whether to write it at all.

    `model` also is the model of query likelihood, and counts tokens where no `server` is asked.
    """

    enabled: bool = Field(True, strict=True)
    max_new_tokens: int = Field(48, ge=1, strict=True)
    prompt: str = "seed"
    model: str = "smollm2"
    server: Server | None = None


class Plan(Section):
    """How a run is spread over the machine; nothing here changes a number.

    The fractions of a CPU are what Ray is asked for; `threads` is what each process of torch then uses.
    """

    select_actors: int = Field(1, ge=1, strict=True)
    generate_actors: int = Field(1, ge=1, strict=True)
    embed_actors: int = Field(1, ge=1, strict=True)
    cpus_an_actor: float = Field(0.5, ge=0.001, allow_inf_nan=False, strict=True)
    threads: int = Field(2, ge=1, le=1024, strict=True)


class Memo(Section):
    """Raw scores of slow rerankers, kept for all searches: how many in memory, and the file that keeps all, if any."""

    entries: int = Field(1_000_000, ge=0, strict=True)
    path: UserPath | None = None


class Config(Section):
    """One run: data, models, methods and the budget they share.

    `dtype: auto` is settled in the driver, by its processor, before anything is loaded or hashed (`settling.settle`).
    `remote_code` allows cross-encoders to run code from their folders, each at the commit that was read: by the hub's
    name of one of the paper's, by the name under `cross_encoders` of one's own.
    """

    profile: Literal["local"] = "local"
    dataset: str = "sample"
    limit: int | None = Field(None, ge=1, strict=True)
    seed: int = Field(0, ge=0, strict=True)
    deterministic: bool = Field(False, strict=True)
    dtype: Literal["auto", "float32", "bfloat16"] = "auto"
    budget_tokens: int = Field(512, ge=1, strict=True)
    group_size: int = Field(24, ge=1, strict=True)
    max_failed_share: float = Field(0.05, ge=0, le=1, strict=True)
    embedder: str = "minilm"
    token_vectors: Annotated[TokenVectorFormat, BeforeValidator(_exact_token_vectors)] = TokenVectorFormat()
    chunking: Annotated[Chunking, BeforeValidator(_exact_chunking)] = Chunking()
    retrieval: Retrieval = Retrieval()
    generation: Generation = Generation()
    cross_encoders: dict[MethodName, CrossEncoderFolder] = Field(default_factory=dict)
    remote_code: dict[str, str] = Field(default_factory=dict)
    methods: dict[MethodName, Method] = Field(default_factory=_default_methods, min_length=1)
    plan: Plan = Plan()
    memo: Memo = Memo()

    @model_validator(mode="after")
    def _known_cross_encoders(self) -> Config:
        for name, entry in self.cross_encoders.items():
            check_row(name, entry.model, entry.max_tokens)
            if self.deterministic and name in self.rerankers and entry.is_int8:
                raise ConfigError(f"cross_encoders.{name}: the deterministic mode takes backend torch, not onnx_int8.")
        check_allow_list(self.remote_code, {name for name, entry in self.cross_encoders.items() if not entry.model})
        return self

    @property
    def rerankers(self) -> set[str]:
        """The rerankers that a method asks."""
        return {method.reranker for method in self.methods.values() if method.strategy}

    @property
    def numbers(self) -> dict[str, Any]:
        """What changes numbers, as JSON values.

        Left out: the plan, the memo, how many questions, how many failures are borne, how patiently a server is asked,
        where folders of models lie and which code in them is allowed (their content counts), and cross-encoders that no
        method asks.
        """
        asked = {name: {"folder"} if name in self.rerankers else True for name in self.cross_encoders}
        left_out: dict[str, Any] = dict.fromkeys(("plan", "memo", "limit", "max_failed_share", "remote_code"), True)
        left_out |= {"generation": {"server": NO_NUMBERS_OF_A_SERVER}, "cross_encoders": asked}
        return self.model_dump(mode="json", exclude=left_out)

    @property
    def publishable(self) -> dict[str, Any]:
        """All of it, as JSON values, but of models' folders and the memo's file the name alone: manifests are shared.

        Where they lie is the user's own affair, and what is in them is told by the fingerprint.
        """
        values = self.model_dump(mode="json")
        for entry in values["cross_encoders"].values():
            entry["folder"] = Path(entry["folder"]).name
        for section, key in ((values["generation"]["server"], "tokenizer"), (values["memo"], "path")):
            if section is not None and section[key] is not None:
                section[key] = Path(section[key]).name
        return values
