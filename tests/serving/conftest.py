"""A tiny corpus with its configuration, for the tests with real models."""

import os
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent / "batch"))  # the tiny corpus is the batch tests'

from tiny_run import config_values, write_folder


@pytest.fixture(scope="session")
def serving_args(tmp_path_factory: pytest.TempPathFactory) -> dict[str, object]:
    """`args` of an application over the tiny corpus, deterministic, on one thread."""
    data = write_folder(tmp_path_factory.mktemp("serving") / "tiny")
    values = config_values(data)
    values["methods"] |= {
        "mmr": {"strategy": {"kind": "mmr"}},
        "combined": {"strategy": {"kind": "beam"}, "reranker": "combination"},
        "by_terms": {"strategy": {"kind": "policy_tree", "preset": "report"}, "reranker": "bm25"},
        "no_context": {"source": "none"},
    }
    values["plan"] = {"threads": 1}
    return {
        "config": values,
        "index": {"root": str(tmp_path_factory.mktemp("root"))},
        "deployments": {"rerankers": {"late_interaction": {}, "combination": {}, "bm25": {}, "pooled_embedding": {}}},
        "http": {"keys_variable": f"NO_KEYS_{os.getpid()}"},
    }
