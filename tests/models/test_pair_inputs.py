"""What a cross-encoder reads, against transformers' own tokenizers, and windows worked by hand."""

import math

import numpy as np
import pytest
from models import tiny_models
from tokenizers import Tokenizer, pre_tokenizers, processors
from tokenizers import models as token_models
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from corag_ray.errors import ConfigError
from corag_ray.models.chunk_tokenizer import without_surrogates
from corag_ray.models.pair_inputs import PairInputs, Pooling

SAMPLE = tiny_models.sample_texts()
QUERY = "How high is the tower?"


@pytest.fixture(scope="module", params=["bert", "xlm_roberta"])
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
    """The document's ids of each window."""
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
            [query], chunks = inputs.ids([QUERY]), inputs.ids(texts)
            [whole] = inputs.windows(query, chunks)
            expected = tokenizer([QUERY], [" ".join(texts)], return_token_type_ids=True)  # "" alone would be no pair
            assert [whole.ids.tolist()] == expected["input_ids"]
            assert [inputs.types(whole).tolist()] == expected["token_type_ids"]


def test_the_separator_is_what_a_blank_adds(tokenizer):
    assert PairInputs(tokenizer, 100).template.separator == ()
    inputs = PairInputs(roberta_like(), 100)
    blank, a, b = (ids.tolist() for ids in inputs.ids([" ", "a", "b"]))
    assert inputs.template.separator == tuple(blank)
    [query], chunks = inputs.ids(["b"]), inputs.ids(["a", "b"])
    [whole] = inputs.windows(query, chunks)
    assert whole.ids.tolist() == [0, *b, 1, 1, *a, *blank, *b, 1]


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
        windows = inputs.windows(query, chunks)
        assert max(len(w.ids) for w in windows) <= window
        found = {n for ids in documents(inputs, query, chunks) for n in ids}
        assert found == {int(n) for ids in chunks for n in ids}
        assert all(w.ids[1 : 1 + len(query)].tolist() == query.tolist() for w in windows)


def test_the_separator_takes_its_room():
    inputs = PairInputs(roberta_like(), 4 + 1 + 10)  # four special tokens, a query of one
    [blank], query = inputs.template.separator, chunk(50, 1)
    a, b, c = chunk(10, 4), chunk(20, 5), chunk(30, 6)
    assert documents(inputs, query, [a, b]) == [[*a, blank, *b]]
    assert documents(inputs, query, [a, c]) == [[*a], [*c]]


def test_the_maximum_of_the_windows_counts_or_their_mean_and_nothing_where_one_is_missing():
    assert Pooling.MAXIMUM.pooled([-3.0, 1.5, 0.0]) == 1.5
    assert Pooling.MEAN.pooled([-3.0, 1.5, 0.0]) == -0.5
    for pooling in Pooling:
        assert pooling.pooled([2.0]) == 2.0
        assert math.isnan(pooling.pooled([1.0, math.nan]))
        assert math.isnan(pooling.pooled([math.nan, 1.0]))


def test_tokenizers_without_a_form_for_pairs_and_windows_without_room_are_refused(bert):
    with pytest.raises(ConfigError, match=r"^max_tokens 4 leaves no room beside 3 special tokens\.$"):
        PairInputs(bert, 4)
    with pytest.raises(ConfigError, match=r"needs a tokenizer\.json; str has none"):
        PairInputs("slow", 100)
    words = Tokenizer(token_models.WordLevel({"[CLS]": 0, "[UNK]": 1}, unk_token="[UNK]"))
    words.post_processor = processors.TemplateProcessing("[CLS] $A", "[CLS] $B $A", [("[CLS]", 0)])
    with pytest.raises(ConfigError, match=r"no form for a query and a document"):
        PairInputs(PreTrainedTokenizerFast(tokenizer_object=words), 100)
