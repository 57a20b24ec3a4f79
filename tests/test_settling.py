"""What a configuration leaves open is decided once, so that every process computes alike and finds its folders."""

import pytest

from corag_ray import settling
from corag_ray.build import build_method, describe
from corag_ray.config import Config
from corag_ray.core.random_fill import RandomFill, RandomParams
from corag_ray.core.strategy import Candidates
from corag_ray.datasets.assemble import Dataset
from corag_ray.identity import index_spec, run_fingerprint
from corag_ray.models.torch_setup import Compute
from corag_ray.settling import compute, settle
from corag_ray.types import Document, Question

DATA = Dataset("d", (Document("a", "text"),), (Question("q", "why?"),), 0, "c0", "q0")


def test_a_random_strategy_draws_by_the_runs_seed_unless_it_has_one_of_its_own():
    places = Candidates((1,) * 10, (0.0,) * 10, (0,) * 10, tuple(range(10)))
    strategies = {"runs": {"kind": "random"}, "own": {"kind": "random", "changes": {"seed": 3}}}
    for seed in (0, 7):
        config = Config(seed=seed, methods={name: {"strategy": strategy} for name, strategy in strategies.items()})
        for name, expected in (("runs", seed), ("own", 3)):
            drawn = build_method(config.methods[name], seed).new_strategy(places, 5).ask(1)
            assert drawn == RandomFill(places, 5, RandomParams(seed=expected)).ask(1)
            assert describe(config, name)["seed"] == str(expected)


@pytest.mark.parametrize("native", ["float32", "bfloat16"])
def test_the_number_type_is_settled_once_by_the_drivers_processor(monkeypatch, native):
    monkeypatch.setattr(settling, "native_dtype", lambda: native)
    auto = Config()
    assert auto.dtype == "auto"
    settled = settle(auto)
    assert settled.dtype == native
    assert compute(auto) == compute(settled) == Compute(2, False, native)
    assert run_fingerprint(auto, DATA) == run_fingerprint(settled, DATA)
    monkeypatch.setattr(settling, "native_dtype", lambda: "of another machine")
    assert settle(settled) == settled  # a worker with another processor computes as the driver said
    assert index_spec(settled, DATA).dtype == native


def test_folders_of_models_are_settled_from_the_root_so_that_an_actor_elsewhere_finds_them(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    server = {"base_url": "http://127.0.0.1:9/v1", "model": "m", "context_window": 100, "tokenizer": "models/theirs"}
    own = {"mine": {"folder": "models/mine"}}
    config = Config(cross_encoders=own, generation={"server": server}, memo={"path": "memo.sqlite"})
    settled = settle(config)
    assert settled.cross_encoders["mine"].folder == tmp_path.resolve() / "models" / "mine"
    assert settled.generation.server.tokenizer == tmp_path.resolve() / "models" / "theirs"
    assert settled.memo.path == tmp_path.resolve() / "memo.sqlite"
    monkeypatch.chdir("/")
    assert settle(settled) == settled


def test_a_number_type_that_is_asked_for_is_kept_and_deterministic_is_float32(monkeypatch):
    monkeypatch.setattr(settling, "native_dtype", lambda: "bfloat16")
    assert settle(Config(dtype="float32")).dtype == "float32"
    for asked in ("auto", "bfloat16", "float32"):
        assert compute(Config(dtype=asked, deterministic=True)) == Compute(2, True, "float32")
