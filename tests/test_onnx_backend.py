"""A configuration that has a cross-encoder computed in int8: what is refused, what is built, what it counts for."""

import importlib.util

import pytest
from models import tiny_models

from corag_ray import identity
from corag_ray.build import build_cross_encoder
from corag_ray.config import Config
from corag_ray.config_file import load_config
from corag_ray.datasets.assemble import Dataset
from corag_ray.errors import ConfigError, MissingModelError
from corag_ray.identity import reranker_identities, run_fingerprint
from corag_ray.models import onnx_logits
from corag_ray.models.cross_encoder import CrossEncoder
from corag_ray.models.packaged import PackagedModel
from corag_ray.prepare import prepare_weights
from corag_ray.settling import compute
from corag_ray.types import Chunk, Document, Question

DATA = Dataset("d", (Document("a", "text"),), (Question("q", "why?"),), 0, "c0", "q0")
CROSS_ENCODED = {"m": {"strategy": {"kind": "ranked"}, "reranker": "mine"}}


@pytest.fixture(autouse=True)
def nothing_is_unpacked(monkeypatch):
    monkeypatch.setattr(PackagedModel, "folder", lambda model: None)


def values(folder, **entry):
    return {
        "dtype": "float32",
        "methods": CROSS_ENCODED,
        "cross_encoders": {"mine": {"folder": str(folder), "max_tokens": 128, **entry}},
    }


def config(folder, **entry):
    return Config.model_validate(values(folder, **entry))


def scores(reranker):
    """Raw scores of a few chunks, each alone."""
    chunks = [Chunk(n, "d", n, 0, 80, text[:80], 20) for n, text in enumerate(tiny_models.sample_texts()[:4])]
    prepared = reranker.prepare("How high is the tower?", chunks, range(4))
    return [score.raw for score in reranker.score([(prepared, (n,)) for n in range(4)])]


def test_torch_computes_unless_int8_is_asked_for_and_another_name_is_refused_with_the_nearest():
    assert config("nowhere").cross_encoders["mine"].backend == "torch"
    with pytest.raises(ConfigError, match=r"'cross_encoders\.mine\.backend': .*did you mean 'onnx_int8'\?"):
        load_config(None, values("nowhere", backend="onnx-int8"))


def test_the_deterministic_mode_refuses_int8_where_a_method_asks_it():
    asked = values("nowhere", backend="onnx_int8")
    with pytest.raises(ConfigError) as caught:
        load_config(None, asked | {"deterministic": True})
    assert str(caught.value) == (
        "the command line: cross_encoders.mine: the deterministic mode takes backend torch, not onnx_int8."
    )
    unasked = asked | {"deterministic": True, "methods": {"m": {"source": "none"}}}
    assert load_config(None, unasked).deterministic
    assert load_config(None, values("nowhere") | {"deterministic": True}).deterministic


def test_without_onnx_runtime_int8_is_refused_before_anything_is_loaded_and_torch_is_not(tmp_path, monkeypatch):
    installed = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "onnxruntime" else installed(name))
    for name in ("config.json", "model.safetensors"):
        (tmp_path / name).write_text("{}")
    prepare_weights(config(tmp_path))
    with pytest.raises(MissingModelError, match=r"^'mine': backend onnx_int8 needs 'onnxruntime', .*\[onnx\]'\.$"):
        prepare_weights(config(tmp_path, backend="onnx_int8"))


@pytest.mark.onnx
def test_the_backend_that_the_configuration_names_is_built(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    folder = tiny_models.bert(tmp_path / "bert")
    run = config(folder, backend="onnx_int8")
    expected = CrossEncoder(folder, "mine", 128, compute(run), int8="k")
    assert scores(build_cross_encoder(run, "mine")) == scores(expected)
    assert scores(expected) != pytest.approx(scores(build_cross_encoder(config(folder), "mine")), abs=1e-4)


def numbers_of(folder, **entry):
    """The fingerprint of a run, and the identity of its reranker for the memo."""
    return run_fingerprint(config(folder, **entry), DATA), reranker_identities(config(folder, **entry))["mine"]


def test_backend_version_and_export_are_part_of_fingerprint_and_memo_where_they_count(tmp_path, monkeypatch):
    (tmp_path / "weights").write_text("1")
    installed = identity.package_version
    seen = {}
    for version in ("1.0", "2.0"):
        monkeypatch.setattr(
            identity,
            "package_version",
            lambda package, version=version: version if package == "onnxruntime" else installed(package),
        )
        for backend in ("torch", "onnx_int8"):
            seen[backend, version] = numbers_of(tmp_path, backend=backend)
    monkeypatch.setattr(onnx_logits, "EXPORT_VERSION", 99)
    seen["torch", "of another export"] = numbers_of(tmp_path, backend="torch")
    seen["onnx_int8", "of another export"] = numbers_of(tmp_path, backend="onnx_int8")
    for kind in (0, 1):
        assert len({found[kind] for (backend, _), found in seen.items() if backend == "torch"}) == 1
        assert len({found[kind] for found in seen.values()}) == 4


def test_the_number_type_of_the_run_changes_no_raw_score_in_int8(tmp_path):
    (tmp_path / "weights").write_text("1")
    for backend, known in (("torch", 2), ("onnx_int8", 1)):
        made = (values(tmp_path, backend=backend) | {"dtype": dtype} for dtype in ("float32", "bfloat16"))
        assert len({reranker_identities(Config.model_validate(one))["mine"] for one in made}) == known
