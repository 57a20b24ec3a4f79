"""The six rerankers of the paper (arXiv 2411.00744) as rows of a table: what their hub pages say, and no weights."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from corag_ray.errors import ConfigError, unknown_name
from corag_ray.models.calibration import Calibration
from corag_ray.models.checkpoint_config import configuration

LOGIT = Calibration(slope=1.0, offset=0.0, version=0)
"""A raw score that is a logit: its sigmoid, by no fit."""

XLM_ROBERTA = "xlm-roberta"
"""The architecture of the three without code of their own, as `config.json` names it."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class PaperReranker:
    """One of the paper's rerankers, whose weights a user fetches from the hub into a folder.

    `revision` is the checkpoint's commit (None where it is not known) and `code`, as `REPOSITORY@COMMIT`, the Python
    files that the checkpoint runs (None where transformers itself has the architecture). `window_tokens` holds question
    and combination with the special tokens. `layers` and `vocabulary`, in tokens, are as `config.json` tells them.
    `output` calibrates the raw score that FlagEmbedding reads: the logit for all six, though Jina's own call hands out
    its sigmoid.
    """

    hub_id: str
    revision: str | None
    parameters_millions: int
    window_tokens: int
    licence: str
    layers: int
    vocabulary: int
    code: str | None = None
    output: Calibration = LOGIT

    @property
    def remote_code(self) -> bool:
        """Whether it runs Python files that come with the checkpoint."""
        return self.code is not None

    @property
    def forbids_commercial_use(self) -> bool:
        """Whether its licence is one of Creative Commons' non-commercial ones."""
        return "-NC-" in self.licence


_JINA_V1, _JINA_V2 = "jinaai/jina-reranker-v1-turbo-en", "jinaai/jina-reranker-v2-base-multilingual"
_JINA_V1_COMMIT, _JINA_V2_COMMIT = (
    "b8c14f4e723d9e0aab4732a7b7b93741eeeb77c2",
    "9cfeff2df7d40d1b78e75e5e9cebec92a99813c9",
)

PAPER_RERANKERS: Mapping[str, PaperReranker] = {
    "jina_v1_turbo": PaperReranker(
        _JINA_V1, _JINA_V1_COMMIT, 38, 8192, "Apache-2.0", 6, 61_056, code=f"{_JINA_V1}@{_JINA_V1_COMMIT}"
    ),
    "jina_v2_multilingual": PaperReranker(
        _JINA_V2, _JINA_V2_COMMIT, 278, 1024, "CC-BY-NC-4.0", 12, 250_002, code=f"{_JINA_V2}@{_JINA_V2_COMMIT}"
    ),
    # Its authors advise a `max_tokens` of 1,024.
    "bge_v2_m3": PaperReranker(
        "BAAI/bge-reranker-v2-m3", "953dc6f6f85a1b2dbfca4c34a2796e7dde08d41e", 568, 8192, "Apache-2.0", 24, 250_002
    ),
    "bge_large": PaperReranker(
        "BAAI/bge-reranker-large", "55611d7bca2a7133960a6d3b71e083071bbfc312", 560, 512, "MIT", 24, 250_002
    ),
    "bge_base": PaperReranker(
        "BAAI/bge-reranker-base", "2cfc18c9415c912f9d8155881c133215df768a70", 278, 512, "MIT", 12, 250_002
    ),
    "gte_multilingual": PaperReranker(
        "Alibaba-NLP/gte-multilingual-reranker-base",
        "8215cf04918ba6f7b6a62bb44238ce2953d8831c",
        306,
        8192,
        "Apache-2.0",
        12,
        250_048,
        code="Alibaba-NLP/new-impl@40ced75c3017eb27626c9d4ea981bde21a2662f4",  # a repository of code alone
    ),
}
"""By the short name that a configuration gives; a later commit than these may hold other code and weights."""


def check_row(name: str, model: str | None, max_tokens: int) -> None:
    """Refuse a cross-encoder `name` that asks for an unknown row, or for more than its row reads.

    Raises:
        ConfigError: no row is called `model`, `max_tokens` lies above its window, or `name` is another row's.
    """
    place = f"cross_encoders.{name}"
    if model is not None and model not in PAPER_RERANKERS:
        raise ConfigError(f"{place}: {unknown_name('model', model, PAPER_RERANKERS)}")
    if name in PAPER_RERANKERS and model != name:
        raise ConfigError(f"{place}: the name means {PAPER_RERANKERS[name].hub_id}: add `model: {name}` or rename it.")
    if model is not None and max_tokens > PAPER_RERANKERS[model].window_tokens:
        row = PAPER_RERANKERS[model]
        raise ConfigError(
            f"{place}: {row.hub_id} reads at most {row.window_tokens:,} tokens, so max_tokens cannot be {max_tokens:,}."
        )


def check_checkpoint(name: str, folder: Path, row: PaperReranker) -> None:
    """Refuse a folder of another architecture than its row's, and warn of one of another size.

    The architecture is what transformers makes of `config.json`, or for rows with code that there is code at all: which
    code, the user's allow-list pins. What `config.json` does not tell, or cannot, is left to loading.

    Raises:
        ConfigError: the architecture is another.
    """
    found = configuration(folder)
    kind = found.get("model_type")
    if row.remote_code and found and "auto_map" not in found:
        raise ConfigError(f"'{name}': {folder} comes without code, which {row.hub_id} has: it holds another model.")
    if not row.remote_code and kind not in (XLM_ROBERTA, None):
        raise ConfigError(
            f"'{name}': the model in {folder} is of type {kind}, and {row.hub_id} of type {XLM_ROBERTA}: "
            "take that one's folder, or strike `model` out and choose another name."
        )
    sizes = {"num_hidden_layers": ("layers", row.layers), "vocab_size": ("tokens", row.vocabulary)}
    other = [f"{found[key]} {of} for {own:,}" for key, (of, own) in sizes.items() if found.get(key, own) != own]
    if other:
        _log.warning(
            "'%s': the model in %s is not %s, it has %s: its scores are another model's",
            name,
            folder,
            row.hub_id,
            " and ".join(other),
        )
