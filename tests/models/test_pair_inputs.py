"""What a cross-encoder reads, against transformers' own tokenizers, and windows worked by hand."""

import math

import numpy as np
import pytest
from models import tiny_models
from tokenizers import Tokenizer, pre_tokenizers, processors
from tokenizers import models as token_models
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from corag_ray.errors import ConfigError
from corag_ray.models.chunk_tokenizer import ChunkTokenizer, without_surrogates
from corag_ray.models.pair_inputs import ChunkIds, PairInputs, Pooling

SAMPLE = tiny_models.sample_texts()
QUERY = "How high is the tower?"


@pytest.fixture(scope="module", params=["bert", "cased_bert", "xlm_roberta", "roberta"])
def tokenizer(request, tmp_path_factory):
    return AutoTokenizer.from_pretrained(getattr(tiny_models, request.param)(tmp_path_factory.mktemp(request.param)))


@pytest.fixture(scope="module")
def bert(tmp_path_factory):
    return AutoTokenizer.from_pretrained(tiny_models.bert(tmp_path_factory.mktemp("bert")))


def roberta_like():
    """Byte-level BPE without a merge: a letter has another id after a blank than alone. <s> q </s> </s> d </s>."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {token: n for n, token in enumerate(["<s>", "</s>", *alphabet, "Ġa"])}
    tokenizer = Tokenizer(token_models.BPE(vocabulary, [("Ġ", "a")]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.post_processor = processors.RobertaProcessing(("</s>", 1), ("<s>", 0))
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>")


def chunk(first, length):
    """Ids that tell where they stand."""
    return np.arange(first, first + length, dtype=np.int32)


def documents(inputs, query, chunks):
    """The document's ids of each window; chunks that are plain ids have the same behind another."""
    chunks = [ids if isinstance(ids, ChunkIds) else ChunkIds(ids, ids) for ids in chunks]
    template = inputs.template
    start = len(template.before) + len(query) + len(template.between)
    return [w.ids[start : len(w.ids) - len(template.after)].tolist() for w in inputs.windows(query, chunks)]


def window_of(bert, room, query):
    """Inputs whose windows have room for so many ids of chunks beside the query, with three special tokens."""
    return PairInputs(bert, 3 + query + room)


def test_an_input_is_what_the_tokenizer_makes_of_the_query_and_the_texts_joined_by_blanks(tokenizer):
    inputs = PairInputs(tokenizer, 100_000)
    for first in range(0, len(SAMPLE) - 2, 3):
        for texts in (SAMPLE[first : first + 1], SAMPLE[first : first + 3], SAMPLE[first + 2 : first : -1], []):
            [query], chunks = inputs.ids([QUERY]), inputs.chunk_ids(texts)
            [whole] = inputs.windows(query, chunks)
            expected = tokenizer([QUERY], [" ".join(texts)], return_token_type_ids=True)  # "" alone would be no pair
            assert [whole.ids.tolist()] == expected["input_ids"]
            assert [inputs.types(whole).tolist()] == expected["token_type_ids"]


def test_a_chunk_behind_another_is_read_with_the_blank_that_its_first_token_carries():
    tokenizer = roberta_like()
    a, b, blank, blank_a = tokenizer.convert_tokens_to_ids(["a", "b", "Ġ", "Ġa"])
    inputs = PairInputs(tokenizer, 100)
    [query], chunks = inputs.ids(["b"]), inputs.chunk_ids(["a", "b", "a"])
    [whole] = inputs.windows(query, chunks)
    assert whole.ids.tolist() == [0, b, 1, 1, a, blank, b, blank_a, 1]


def test_ids_that_an_index_keeps_stand_for_the_texts_where_it_keeps_all_forms_of_this_tokenizer(tokenizer):
    inputs = PairInputs(tokenizer, 100)
    alone = ChunkTokenizer.like(tokenizer.backend_tokenizer)
    kept = {form.key: form.ids(SAMPLE[:9]) for form in (alone, alone.behind_a_blank())}
    by_rows = {key: lambda rows, key=key: [kept[key][row] for row in rows] for key in kept}
    found = inputs.stored_ids(by_rows.get)([8, 0, 3])
    expected = inputs.chunk_ids([SAMPLE[8], SAMPLE[0], SAMPLE[3]])
    assert [(c.first.tolist(), c.later.tolist()) for c in found] == [
        (c.first.tolist(), c.later.tolist()) for c in expected
    ]
    for missing in kept:
        assert inputs.stored_ids({key: of for key, of in by_rows.items() if key != missing}.get) is None


def test_texts_are_read_as_text_in_full_and_lone_surrogates_are_replaced(bert):
    inputs = PairInputs(bert, 100)
    assert bert("[SEP]", add_special_tokens=False)["input_ids"] == [bert.sep_token_id]
    [control, huge] = inputs.ids(["[SEP]", "tower " * 3000])
    assert bert.sep_token_id not in control.tolist()
    assert len(huge) >= 3000
    assert without_surrogates("a\ud800b\udfff") == "a\ufffdb\ufffd"
    assert without_surrogates("plain 👩‍🚀") == "plain 👩‍🚀"
    lone, replaced = inputs.ids(["tower \ud83d high", "tower \ufffd high"])
    assert lone.tolist() == replaced.tolist()


def test_what_fits_whole_is_one_window_and_one_token_more_makes_two_that_share_their_border_chunk(bert):
    inputs, query = window_of(bert, 10, query=2), chunk(500, 2)
    a, b, c = chunk(10, 4), chunk(20, 4), chunk(30, 4)
    assert documents(inputs, query, [a, b, c[:2]]) == [[*a, *b, *c[:2]]]
    assert documents(inputs, query, [a, b, c]) == [[*a, *b], [*b, *c]]


def test_a_border_chunk_is_not_shared_where_it_does_not_fit_beside_the_next(bert):
    inputs, query = window_of(bert, 10, query=2), chunk(500, 2)
    a, b, c = chunk(10, 4), chunk(20, 4), chunk(30, 7)
    assert documents(inputs, query, [a, b, c]) == [[*a, *b], [*c]]


def test_a_chunk_that_exceeds_a_window_alone_goes_in_pieces_that_share_a_quarter(bert):
    inputs, query = window_of(bert, 10, query=2), chunk(500, 2)
    # Pieces of 10 that share 10 // 4 = 2; the last one, 4 ids, has room for the chunk behind it.
    long, after = chunk(100, 20), chunk(300, 3)
    assert documents(inputs, query, [long]) == [[*long[:10]], [*long[8:18]], [*long[16:]]]
    assert documents(inputs, query, [long, after]) == [[*long[:10]], [*long[8:18]], [*long[16:], *after]]


def test_every_id_of_every_chunk_is_in_a_window_and_no_window_exceeds_the_models(bert):
    chance = np.random.default_rng(0)
    for _ in range(200):
        window = int(chance.integers(8, 40))
        inputs = PairInputs(bert, window)
        query = chunk(9000, int(chance.integers(0, inputs.longest_query + 1)))
        chunks = [chunk(1000 * n, int(chance.integers(0, 50))) for n in range(int(chance.integers(0, 6)))]
        windows = inputs.windows(query, [ChunkIds(ids, ids) for ids in chunks])
        assert max(len(w.ids) for w in windows) <= window
        found = {n for ids in documents(inputs, query, chunks) for n in ids}
        assert found == {int(n) for ids in chunks for n in ids}
        assert all(w.ids[1 : 1 + len(query)].tolist() == query.tolist() for w in windows)


def test_a_chunk_takes_the_room_of_the_form_in_which_it_is_read(bert):
    inputs, query = window_of(bert, 10, query=2), chunk(500, 2)
    a, b, c = (ChunkIds(chunk(first, n), chunk(first + 50, n + 1)) for first, n in ((100, 4), (200, 5), (300, 6)))
    assert documents(inputs, query, [a, b]) == [[*a.first, *b.later]]
    assert documents(inputs, query, [a, c]) == [[*a.first], [*c.first]]
    short = ChunkIds(chunk(400, 4), chunk(450, 5))
    # b fits behind a; short does not fit behind both, but behind b as it is at a window's beginning: 5 + 5 ids.
    assert documents(inputs, query, [a, b, short]) == [[*a.first, *b.later], [*b.first, *short.later]]


def test_a_chunk_in_pieces_begins_with_the_ids_that_it_has_alone(bert):
    inputs, query = window_of(bert, 10, query=2), chunk(500, 2)
    long, after = ChunkIds(chunk(100, 20), chunk(150, 21)), ChunkIds(chunk(300, 3), chunk(350, 4))
    first = long.first
    expected = [[*first[:10]], [*first[8:18]], [*first[16:], *after.later]]
    assert documents(inputs, query, [long, after]) == expected


def test_the_maximum_of_the_windows_counts_or_their_mean_and_nothing_where_one_is_missing():
    assert Pooling.MAXIMUM.pooled([-3.0, 1.5, 0.0]) == 1.5
    assert Pooling.MEAN.pooled([-3.0, 1.5, 0.0]) == -0.5
    for pooling in Pooling:
        assert pooling.pooled([2.0]) == pytest.approx(2.0, abs=1e-15)
        assert math.isnan(pooling.pooled([1.0, math.nan]))
        assert math.isnan(pooling.pooled([math.nan, 1.0]))


def test_the_soft_maximum_lies_between_mean_and_maximum_and_every_window_changes_it():
    pooled = Pooling.SOFT_MAXIMUM.pooled
    assert pooled([math.log(1), math.log(2), math.log(9)]) == pytest.approx(math.log(4))  # of the mean of 1, 2 and 9
    assert pooled([3.0, 3.0, 3.0]) == pytest.approx(3.0)
    for raw in ([-3.0, 1.5, 0.0], [0.5, 0.25], [-9.0, 9.0]):
        assert Pooling.MEAN.pooled(raw) < pooled(raw) < Pooling.MAXIMUM.pooled(raw)
        assert pooled([*raw[:-1], raw[-1] + 0.5]) > pooled(raw)
        assert pooled([raw[0] + 0.5, *raw[1:]]) > pooled(raw)
    assert pooled([-50.0, 4.0, -50.0, -50.0]) == pytest.approx(4.0 - math.log(4))


@pytest.mark.parametrize("large", [1e4, -1e4])
def test_the_soft_maximum_of_scores_whose_exponentials_no_float_holds_is_finite(large):
    assert Pooling.SOFT_MAXIMUM.pooled([large, large]) == pytest.approx(large)
    assert Pooling.SOFT_MAXIMUM.pooled([large, large - 5000.0]) == pytest.approx(large - math.log(2))


def test_tokenizers_without_a_form_for_pairs_and_windows_without_room_are_refused(bert):
    with pytest.raises(ConfigError, match=r"^max_tokens 4 leaves no room beside 3 special tokens\.$"):
        PairInputs(bert, 4)
    with pytest.raises(ConfigError, match=r"needs a tokenizer\.json; str has none"):
        PairInputs("slow", 100)
    words = Tokenizer(token_models.WordLevel({"[CLS]": 0, "[UNK]": 1}, unk_token="[UNK]"))
    words.post_processor = processors.TemplateProcessing("[CLS] $A", "[CLS] $B $A", [("[CLS]", 0)])
    with pytest.raises(ConfigError, match=r"no form for a query and a document"):
        PairInputs(PreTrainedTokenizerFast(tokenizer_object=words), 100)


def test_the_name_of_a_special_token_in_a_text_never_gives_its_id(tokenizer):
    inputs = PairInputs(tokenizer, 128)
    names = " ".join(tokenizer.all_special_tokens)
    [ids] = inputs.ids([f"the tower {names} is high"])
    assert set(ids.tolist()) & set(tokenizer.all_special_ids) <= {tokenizer.unk_token_id}
