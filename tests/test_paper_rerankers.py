"""The paper's six rerankers: a configuration names a row and a folder, and nothing runs code that is not allowed."""

import dataclasses
import json
import math
from typing import get_args

import pytest
import torch
from models import tiny_models
from transformers import AutoModelForSequenceClassification, AutoTokenizer, dynamic_module_utils

from corag_ray.build import build_cross_encoder
from corag_ray.config import Config, CrossEncoderFolder
from corag_ray.config_file import load_config
from corag_ray.datasets.assemble import Dataset
from corag_ray.errors import ConfigError, MissingModelError
from corag_ray.identity import run_fingerprint
from corag_ray.models.calibration import Calibration
from corag_ray.models.packaged import PackagedModel
from corag_ray.models.pair_inputs import Pooling
from corag_ray.models.paper_rerankers import PAPER_RERANKERS, check_checkpoint
from corag_ray.names import calibrations
from corag_ray.prepare import prepare_weights
from corag_ray.types import Chunk, Document, Question

DATA = Dataset("d", (Document("a", "text"),), (Question("q", "why?"),), 0, "c0", "q0")
PLAIN = [name for name, row in PAPER_RERANKERS.items() if not row.remote_code]
WITH_CODE = [name for name, row in PAPER_RERANKERS.items() if row.remote_code]
COMMIT = "0123456789abcdef0123456789abcdef01234567"
QUERY, TEXTS = "How high is the tower?", [text[:60] for text in tiny_models.sample_texts()[:2]]
CHUNKS = [Chunk(n, f"d{n}", 0, 0, len(text), text, 20) for n, text in enumerate(TEXTS)]


@pytest.fixture(autouse=True)
def nothing_is_unpacked(monkeypatch):
    monkeypatch.setattr(PackagedModel, "folder", lambda model: None)


@pytest.fixture(scope="module")
def xlm_roberta(tmp_path_factory):
    return tiny_models.xlm_roberta(tmp_path_factory.mktemp("xlm_roberta"))


@pytest.fixture(scope="module")
def with_code(tmp_path_factory):
    return tiny_models.with_code(tmp_path_factory.mktemp("with_code"))


@pytest.fixture(autouse=True, scope="module")
def copies_of_code(tmp_path_factory):
    """Where transformers copies code before it runs it: not the user's cache."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dynamic_module_utils, "HF_MODULES_CACHE", str(tmp_path_factory.mktemp("modules")))
        yield


def config(name, folder, allowed=None, **entry):
    values = {
        "dtype": "float32",
        "methods": {"m": {"strategy": {"kind": "ranked"}, "reranker": name}},
        "cross_encoders": {name: {"folder": str(folder), **entry}},
        "remote_code": allowed or {},
    }
    return load_config(None, values)


def row_config(name, folder, allowed=None, **entry):
    return config(name, folder, allowed, model=name, **entry)


def scores(reranker, combinations):
    prepared = reranker.prepare(QUERY, CHUNKS, range(len(CHUNKS)))
    return reranker.score([(prepared, combination) for combination in combinations])


def refusal(act, *arguments, kind=ConfigError, **settings):
    with pytest.raises(kind) as caught:
        act(*arguments, **settings)
    message = str(caught.value)
    assert message.count("\n") == 0
    return message


def test_the_table_holds_the_six_and_three_of_them_run_code():
    facts = {n: (r.parameters_millions, r.window_tokens, r.licence, r.remote_code) for n, r in PAPER_RERANKERS.items()}
    assert facts == {
        "jina_v1_turbo": (38, 8192, "Apache-2.0", True),
        "jina_v2_multilingual": (278, 1024, "CC-BY-NC-4.0", True),
        "bge_v2_m3": (568, 8192, "Apache-2.0", False),
        "bge_large": (560, 512, "MIT", False),
        "bge_base": (278, 512, "MIT", False),
        "gte_multilingual": (306, 8192, "Apache-2.0", True),
    }
    commits = [row.revision for row in PAPER_RERANKERS.values()]
    commits += [row.code.partition("@")[2] for row in PAPER_RERANKERS.values() if row.code]
    assert [c for c in commits if len(c) != 40 or set(c) - set("0123456789abcdef")] == []
    assert [n for n, row in PAPER_RERANKERS.items() if row.forbids_commercial_use] == ["jina_v2_multilingual"]


@pytest.mark.parametrize("name", PLAIN)
def test_a_row_without_code_scores_with_its_models_logit_and_the_sigmoid_of_it(name, xlm_roberta):
    run = row_config(name, xlm_roberta, max_tokens=128)
    prepare_weights(run)
    reranker = build_cross_encoder(run, name)
    tokenizer = AutoTokenizer.from_pretrained(xlm_roberta)
    model = AutoModelForSequenceClassification.from_pretrained(xlm_roberta).eval()
    combinations = [(0,), (1, 0)]
    for combination, score in zip(combinations, scores(reranker, combinations), strict=True):
        inputs = tokenizer(QUERY, " ".join(TEXTS[n] for n in combination), return_tensors="pt")
        with torch.inference_mode():
            logit = float(model(inputs["input_ids"], inputs["attention_mask"]).logits[0, 0])
        assert score.raw == pytest.approx(logit, abs=1e-5)
        assert score.calibrated == pytest.approx(1 / (1 + math.exp(-logit)), abs=1e-6)


@pytest.mark.parametrize("name", PAPER_RERANKERS)
def test_the_window_is_the_rows_may_be_lowered_and_not_raised(name):
    row = PAPER_RERANKERS[name]
    assert row_config(name, "nowhere").cross_encoders[name].max_tokens == row.window_tokens
    assert row_config(name, "nowhere", max_tokens=row.window_tokens).cross_encoders[name].max_tokens > 500
    assert row_config(name, "nowhere", max_tokens=100).cross_encoders[name].max_tokens == 100
    assert refusal(row_config, name, "nowhere", max_tokens=row.window_tokens + 1) == (
        f"the command line: cross_encoders.{name}: {row.hub_id} reads at most {row.window_tokens:,} tokens, "
        f"so max_tokens cannot be {row.window_tokens + 1:,}."
    )


def test_a_folder_without_a_row_has_a_window_of_512_as_ever_and_no_bound_of_ours():
    assert config("mine", "nowhere").cross_encoders["mine"].max_tokens == 512
    assert config("mine", "nowhere", max_tokens=9000).cross_encoders["mine"].max_tokens == 9000


def test_the_windows_of_a_combination_are_pooled_as_its_entry_says_and_by_the_soft_maximum_unless_it_does(xlm_roberta):
    entries = ({}, {"pooling": "maximum"}, {"pooling": "mean"}, {"pooling": "soft_maximum"})
    made = [build_cross_encoder(config("mine", xlm_roberta, max_tokens=40, **entry), "mine") for entry in entries]
    [logits] = made[0].window_logits([(made[0].prepare(QUERY, CHUNKS, range(len(CHUNKS))), (0, 1))])
    assert len(logits) > 1
    found = [scores(reranker, [(0, 1)])[0].raw for reranker in made]
    soft = math.log(sum(map(math.exp, logits)) / len(logits))
    assert found == pytest.approx([soft, max(logits), sum(logits) / len(logits), soft], abs=1e-5)


def test_an_entry_may_name_every_rule_of_pooling():
    assert get_args(CrossEncoderFolder.model_fields["pooling"].annotation) == tuple(rule.value for rule in Pooling)


def test_a_folder_whose_model_reads_less_than_the_row_says_is_refused(xlm_roberta):
    message = refusal(build_cross_encoder, row_config("bge_base", xlm_roberta), "bge_base")
    assert message == (f"'bge_base': the model in {xlm_roberta} reads at most 128 tokens, so max_tokens cannot be 512.")


def test_a_row_that_is_none_is_refused_with_the_nearest():
    message = refusal(config, "mine", "nowhere", model="bge_bse")
    assert message.startswith(
        "the command line: cross_encoders.mine: unknown model 'bge_bse'; did you mean 'bge_base'? Known: bge_base, "
    )


@pytest.mark.parametrize("entry", [{}, {"model": "bge_large"}])
def test_a_rows_name_is_not_given_to_another_model(entry):
    assert refusal(config, "bge_base", "nowhere", **entry) == (
        "the command line: cross_encoders.bge_base: the name means BAAI/bge-reranker-base: "
        "add `model: bge_base` or rename it."
    )


@pytest.mark.parametrize("name", PAPER_RERANKERS)
def test_a_paper_reranker_without_a_folder_is_said_to_have_no_packaged_weights(name):
    run = Config.model_validate({"methods": {"m": {"strategy": {"kind": "ranked"}, "reranker": name}}})
    assert refusal(prepare_weights, run, kind=MissingModelError) == (
        f"methods.m: the weights of '{name}' are not packaged: fetch {PAPER_RERANKERS[name].hub_id} "
        f"at {PAPER_RERANKERS[name].revision} from the hub "
        f"and name its folder, `cross_encoders: {{{name}: {{model: {name}, folder: PATH}}}}`."
    )


def test_a_mistyped_paper_reranker_is_refused_with_the_nearest():
    run = Config.model_validate({"methods": {"m": {"strategy": {"kind": "ranked"}, "reranker": "bge_larg"}}})
    message = refusal(prepare_weights, run)
    assert "unknown reranker of methods.m 'bge_larg'; did you mean 'bge_large'?" in message
    assert message.endswith(" A cross-encoder of your own needs an entry under `cross_encoders`.")


def test_a_row_without_a_folder_says_what_to_fetch():
    entry = {"cross_encoders": {"mine": {"model": "bge_base"}}}
    message = refusal(load_config, None, entry)
    row = PAPER_RERANKERS["bge_base"]
    assert message.endswith(f"name the `folder` into which {row.hub_id} was fetched, at {row.revision}.")


@pytest.mark.parametrize("name", WITH_CODE)
def test_a_row_with_code_is_refused_unless_it_is_allowed_even_before_its_folder_is_there(name, with_code):
    row, licence = PAPER_RERANKERS[name], ""
    if name == "jina_v2_multilingual":
        licence = ", and its licence, CC-BY-NC-4.0, forbids commercial use"
    expected = (
        f"'{name}': {row.hub_id} runs code of its own, of {row.code}, which is not run unasked{licence}: allow it by "
        f"`remote_code: {{{row.hub_id}: REVISION}}`, the commit of 40 hexadecimal digits whose code you have read."
    )
    for folder in ("nowhere", with_code):
        run = row_config(name, folder)
        assert refusal(prepare_weights, run) == refusal(build_cross_encoder, run, name) == expected


@pytest.mark.parametrize("name", WITH_CODE)
def test_a_row_with_code_runs_it_once_it_is_allowed_with_all_its_tensors(name, with_code):
    # Half the tokens less 4; transformers 5 leaves the 4, which no checkpoint stores, unset.
    run = row_config(name, with_code, {PAPER_RERANKERS[name].hub_id: COMMIT})
    prepare_weights(run)
    tokenizer = AutoTokenizer.from_pretrained(with_code)
    for combination, score in zip([(0,), (0, 1)], scores(build_cross_encoder(run, name), [(0,), (0, 1)]), strict=True):
        tokens = len(tokenizer(QUERY, " ".join(TEXTS[n] for n in combination))["input_ids"])
        assert score.raw == pytest.approx(tokens / 2 - 4, abs=1e-5)
        assert score.calibrated == pytest.approx(1 / (1 + math.exp(4 - tokens / 2)), abs=1e-6)


def test_a_folder_of_ones_own_with_code_is_refused_unless_its_name_is_allowed(with_code):
    message = refusal(prepare_weights, config("mine", with_code))
    assert message == (
        f"'mine': {with_code} comes with code, which is not run unasked: allow it by `remote_code: {{mine: REVISION}}`,"
        " the commit of 40 hexadecimal digits whose code you have read."
    )
    run = config("mine", with_code, {"mine": COMMIT})
    prepare_weights(run)
    assert scores(build_cross_encoder(run, "mine"), [(0,)])[0].raw > 0


def test_code_beside_a_row_that_has_none_is_another_model(with_code):
    message = refusal(prepare_weights, row_config("bge_base", with_code))
    assert message == f"'bge_base': {with_code} comes with code, which BAAI/bge-reranker-base has not: " + (
        "it holds another model."
    )


def with_configuration(folder, **values):
    """A folder that holds no more than what a checkpoint says of itself."""
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(values))
    (folder / "model.safetensors").touch()
    return folder


@pytest.mark.parametrize("name", PLAIN)
def test_a_row_whose_folder_holds_another_architecture_is_refused_before_anything_is_loaded(name, tmp_path):
    folder = with_configuration(tmp_path / "bert", model_type="bert", num_hidden_layers=12)
    assert refusal(prepare_weights, row_config(name, folder)) == (
        f"'{name}': the model in {folder} is of type bert, and {PAPER_RERANKERS[name].hub_id} of type xlm-roberta: "
        "take that one's folder, or strike `model` out and choose another name."
    )
    prepare_weights(config("mine", folder))  # which is said to be nothing


@pytest.mark.parametrize("name", WITH_CODE)
def test_a_row_with_code_whose_folder_has_none_is_refused_though_it_is_allowed(name, xlm_roberta):
    run = row_config(name, xlm_roberta, {PAPER_RERANKERS[name].hub_id: COMMIT})
    assert refusal(prepare_weights, run) == (
        f"'{name}': {xlm_roberta} comes without code, which {PAPER_RERANKERS[name].hub_id} has: it holds another model."
    )


def test_a_folder_of_a_rows_architecture_and_another_size_is_one_warning_and_its_own_size_none(tmp_path, caplog):
    small = with_configuration(tmp_path / "small", model_type="xlm-roberta", num_hidden_layers=2, vocab_size=800)
    prepare_weights(row_config("bge_base", small))
    assert caplog.messages == [
        f"'bge_base': the model in {small} is not BAAI/bge-reranker-base, it has 2 layers for 12 and 800 tokens for "
        "250,002: its scores are another model's"
    ]
    caplog.clear()
    large = with_configuration(tmp_path / "large", model_type="xlm-roberta", num_hidden_layers=24, vocab_size=250002)
    prepare_weights(row_config("bge_large", large))
    assert caplog.messages == []
    prepare_weights(row_config("bge_base", large))
    assert [message.partition("it has ")[2] for message in caplog.messages] == [
        "24 layers for 12: its scores are another model's"
    ]


def test_the_size_of_a_checkpoint_with_code_is_compared_too(tmp_path, caplog):
    for name, layers, tokens in (("jina_v1_turbo", 6, 61056), ("gte_multilingual", 12, 250048)):
        told = {"auto_map": {"AutoConfig": "own.Own"}, "num_hidden_layers": layers}
        hub_id = PAPER_RERANKERS[name].hub_id
        folders = [with_configuration(tmp_path / f"{name}{n}", **told, vocab_size=n) for n in (tokens, 9)]
        for folder in folders:
            (folder / "own.py").write_text("")
            prepare_weights(row_config(name, folder, {hub_id: COMMIT}))
        [message] = caplog.messages
        assert f"is not {hub_id}, it has 9 tokens for {tokens:,}: " in message
        caplog.clear()


@pytest.mark.parametrize("content", [None, b"[]", b"\xff{"])
def test_a_folder_that_says_nothing_of_itself_is_left_to_loading(tmp_path, content):
    if content is not None:
        (tmp_path / "config.json").write_bytes(content)
    check_checkpoint("bge_base", tmp_path, PAPER_RERANKERS["bge_base"])
    check_checkpoint("jina_v1_turbo", tmp_path, PAPER_RERANKERS["jina_v1_turbo"])


def test_code_that_fails_is_one_sentence_with_the_version_of_transformers(tmp_path):
    folder = tiny_models.with_code(tmp_path, code="from transformers import a_function_of_2024\n" + tiny_models.CODE)
    run = config("mine", folder, {"mine": COMMIT})
    message = refusal(build_cross_encoder, run, "mine")
    assert message.startswith(f"'mine': the code in {folder} fails with transformers 5.")
    assert "ImportError: cannot import name 'a_function_of_2024'" in message


def test_weights_of_one_output_beside_a_configuration_of_two_are_refused_with_what_to_add(tmp_path):
    folder = tiny_models.xlm_roberta(tmp_path)
    written = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({k: v for k, v in written.items() if "label" not in k}))
    message = refusal(build_cross_encoder, config("mine", folder, max_tokens=128), "mine")
    assert message.endswith('add `"id2label": {"0": "LABEL_0"}` there, which means one output.')


def test_the_curve_of_a_row_is_the_sigmoid_and_no_fit():
    assert calibrations(row_config("bge_base", "nowhere")) == {"bge_base": Calibration(1.0, 0.0, 0)}


def copied(with_code, folder, **code):
    """The checkpoint with code in another folder, with more files of code."""
    folder.mkdir()
    for path in with_code.iterdir():
        (folder / path.name).write_bytes(path.read_bytes())
    for name, content in code.items():
        path = folder / f"{name.replace('__', '/')}.py"
        path.parent.mkdir(exist_ok=True)
        path.write_text(content)
    return folder


def test_the_fingerprint_covers_the_allowed_code_and_not_how_it_was_allowed(tmp_path, with_code):
    changed = tiny_models.CODE.replace("-4.0", "-5.0")
    allowed, later = {"mine": COMMIT}, {"mine": COMMIT[::-1]}
    same, again, other, more, deeper, deeper_other = (
        run_fingerprint(config("mine", folder, pins), DATA)
        for folder, pins in [
            (with_code, allowed),
            (copied(with_code, tmp_path / "again"), later),
            (copied(with_code, tmp_path / "other", counting=changed), allowed),
            (copied(with_code, tmp_path / "more", used=""), allowed),
            (copied(with_code, tmp_path / "deeper", parts__used=""), allowed),
            (copied(with_code, tmp_path / "deeper_other", parts__used="x = 1"), allowed),
        ]
    )
    assert same == again
    assert len({same, other, more, deeper, deeper_other}) == 5


def test_the_fingerprint_covers_what_the_row_says_of_numbers(tmp_path, monkeypatch):
    (tmp_path / "weights").write_text("1")

    def fingerprint(name="bge_base", **entry):
        return run_fingerprint(row_config(name, tmp_path, **entry), DATA)

    before = fingerprint()
    assert len({before, fingerprint("bge_large"), fingerprint(max_tokens=99)}) == 3
    row = PAPER_RERANKERS["bge_base"]
    for change in ({"window_tokens": 500}, {"output": Calibration(2.0, 0.0, 1)}):
        monkeypatch.setitem(PAPER_RERANKERS, "bge_base", dataclasses.replace(row, **change))
        assert fingerprint() != before
