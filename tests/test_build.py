"""A configuration becomes objects that work together: what a server without a tokenizer folder is asked."""

import functools
import json

import pytest
from models import tiny_models
from models.openai_server import completion, serving

from corag_ray import build, names
from corag_ray.build import build_answerer, build_embedder, build_selector, build_tokenizer
from corag_ray.config import Config
from corag_ray.datasets.assemble import Dataset
from corag_ray.identity import index_spec
from corag_ray.indexing.build_index import embed_shard, update_index
from corag_ray.indexing.merge import CHUNKS
from corag_ray.indexing.store import ChunkStore
from corag_ray.prompts import numbered_passage, seed
from corag_ray.types import Document, Generation, Question

TEA = "Tea came to Britain in the 1660s. It was dear at first, and only the court drank it."  # 84 bytes
BYTES = {"en": TEA, "zh": "茶叶在十七世纪传入英国。起初价格昂贵，只有宫廷才喝。"}  # 26 characters of 3 bytes
DATA = Dataset("tea", tuple(Document(*item) for item in BYTES.items()), (), 0, "c0", "q0")
BUDGET, SIZE, CHARACTER = 100, 40, 3


class Handed:
    """A cross-encoder that notes with what it is made."""

    memoised, order_sensitive, monotone = False, True, False

    def __init__(self, folder, name, max_tokens, compute, **others):
        self.folder, self.name, self.others = folder, name, others


def test_a_cross_encoders_class_and_curve_are_looked_up_once(tmp_path, monkeypatch):
    monkeypatch.setattr(names, "CROSS_ENCODER", f"{__name__}:Handed")
    asked = []
    for look_up in (names.reranker_class, names.calibration_of):
        told = functools.partial(lambda real, *given: asked.append(real.__name__) or real(*given), look_up)
        monkeypatch.setattr(build, look_up.__name__, told)
    method = {"strategy": {"kind": "ranked"}, "reranker": "mine"}
    entry = {"folder": str(tmp_path), "model": None}
    config = Config.model_validate({"methods": {"m": method}, "cross_encoders": {"mine": entry}})
    made = build.build_reranker(config, "mine", None, None)
    assert (made.folder, made.name) == (tmp_path, "mine")
    assert sorted(asked) == ["calibration_of", "reranker_class"]


def config_of(url, budget=BUDGET):
    server = {"base_url": url, "model": "m", "context_window": 2000}
    method = {"strategy": {"kind": "ranked"}, "reranker": "bm25"}
    values = {"chunking": {"size_tokens": SIZE}, "budget_tokens": budget, "generation": {"server": server}}
    return Config.model_validate(values | {"methods": {"m": method}})


@pytest.fixture(scope="module")
def index(tmp_path_factory):
    """The index by bytes: it depends on the tokenizer, not on where the server is."""
    config, folder = config_of("http://127.0.0.1:9/v1"), tmp_path_factory.mktemp("index")
    spec, embedder = index_spec(config, DATA), build_embedder(config)

    def embed(version, missing, total):
        for shard in missing:
            embed_shard(version, ChunkStore.open(version / CHUNKS), shard, spec, embedder)

    update_index(folder, DATA.documents, spec, build_tokenizer(config), embed)
    return folder


def chosen(index, config):
    [choices] = build_selector(config, index, index_spec(config, DATA)).select([Question("q", "When did tea come?")])
    return choices


@pytest.mark.models
def test_without_a_tokenizer_chunks_and_costs_are_bytes_as_the_prompt_shows_them(index):
    chunks = chosen(index, config_of("http://127.0.0.1:9/v1")).candidates
    assert {chunk.doc_id for chunk in chunks} == {"en", "zh"}
    for chunk in chunks:
        assert chunk.text == BYTES[chunk.doc_id][chunk.start : chunk.end]
        assert len(chunk.text.encode()) <= SIZE + CHARACTER - 1
        assert chunk.cost == len(numbered_passage(99, chunk.text).encode())
    texts = [c.text for c in sorted(chunks, key=lambda c: c.start) if c.doc_id == "en"]
    assert texts == ["Tea came to Britain in the 1660s. It was", "dear at first, and only the court drank", "it."]


@pytest.mark.models
def test_without_a_tokenizer_a_server_is_asked_within_the_budget_in_bytes(index):
    with serving(lambda body, number: (200, {}, completion("in the 1660s"), 0.0)) as (url, requests):
        config = config_of(url)
        choices = chosen(index, config)
        [answers] = build_answerer(config).answer([choices])
    assert answers == {"m": Generation("in the 1660s", 7, 3, "stop")}  # as the server counts
    [message] = requests[0]["body"]["messages"]
    context = len(message["content"].encode()) - len(seed("When did tea come?", [], "en").encode())
    assert choices.methods["m"].context_tokens == context
    assert 0 < context <= BUDGET


@pytest.mark.models
def test_where_the_server_counts_nothing_either_an_answers_tokens_are_bytes(index):
    text = json.dumps({"choices": [{"message": {"content": "été"}}]})
    with serving(lambda body, number: (200, {}, text, 0.0)) as (url, _):
        config = config_of(url)
        choices = chosen(index, config)
        [answers] = build_answerer(config).answer([choices])
    prompt_bytes = len(choices.methods["m"].prompt.encode())
    assert answers == {"m": Generation("été", prompt_bytes + 256, 5, "stop")}  # 256: what a template adds, at most


@pytest.mark.models
def test_without_a_tokenizer_a_budget_above_the_window_is_cut_and_the_row_says_so(index):
    choice = chosen(index, config_of("http://127.0.0.1:9/v1", budget=3000)).methods["m"]
    frame_bytes = len(seed("When did tea come?", [], "en").encode())
    left = 2000 - 48 - 256 - frame_bytes  # window, new tokens, template
    assert choice.effective_budget_tokens == left
    assert choice.notes == [f"budget cut from 3000 to {left} tokens, all that the model's window leaves"]


@pytest.mark.models
def test_a_memos_file_serves_a_later_selector_with_other_searches_over_the_same_cross_encoder(index, tmp_path):
    tree = {"kind": "policy_tree", "preset": "report"}
    first = {"ranked": {"kind": "ranked"}, "tree": tree}
    later = {"tree": {**tree, "changes": {"iterations": 1}}, "beam": {"kind": "beam"}}
    own = {"tiny": {"folder": tiny_models.bert(tmp_path / "bert"), "max_tokens": 128}}
    plain = config_of("http://127.0.0.1:9/v1").model_dump() | {"cross_encoders": own}
    pairs, computed = [], []
    for strategies in (first, later):
        methods = {name: {"strategy": strategy, "reranker": "tiny"} for name, strategy in strategies.items()}
        memo = {"entries": 0, "path": tmp_path / "memo.sqlite"}
        choices = chosen(index, Config.model_validate(plain | {"methods": methods, "memo": memo}))
        pairs.append([choice.pairs for choice in choices.methods.values()])
        computed.append([choice.pairs_computed for choice in choices.methods.values()])
    assert 0 < computed[0][0] + computed[0][1] < sum(pairs[0])
    assert computed[1][0] == 0 < pairs[1][0]
