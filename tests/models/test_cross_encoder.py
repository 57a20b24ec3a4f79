"""Random-weight cross-encoders of the real architectures, against transformers' own forward pass."""

import json
import math
import pickle
import random
import shutil
import time
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest
import torch
from FlagEmbedding import FlagReranker
from models import tiny_models
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from corag_ray.errors import ConfigError
from corag_ray.models import cross_encoder
from corag_ray.models.chunk_tokenizer import ChunkTokenizer
from corag_ray.models.cross_encoder import CrossEncoder
from corag_ray.models.cross_encoder_loading import Checkpoint
from corag_ray.models.pair_inputs import Pooling
from corag_ray.models.protocols import WindowedReranker
from corag_ray.models.torch_setup import Compute, native_dtype
from corag_ray.types import Chunk

TEXTS = [text[:90] for text in tiny_models.sample_texts()[:4]]
CHUNKS = [Chunk(n, f"d{n}", 0, 0, len(text), text, 50) for n, text in enumerate(TEXTS)]
QUERY = "How high is the tower?"
COMBINATIONS = [(0,), (1,), (2,), (0, 1), (1, 0), (2, 1)]


@pytest.fixture(scope="module", params=["bert", "xlm_roberta"])
def folder(request, tmp_path_factory):
    return getattr(tiny_models, request.param)(tmp_path_factory.mktemp(request.param))


@pytest.fixture(scope="module")
def reranker(folder):
    return CrossEncoder(folder, "tiny", 128, Compute(threads=1))


class Sums(torch.nn.Module):
    """The logit is the sum of the ids, NaN where one of them is `nan_id`."""

    nan_id = -1

    def forward(self, input_ids, attention_mask):
        self.sizes.append(len(input_ids))
        sums = (input_ids * attention_mask).sum(dim=1).float()
        sums[(input_ids == self.nan_id).any(dim=1)] = math.nan
        return SimpleNamespace(logits=sums[:, None])


@pytest.fixture
def fake(folder, monkeypatch):
    """The sums, in place of a checkpoint; the tokenizer is the tiny model's."""
    model, tokenizer = Sums(), AutoTokenizer.from_pretrained(folder)
    model.sizes = []
    monkeypatch.setattr(cross_encoder, "load_checkpoint", lambda *_: Checkpoint(model, tokenizer))
    return model


def scores(reranker, combinations, query=QUERY):
    prepared = reranker.prepare(query, CHUNKS, range(len(CHUNKS)))
    return reranker.score([(prepared, combination) for combination in combinations])


def tokens_of(folder, query, text):
    """By transformers alone: the tokens that a model reads of a whole pair."""
    return AutoTokenizer.from_pretrained(folder)(query, text, return_tensors="pt")


def logit_of(folder, query, text):
    """By transformers alone: the logit of a whole pair."""
    model = AutoModelForSequenceClassification.from_pretrained(folder).eval()
    inputs = tokens_of(folder, query, text)
    inputs.pop("token_type_ids") if model.config.type_vocab_size == 1 and "token_type_ids" in inputs else None
    with torch.inference_mode():
        return float(model(**inputs).logits[0, 0])


def test_a_score_is_the_models_own_logit_of_the_joined_texts(reranker, folder):
    for combination, score in zip(COMBINATIONS, scores(reranker, COMBINATIONS), strict=True):
        logit = logit_of(folder, QUERY, " ".join(TEXTS[n] for n in combination))
        assert score.raw == pytest.approx(logit, abs=1e-5)
        assert score.calibrated == pytest.approx(1 / (1 + math.exp(-logit)), abs=1e-6)


def test_a_model_with_token_types_is_told_them_where_its_tokenizer_gives_them(reranker, folder, tmp_path):
    typed = tmp_path / "typed"
    shutil.copytree(folder, typed)
    settings = json.loads((typed / "tokenizer_config.json").read_text())
    settings["model_input_names"] = ["input_ids", "token_type_ids", "attention_mask"]
    (typed / "tokenizer_config.json").write_text(json.dumps(settings))
    kinds = AutoModelForSequenceClassification.from_pretrained(typed).config.type_vocab_size
    [plain], [score] = scores(reranker, [(0, 1)]), scores(CrossEncoder(typed, "t", 128, Compute(threads=1)), [(0, 1)])
    assert score.raw == pytest.approx(logit_of(typed, QUERY, f"{TEXTS[0]} {TEXTS[1]}"), abs=1e-5)
    assert (score.raw != pytest.approx(plain.raw, abs=1e-3)) == (kinds == 2)


def test_order_matters_and_more_chunks_can_be_worse_or_better(reranker):
    found = {c: s.raw for c, s in zip(COMBINATIONS, scores(reranker, COMBINATIONS), strict=True)}
    assert found[0, 1] != pytest.approx(found[1, 0], abs=1e-6)
    gains = [found[0, 1] - found[0,], found[1, 0] - found[1,], found[2, 1] - found[2,]]
    gains += [pair.raw - found[0,] for pair in scores(reranker, [(0, 2), (0, 3), (0, 2, 3)])]
    assert min(gains) < 0 < max(gains)


def test_one_pair_none_and_an_empty_combination(reranker):
    assert reranker.score([]) == []
    [one] = scores(reranker, [(0,)])
    assert one.raw == pytest.approx(scores(reranker, COMBINATIONS)[0].raw, abs=1e-5)
    [empty] = scores(reranker, [()])
    assert 0 < empty.calibrated < 1


def test_scores_are_those_that_flagembedding_gives_within_the_window(reranker, folder):
    flag = FlagReranker(str(folder), devices="cpu", use_fp16=False, max_length=128, query_max_length=128)
    expected = flag.compute_score([[QUERY, " ".join(TEXTS[n] for n in c)] for c in COMBINATIONS])
    assert [score.raw for score in scores(reranker, COMBINATIONS)] == pytest.approx(expected, abs=1e-4)


def test_a_pair_longer_than_the_window_counts_by_the_best_of_its_windows_or_their_mean(folder):
    three = f"{TEXTS[0]} {TEXTS[1]} {TEXTS[2]}"
    tokens = tokens_of(folder, QUERY, three)["input_ids"].shape[1]
    whole = CrossEncoder(folder, "tiny", tokens, Compute(threads=1))
    assert scores(whole, [(0, 1, 2)])[0].raw == pytest.approx(logit_of(folder, QUERY, three), abs=1e-5)
    prepared = whole.prepare(QUERY, CHUNKS, range(4))
    assert whole.windows([(prepared, (0, 1, 2))]) == [1]
    halves = [logit_of(folder, QUERY, f"{TEXTS[a]} {TEXTS[b]}") for a, b in ((0, 1), (1, 2))]
    assert halves[0] != pytest.approx(halves[1], abs=1e-3)  # so that the rule matters
    for pooling, expected in ((Pooling.MAXIMUM, max(halves)), (Pooling.MEAN, sum(halves) / 2)):
        narrow = CrossEncoder(folder, "tiny", tokens - 1, Compute(threads=1), pooling=pooling)
        one, windowed = scores(narrow, [(0,), (0, 1, 2)])
        assert one.raw == pytest.approx(logit_of(folder, QUERY, TEXTS[0]), abs=1e-5)
        assert windowed.raw == pytest.approx(expected, abs=1e-5)
        assert windowed.calibrated == pytest.approx(1 / (1 + math.exp(-expected)), abs=1e-6)
        assert narrow.windows([(prepared, (0,)), (prepared, (0, 1, 2))]) == [1, 2]
        assert narrow.windows([]) == []


def test_a_question_may_fill_half_the_window_and_what_is_beyond_is_cut_and_said(folder, caplog):
    reranker = CrossEncoder(folder, "tiny", 128, Compute(threads=1))
    tokenizer = AutoTokenizer.from_pretrained(folder)
    half = (128 - tokenizer.num_special_tokens_to_add(pair=True)) // 2
    pieces = len(tokenizer.tokenize("tower"))
    assert half % pieces == 0
    whole = " ".join(["tower"] * (half // pieces))
    chunk = Chunk(0, "d", 0, 0, 4, "tall", 1)
    prepared = [reranker.prepare(query, [chunk], [0]) for query in (whole, f"{whole} tower")]
    found = reranker.score([(p, (0,)) for p in prepared])
    assert [score.raw for score in found] == pytest.approx([logit_of(folder, whole, "tall")] * 2, abs=1e-5)
    assert [reranker.query_tokens(p) for p in prepared] == [(half, half), (half + pieces, half)]
    assert caplog.messages == [f"'tiny': a question of {half + pieces} tokens is cut to {half}, half the window"]


def test_the_pipeline_can_tell_that_it_reads_in_windows_and_the_logits_of_each_are_to_be_had(reranker, folder):
    assert isinstance(reranker, WindowedReranker)
    prepared = reranker.prepare(QUERY, CHUNKS, range(4))
    tokens = tokens_of(folder, QUERY, f"{TEXTS[0]} {TEXTS[1]} {TEXTS[2]}")["input_ids"].shape[1]
    narrow = CrossEncoder(folder, "tiny", tokens - 1, Compute(threads=1))
    one, both = narrow.window_logits([(prepared, (1,)), (prepared, (0, 1, 2))])
    assert one == pytest.approx([logit_of(folder, QUERY, TEXTS[1])], abs=1e-5)
    expected = [logit_of(folder, QUERY, f"{TEXTS[a]} {TEXTS[b]}") for a, b in ((0, 1), (1, 2))]
    assert both == pytest.approx(expected, abs=1e-5)


def test_a_window_beyond_the_models_positions_is_refused_and_all_of_them_can_be_read(reranker, folder):
    # BERT has 128 positions; XLM-R has 130 and leaves the first two, up to its padding token's number, to padding.
    with pytest.raises(ConfigError, match=r"^'mine': .* reads at most 128 tokens, so max_tokens cannot be 129\.$"):
        CrossEncoder(folder, "mine", 129, Compute(threads=1))
    special = tokens_of(folder, "a", "a")["input_ids"].shape[1] - 2
    text = " ".join("a" * (127 - special))
    assert tokens_of(folder, "a", text)["input_ids"].shape[1] == 128
    [score] = reranker.score([(reranker.prepare("a", [Chunk(0, "d", 0, 0, 1, text, 1)], [0]), (0,))])
    assert score.raw == pytest.approx(logit_of(folder, "a", text), abs=1e-5)


def test_threads_at_once_get_the_scores_of_one_whatever_each_asks(reranker):
    expected = scores(reranker, COMBINATIONS)
    mixtures = [random.Random(n).choices(range(len(COMBINATIONS)), k=1 + n % 8) for n in range(40)]
    with ThreadPoolExecutor(max_workers=8) as threads:
        found = list(threads.map(lambda mixture: scores(reranker, [COMBINATIONS[n] for n in mixture]), mixtures))
    for mixture, own in zip(mixtures, found, strict=True):
        assert [score.raw for score in own] == pytest.approx([expected[n].raw for n in mixture], abs=1e-5)


def test_threads_at_once_never_compute_at_once_and_none_of_their_counts_is_lost(fake):
    asked = [random.Random(n).sample(COMBINATIONS, k=2 + n % 4) for n in range(24)]
    one, shared = (CrossEncoder("nowhere", "fake", 128, Compute(threads=1)) for _ in range(2))
    expected = [scores(one, combinations) for combinations in asked]
    plain, inside, at_once = fake.forward, [], []

    def slow(**batch):
        inside.append(batch)
        at_once.append(len(inside))
        time.sleep(0.005)  # in which another thread would come in
        inside.pop()
        return plain(**batch)

    fake.forward = slow
    with ThreadPoolExecutor(max_workers=8) as threads:
        found = list(threads.map(lambda combinations: scores(shared, combinations), asked))
    assert found == expected
    assert at_once == [1] * 24
    assert shared.padding_share == one.padding_share > 0


def test_a_score_depends_neither_on_order_nor_on_company_and_deterministically_not_by_a_bit(folder):
    pairs = [*COMBINATIONS, (0, 1, 2, 3), (3, 2, 1, 0)]
    for compute, tolerance in ((Compute(threads=1), 1e-5), (Compute(threads=1, deterministic=True), 0)):
        reranker = CrossEncoder(folder, "tiny", 128, compute)
        together = [score.raw for score in scores(reranker, pairs)]
        turned = [score.raw for score in scores(reranker, pairs[::-1])][::-1]
        alone = [scores(reranker, [pair])[0].raw for pair in pairs]
        assert len(set(together)) >= 7  # the last two may share their best window
        assert together == pytest.approx(turned, abs=tolerance, rel=0)
        assert together == pytest.approx(alone, abs=tolerance, rel=0)
        assert (reranker.padding_share > 0) != compute.deterministic


def test_bfloat16_is_computed_where_asked_and_is_near(folder, reranker):
    half = CrossEncoder(folder, "tiny", 128, Compute(threads=1, dtype="bfloat16"))
    near, exact = ([score.raw for score in scores(r, COMBINATIONS)] for r in (half, reranker))
    assert near != exact
    assert near == pytest.approx(exact, abs=0.1)


def test_in_bfloat16_the_logit_itself_is_not_rounded_to_it_and_is_the_same_alone_and_in_company(folder):
    half = CrossEncoder(folder, "tiny", 128, Compute(threads=1, dtype="bfloat16"))
    together = [score.raw for score in scores(half, COMBINATIONS)]
    alone = [scores(half, [combination])[0].raw for combination in COMBINATIONS]
    # Emulated, XLM-R's states of 32 numbers and weights ten times as large as trained ones come to 0.015.
    tolerance = 5e-3 if native_dtype() == "bfloat16" else 2e-2
    assert together == pytest.approx(alone, abs=tolerance, rel=0)
    assert half.padding_share > 0
    assert all(float(torch.tensor(raw).bfloat16()) != raw for raw in together)


def test_pairs_of_several_queries_go_together_and_equal_inputs_are_computed_once(fake):
    reranker = CrossEncoder("nowhere", "fake", 128, Compute(threads=1))
    first, same, other = (reranker.prepare(query, CHUNKS, range(4)) for query in (QUERY, QUERY, "tea"))
    pairs = [(first, (0,)), (same, (0,)), (other, (0,)), (first, (0,)), (other, (1, 0))]
    fake.sizes.clear()  # the look at load
    found = [score.raw for score in reranker.score(pairs)]
    assert sum(fake.sizes) == 3
    assert found[0] == found[1] == found[3] != found[2]
    assert found == [reranker.score([pair])[0].raw for pair in pairs]


def test_a_pair_without_a_number_has_no_score_and_spoils_no_other(fake):
    reranker = CrossEncoder("nowhere", "fake", 128, Compute(threads=1))
    prepared = reranker.prepare(QUERY, CHUNKS, range(4))
    ids = [chunk.first for chunk in prepared.chunks]
    fake.nan_id = int(set(ids[1].tolist()).difference(prepared.query.tolist(), *ids[::2]).pop())
    found = reranker.score([(prepared, c) for c in ((0,), (1,), (0, 1), (2,))])
    assert [math.isnan(score.raw) for score in found] == [False, True, True, False]
    assert [math.isnan(score.calibrated) for score in found] == [False, True, True, False]


@pytest.mark.parametrize("kind", ["bert", "cased_bert", "roberta"])
def test_stored_ids_stand_for_the_texts_by_row_and_a_prepared_query_is_small_and_can_be_sent(kind, tmp_path):
    folder = getattr(tiny_models, kind)(tmp_path)
    alone = ChunkTokenizer.load(folder)  # as indexing does
    kept = {form.key: form.ids(TEXTS) for form in (alone, alone.behind_a_blank())}
    by_rows = {key: lambda rows, key=key: [kept[key][row - 10] for row in rows] for key in kept}
    stored = CrossEncoder(folder, "tiny", 128, Compute(threads=1), stored=by_rows.get)
    blank = [Chunk(0, "d", 0, 0, 0, "", 0)] * 4
    sent = pickle.dumps(stored.prepare(QUERY, blank, range(10, 14)))
    assert len(sent) < 1500 + sum(ids.nbytes for forms in kept.values() for ids in forms)
    prepared = pickle.loads(sent)
    found = stored.score([(prepared, c) for c in COMBINATIONS])
    assert found == scores(CrossEncoder(folder, "tiny", 128, Compute(threads=1)), COMBINATIONS)
    for combination, score in zip(COMBINATIONS, found, strict=True):
        assert score.raw == pytest.approx(logit_of(folder, QUERY, " ".join(TEXTS[n] for n in combination)), abs=1e-5)


def test_ids_of_another_tokenizer_are_not_looked_up(folder, reranker):
    asked = []
    other = CrossEncoder(folder, "tiny", 128, Compute(threads=1), stored=asked.append)
    assert scores(other, COMBINATIONS) == scores(reranker, COMBINATIONS)
    assert asked == [ChunkTokenizer.load(folder).key]


def test_no_text_breaks_the_scorer_every_value_is_in_0_to_1_and_is_the_same_alone(folder):
    reranker, windowed = CrossEncoder(folder, "tiny", 128, Compute(threads=1)), False
    chance = random.Random(0)
    kinds = [
        "tower high ",
        "\x00\x01\x1b\r\n\t\x7f",
        "塔は高い",
        "برج ",
        "👩\u200d🚀",
        "\ud800",
        "\udfff",
        "[SEP]</s>",
        "e\u0301",
        " ",
    ]
    for number in range(200):
        size = 20_000 if number % 50 == 0 else chance.choice([0, 1, 5, 30])
        words = ["".join(chance.choices(kinds, k=chance.choice([0, 1, size]))) for _ in range(4)]
        chunks = [Chunk(n, "d", n, 0, len(text), text, 1) for n, text in enumerate(words[1:])]
        prepared = reranker.prepare(words[0], chunks, range(3))
        windowed |= reranker.windows([(prepared, (2, 0, 1))]) != [1]
        pairs = [(prepared, c) for c in ((), (0,), (2, 0, 1))]
        found = reranker.score(pairs)
        for pair, score in zip(pairs, found, strict=True):
            assert math.isfinite(score.raw)
            assert 0 <= score.calibrated <= 1
            assert number % 10 or score.raw == pytest.approx(reranker.score([pair])[0].raw, abs=1e-5)
    assert windowed


def test_a_folder_without_a_cross_encoder_is_refused_in_one_sentence(tmp_path):
    with pytest.raises(ConfigError, match=r"^'mine': .* holds no cross-encoder"):
        CrossEncoder(tmp_path, "mine", 128, Compute(threads=1))


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (lambda ids: SimpleNamespace(logits=ids.sum(1)), "IndexError: too many indices for tensor of dimension 1"),
        (lambda ids: ids, "AttributeError: 'Tensor' object has no attribute 'logits'"),
        (lambda ids: torch.ones(1)[ids[0]], "IndexError: index .* is out of bounds .*"),
    ],
    ids=["logits of one dimension", "no logits", "too few vectors"],
)
def test_a_model_that_fails_on_every_input_is_refused_at_load_in_one_sentence(fake, answer, reason):
    fake.forward = lambda input_ids, **_: answer(input_ids)
    with pytest.raises(ConfigError, match=rf"^'fake': the model fails on two short texts by {reason}$"):
        CrossEncoder("nowhere", "fake", 128, Compute(threads=1))


def test_a_model_that_fails_on_all_that_a_call_asks_is_an_error_with_its_name_and_the_first_reason(fake):
    reranker = CrossEncoder("nowhere", "fake", 128, Compute(threads=1))
    fake.forward = lambda input_ids, **_: input_ids.none
    with pytest.raises(ConfigError, match=r"^'fake': the model failed on all of 6 inputs, first by AttributeError: "):
        scores(reranker, COMBINATIONS)


@pytest.mark.parametrize("remote_code", [False, True])
def test_a_layer_is_replaced_in_models_of_transformers_alone_while_they_are_in_float32(
    folder, monkeypatch, remote_code
):
    seen, replace = [], cross_encoder.compute_first_token_alone

    def watched(model, logit):
        seen.append((model.dtype, replace(model, logit)))

    monkeypatch.setattr(cross_encoder, "compute_first_token_alone", watched)
    CrossEncoder(folder, "tiny", 128, Compute(threads=1, dtype="bfloat16"), remote_code=remote_code)
    assert seen == ([] if remote_code else [(torch.float32, True)])
