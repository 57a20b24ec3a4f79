"""What a memo's scores belong to: everything that changes a raw score, and nothing that does not."""

import pytest

from corag_ray import identity as identities
from corag_ray.build import build_memo
from corag_ray.config import Config
from corag_ray.identity import reranker_identities
from corag_ray.models.cross_encoder import CrossEncoder
from corag_ray.names import RERANKERS

LIKELY = {"methods": {"m": {"strategy": {"kind": "ranked"}, "reranker": "query_likelihood"}}}


@pytest.fixture
def folder(tmp_path):
    made = tmp_path / "mine"
    made.mkdir()
    (made / "weights").write_text("1")
    return made


def crossed(folder, name="mine", max_tokens=512, pooling="maximum", **values):
    method = {"strategy": {"kind": "ranked"}, "reranker": name}
    own = {name: {"folder": str(folder), "max_tokens": max_tokens, "pooling": pooling}}
    return Config.model_validate({"methods": {"m": method}, "cross_encoders": own, "dtype": "float32"} | values)


def identity(config):
    [found] = reranker_identities(config).values()
    return found


def copy_of(folder, weights):
    other = folder.parent / "copy"
    other.mkdir()
    (other / "weights").write_text(weights)
    return other


def test_slow_rerankers_that_a_method_asks_are_memoised_and_no_others(folder):
    methods = {name: {"strategy": {"kind": "ranked"}, "reranker": name} for name in RERANKERS}
    own = {"unused": {"folder": str(folder / "nowhere")}}
    config = Config.model_validate({"methods": methods, "cross_encoders": own})
    assert list(reranker_identities(config)) == ["query_likelihood"]
    memo = build_memo(config)
    assert memo.keys("query_likelihood", "q", ["text"], True) is not None
    assert memo.keys("bm25", "q", ["text"], False) is None


def test_an_identity_stays_with_the_same_weights_elsewhere_under_another_name_and_other_searches(folder):
    same = copy_of(folder, "1")
    assert identity(crossed(same)) == identity(crossed(folder)) == identity(crossed(folder, name="other"))
    searched = {"m": {"strategy": {"kind": "beam"}, "reranker": "mine"}}
    assert identity(crossed(folder, methods=searched, budget_tokens=99, seed=4)) == identity(crossed(folder))


def test_an_identity_changes_with_weights_window_pooling_dtype_mode_libraries_and_template(folder, monkeypatch):
    seen = [
        identity(crossed(folder)),
        identity(crossed(copy_of(folder, "2"))),
        identity(crossed(folder, max_tokens=256)),
        identity(crossed(folder, pooling="mean")),
        identity(crossed(folder, pooling="soft_maximum")),
        identity(crossed(folder, dtype="bfloat16")),
        identity(crossed(folder, deterministic=True)),
        identity(Config.model_validate(LIKELY | {"dtype": "float32"})),
    ]
    monkeypatch.setattr(CrossEncoder, "template_version", 99)
    seen.append(identity(crossed(folder)))
    monkeypatch.setattr(identities, "package_version", lambda package: "99")
    seen.append(identity(crossed(folder)))
    assert len(set(seen)) == len(seen)


def test_the_memo_is_as_large_as_the_configuration_says(folder):
    memo = build_memo(crossed(folder, memo={"entries": 1, "path": None}))
    keys = memo.keys("mine", "q", ["a", "b"], True)
    memo.put({keys.of((0,)): 1.0, keys.of((1,)): 2.0})
    assert memo.get([keys.of((0,)), keys.of((1,))]) == {keys.of((1,)): 2.0}


def test_an_identity_sees_files_at_any_depth_and_those_that_were_written_over(folder):
    seen = {identity(crossed(folder))}
    (folder / "shards").mkdir()
    (folder / "shards" / "part.safetensors").write_bytes(b"3")
    seen.add(identity(crossed(folder)))
    (folder / "shards" / "part.safetensors").write_bytes(b"44")
    seen.add(identity(crossed(folder)))
    assert len(seen) == 3
    (folder / ".cache").mkdir()
    (folder / ".cache" / "note").write_text("fetched today")
    assert identity(crossed(folder)) in seen
