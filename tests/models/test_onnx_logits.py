"""int8 by ONNX Runtime: it ranks nearly as float32 does, each pair for itself; its file is made once, whole or not."""

import importlib.util
import itertools
import math
import shutil
from types import SimpleNamespace

import numpy as np
import pytest
import tiny_models
import torch
from scipy.stats import kendalltau
from transformers import AutoModelForSequenceClassification

from corag_ray.errors import ConfigError, MissingModelError
from corag_ray.models import onnx_export, onnx_logits
from corag_ray.models.cross_encoder import CrossEncoder
from corag_ray.models.first_token import FirstTokenLayer
from corag_ray.models.onnx_logits import check_onnx_installed, int8_forward
from corag_ray.models.pair_inputs import PairInput, Pooling
from corag_ray.models.pair_logits import PairLogits
from corag_ray.models.torch_setup import Compute, go_offline
from corag_ray.types import Chunk

QUERY, TEXTS = "How high is the tower?", [text[:90] for text in tiny_models.sample_texts()[:4]]
CHUNKS = [Chunk(n, f"d{n}", 0, 0, len(text), text, 50) for n, text in enumerate(TEXTS)]
COMBINATIONS = [c for size in (1, 2, 3) for c in itertools.permutations(range(4), size)]
ARGUMENTS = ("input_ids", "attention_mask")


@pytest.fixture(scope="module", params=["bert", "typed_bert", "xlm_roberta"])
def folder(request, tmp_path_factory):
    return getattr(tiny_models, request.param)(tmp_path_factory.mktemp(request.param))


@pytest.fixture(scope="module")
def bert(tmp_path_factory):
    return tiny_models.bert(tmp_path_factory.mktemp("bert"))


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    go_offline()  # before ONNX Runtime is imported
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "corag_ray"


class OwnNorm(torch.nn.Module):
    """As the code of a checkpoint may bring one."""

    def forward(self, values):
        return values


class Untraceable(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = OwnNorm()

    def forward(self, input_ids, attention_mask):
        raise RuntimeError("a branch that cannot be traced\nand more")


class Branching(torch.nn.Module):
    """The sum of the ids, twice that where an input is longer than ten tokens: a tracer sees one of the branches."""

    def __init__(self):
        super().__init__()
        self.norm = OwnNorm()

    def forward(self, input_ids, attention_mask):
        logits = self.norm((input_ids * attention_mask).sum(1, keepdim=True).float())
        return SimpleNamespace(logits=2 * logits if input_ids.shape[1] > 10 else logits)


def made(folder, threads=1, key="k", **compute):
    return CrossEncoder(folder, "tiny", 128, Compute(threads, **compute), int8=key)


def raw_scores(reranker, combinations):
    prepared = reranker.prepare(QUERY, CHUNKS, range(4))
    return [score.raw for score in reranker.score([(prepared, c) for c in combinations])]


@pytest.mark.onnx
def test_int8_ranks_nearly_as_float32_does_and_is_not_it(folder):
    exact = raw_scores(CrossEncoder(folder, "tiny", 128, Compute(1)), COMBINATIONS)
    near = raw_scores(made(folder), COMBINATIONS)
    assert kendalltau(near, exact).statistic > 0.85
    assert near == pytest.approx(exact, abs=0.3)
    assert near != pytest.approx(exact, abs=1e-4)


@pytest.mark.onnx
def test_an_int8_score_does_not_depend_on_company_and_the_number_type_of_the_run_is_not_asked(folder):
    reranker = made(folder, dtype="bfloat16")
    together = raw_scores(reranker, COMBINATIONS)
    assert together == [raw_scores(reranker, [one])[0] for one in COMBINATIONS]
    assert together == raw_scores(made(folder), COMBINATIONS)
    assert reranker.padding_share == 0


@pytest.mark.onnx
def test_a_pair_longer_than_the_window_is_read_in_windows_in_int8_too(folder):
    reranker = made(folder)
    narrow = CrossEncoder(folder, "tiny", 64, Compute(1), int8="k")
    prepared = narrow.prepare(QUERY, CHUNKS, range(4))
    [windows] = narrow.window_logits([(prepared, (0, 1, 2))])
    assert len(windows) > 1
    assert raw_scores(narrow, [(0, 1, 2)]) == [Pooling.SOFT_MAXIMUM.pooled(windows)]
    assert reranker.windows([(reranker.prepare(QUERY, CHUNKS, range(4)), (0, 1, 2))]) == [1]


@pytest.mark.onnx
def test_a_padded_batch_is_masked_as_torch_masks_it(folder, tmp_path):
    import onnxruntime

    model = AutoModelForSequenceClassification.from_pretrained(folder).eval()
    onnx_export.export_float32(model, ARGUMENTS, tmp_path / "f.onnx")
    mask = (torch.arange(20) < torch.tensor([20, 3, 11])[:, None]).long()
    ids = torch.where(mask == 1, torch.randint(5, 90, mask.shape), model.config.pad_token_id)
    session = onnxruntime.InferenceSession(str(tmp_path / "f.onnx"), providers=["CPUExecutionProvider"])
    [logits] = session.run(None, {"input_ids": ids.numpy(), "attention_mask": mask.numpy()})
    with torch.inference_mode():
        expected = model(input_ids=ids, attention_mask=mask).logits[:, 0]
    assert torch.allclose(torch.from_numpy(logits), expected, atol=1e-5)


@pytest.mark.onnx
@pytest.mark.parametrize("int8", [None, "k"], ids=["torch", "int8"])
@pytest.mark.parametrize("place", [0, -1], ids=["the first of its tokens", "the last of them"])
def test_a_pair_whose_states_are_not_finite_has_no_score_and_spoils_no_other(bert, tmp_path, int8, place):
    own = CrossEncoder(bert, "tiny", 128, Compute(1)).prepare(QUERY, CHUNKS, range(4))
    ids = [chunk.first.tolist() for chunk in own.chunks]
    bad = [token for token in ids[1] if token not in {*own.query.tolist(), *ids[0], *ids[2], *ids[3]}][place]
    folder = tmp_path / "damaged"
    shutil.copytree(bert, folder)
    model = AutoModelForSequenceClassification.from_pretrained(folder)
    with torch.no_grad():
        model.bert.embeddings.word_embeddings.weight[bad] = math.nan
    model.save_pretrained(folder)
    found = raw_scores(CrossEncoder(folder, "tiny", 128, Compute(1), int8=int8), [(0,), (1,), (2, 1), (2,)])
    assert [math.isnan(raw) for raw in found] == [False, True, True, False]


@pytest.mark.onnx
def test_an_input_that_onnx_runtime_refuses_fails_alone(bert, caplog):
    model = AutoModelForSequenceClassification.from_pretrained(bert).eval()
    logits = PairLogits(int8_forward(model, "mine", ARGUMENTS, "k", 1), "mine", None, pad_id=0, typed=False)
    good, beyond = (PairInput(np.array([2, own, 3], dtype=np.int32), 1) for own in (50, 800))  # 800 tokens are known
    found = logits.of([good, beyond, good], 1)
    assert [math.isnan(logit) for logit in found] == [False, True, False]
    assert found[0] == found[2]
    assert "'mine' failed on 1 of 3 inputs, the first by InvalidArgument: " in caplog.text


@pytest.mark.onnx
def test_the_last_layer_is_exported_for_the_first_token_alone(folder, monkeypatch):
    exported, export = [], onnx_export.export_float32
    monkeypatch.setattr(
        onnx_export, "export_float32", lambda model, *rest: exported.append(model) or export(model, *rest)
    )
    made(folder)
    assert [type(model.base_model.encoder.layer[-1]) for model in exported] == [FirstTokenLayer]


@pytest.mark.onnx
def test_a_checkpoint_is_exported_once_and_run_with_the_threads_of_the_plan(folder, cache, monkeypatch):
    import onnxruntime

    threads, make = [], onnxruntime.InferenceSession

    def session(file, options=None, **more):
        if options is not None:  # the export's own check has none
            threads.append(options.intra_op_num_threads)
        return make(file, options, **more)

    monkeypatch.setattr(onnxruntime, "InferenceSession", session)
    first = raw_scores(made(folder), COMBINATIONS[:3])
    [file] = cache.iterdir()
    written = file.stat().st_mtime_ns
    assert raw_scores(made(folder, threads=3), COMBINATIONS[:3]) == pytest.approx(first, abs=1e-5)
    assert ([*cache.iterdir()], file.stat().st_mtime_ns, threads) == ([file], written, [1, 3])
    made(folder, key="of other weights")
    assert len([*cache.iterdir()]) == 2


@pytest.mark.onnx
def test_of_two_that_make_a_file_at_once_the_first_to_end_keeps_its_own_and_both_read_it(bert, cache, monkeypatch):
    model, quantise, seen = AutoModelForSequenceClassification.from_pretrained(bert).eval(), onnx_export.quantise, []

    def overtaken(file, target):
        monkeypatch.setattr(onnx_export, "quantise", quantise)
        int8_forward(model, "mine", ARGUMENTS, "k", 1)  # the other process, which began later
        [whole] = cache.glob("*.onnx")
        seen.append(whole.stat())
        quantise(file, target)

    monkeypatch.setattr(onnx_export, "quantise", overtaken)
    forward = int8_forward(model, "mine", ARGUMENTS, "k", 1)
    assert math.isfinite(forward({name: torch.ones(1, 4, dtype=torch.int64) for name in ARGUMENTS})[0])
    [file] = cache.iterdir()  # and nothing left over
    assert [file.stat().st_ino] == [whole.st_ino for whole in seen]


@pytest.mark.onnx
def test_a_file_that_was_damaged_is_named_with_what_to_do(bert, cache):
    made(bert)
    [file] = cache.iterdir()
    file.write_bytes(file.read_bytes()[:1000])
    with pytest.raises(ConfigError, match=rf"^'tiny': {file} cannot be read \(.*\): delete it, and it is made again"):
        made(bert)


@pytest.mark.onnx
def test_a_model_that_cannot_be_exported_is_refused_in_one_sentence_and_leaves_nothing_behind(cache):
    with pytest.raises(ConfigError) as caught:
        int8_forward(Untraceable(), "mine", ARGUMENTS, "k", 1)
    assert str(caught.value) == (
        "'mine': the model cannot be exported for backend onnx_int8, take torch "
        "(RuntimeError: a branch that cannot be traced)."
    )
    assert [*cache.iterdir()] == []


@pytest.mark.onnx
def test_a_model_whose_branches_hang_on_the_length_is_refused_and_not_exported_by_half(cache):
    with pytest.raises(ConfigError, match=r"take torch \(ValueError: what was exported computes other logits than the"):
        int8_forward(Branching(), "mine", ARGUMENTS, "k", 1)
    assert [*cache.iterdir()] == []


@pytest.mark.onnx
def test_a_cache_folder_that_cannot_be_written_or_is_full_is_named_with_what_to_set(tmp_path, cache, monkeypatch):
    def full(model, arguments, file):
        file.write_bytes(b"half of it")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(onnx_export, "export_float32", full)
    with pytest.raises(MissingModelError, match=r"cache/corag_ray \(No space left on device\): set XDG_CACHE_HOME to"):
        int8_forward(Untraceable(), "mine", ARGUMENTS, "k", 1)
    assert [*cache.iterdir()] == []
    (tmp_path / "file").write_text("no folder")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with pytest.raises(MissingModelError, match=r"file/corag_ray \(.*\): set XDG_CACHE_HOME to a folder"):
        int8_forward(Untraceable(), "mine", ARGUMENTS, "k", 1)


@pytest.mark.parametrize("missing", onnx_logits.PACKAGES)
def test_a_package_that_is_missing_is_named_with_the_command_that_installs_it(missing, monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == missing else "here")
    for refused in (lambda: check_onnx_installed("mine"), lambda: int8_forward(Untraceable(), "mine", (), "k", 1)):
        with pytest.raises(MissingModelError) as caught:
            refused()
        assert str(caught.value) == (
            f"'mine': backend onnx_int8 needs '{missing}', which is not installed: pip install 'corag_ray[onnx]'."
        )


class Bare(torch.nn.Module):
    def __init__(self, *parts):
        super().__init__()
        self.parts = torch.nn.Sequential(torch.nn.Embedding(8, 4), *parts, torch.nn.Linear(4, 1))

    def forward(self, input_ids):
        return SimpleNamespace(logits=self.parts(input_ids).sum(1))


def test_a_state_behind_a_norm_of_a_checkpoints_own_code_is_watched():
    model = Bare(OwnNorm())
    with torch.no_grad():
        model.parts[0].weight[0] = math.inf
        model.parts[2].weight.zero_()
        model.parts[2].weight[0, 0] = 1e-30
    logit = onnx_export.Logit(model, ["input_ids"])
    assert torch.isnan(logit(torch.tensor([[0, 1]])))
    assert torch.isfinite(logit(torch.tensor([[1, 2]])))


def test_a_model_without_a_norm_is_not_exported(tmp_path):
    with pytest.raises(ValueError, match="no normalisation"):
        onnx_export.export_float32(Bare(), ["input_ids"], tmp_path / "file.onnx")
