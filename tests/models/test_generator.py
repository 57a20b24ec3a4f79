"""SmolLM2 against transformers itself: greedy tokens, batches, counts and why an answer ended."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from corag_ray.models.packaged import SMOLLM2
from corag_ray.types import Generation

pytestmark = pytest.mark.models

PROMPTS = [
    "Write a long story about tea.",
    "What is the capital of France? Answer with one word.",
    "1. " + "The Eiffel Tower in Paris is 330 metres high. " * 3 + "\nQuestion: how high is the tower?",
    "Say hi.",
]
NEW_TOKENS = 8


@pytest.fixture(scope="module")
def plain():
    """transformers' own tokenizer and model, with its own attention."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    folder = SMOLLM2.folder()
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="sdpa").eval()
    return AutoTokenizer.from_pretrained(folder), model


def greedy(plain, prompt):
    """The most likely token, one after another, for one prompt alone: the answer by hand."""
    tokenizer, model = plain
    chat = [{"role": "user", "content": prompt}]
    ids = tokenizer.apply_chat_template(chat, add_generation_prompt=True, return_dict=True)["input_ids"]
    new, unread, cache = [], ids, None
    while len(new) < NEW_TOKENS:
        with torch.inference_mode():
            output = model(input_ids=torch.tensor([unread]), past_key_values=cache, use_cache=True, logits_to_keep=1)
        best, cache = int(output.logits[0, -1].argmax()), output.past_key_values
        unread = [best]
        if best == tokenizer.eos_token_id:
            return Generation(tokenizer.decode(new).strip(), len(ids), len(new), "stop")
        new.append(best)
    return Generation(tokenizer.decode(new).strip(), len(ids), len(new), "length")


@pytest.fixture(scope="module")
def together(generator):
    return generator.generate(PROMPTS, NEW_TOKENS)


def test_a_batch_of_different_lengths_gives_the_greedy_tokens_of_plain_attention_in_the_prompts_order(together, plain):
    expected = [greedy(plain, prompt) for prompt in PROMPTS]
    assert together == expected
    assert len({answer.text for answer in expected}) == 4  # so that order can be seen
    assert len({answer.prompt_tokens for answer in expected}) > 1


def test_an_answer_that_ends_says_stop_and_one_that_is_cut_says_length(together):
    story, capital = together[:2]
    assert (story.finish_reason, story.new_tokens) == ("length", NEW_TOKENS)
    assert capital.finish_reason == "stop"
    assert capital.new_tokens < NEW_TOKENS
    assert "Paris" in capital.text
    assert "<|im_end|>" not in capital.text


def test_alone_and_in_a_batch_answers_are_equal(generator, together):
    assert [generator.generate([prompt], NEW_TOKENS)[0] for prompt in PROMPTS] == together


def test_a_stream_gives_a_piece_a_token_and_ends_with_the_same_answer(generator, together):
    for prompt, expected in zip(PROMPTS, together, strict=True):
        *pieces, answer = generator.stream(prompt, NEW_TOKENS)
        assert answer == expected
        assert "".join(pieces) == expected.text
        steps = expected.new_tokens + (expected.finish_reason == "stop")  # the token that ends it is a step too
        assert steps <= len(pieces) <= steps + 1  # and one piece more where the last token held text back


def test_a_stream_never_shows_a_part_of_a_character(generator, monkeypatch):
    # Byte by byte: "é" is two tokens, and the first alone decodes to the replacement character.
    ids = generator._tokenizer._plain.encode("caf\u00e9 \U0001f375!", add_special_tokens=False).ids
    script = iter(ids)
    monkeypatch.setattr("corag_ray.models.generator.GreedyDecoding.step", lambda self: [next(script)])
    *pieces, answer = generator.stream("Say it.", len(ids))
    assert "\ufffd" not in "".join(pieces)
    assert "".join(pieces) == answer.text == "caf\u00e9 \U0001f375!"


def test_an_answer_cut_at_its_very_end_is_length_with_the_same_text(generator, together):
    capital = together[1]
    [cut] = generator.generate(PROMPTS[1:2], capital.new_tokens)
    assert cut == Generation(capital.text, capital.prompt_tokens, capital.new_tokens, "length")


def test_prompt_tokens_are_those_the_tokenizer_counts_beforehand(together, chat_tokenizer):
    assert [answer.prompt_tokens for answer in together] == chat_tokenizer.count_prompts(PROMPTS)


def test_no_prompts_give_no_answers(generator, chat_tokenizer):
    assert generator.generate([], NEW_TOKENS) == []
    assert chat_tokenizer.count([]) == chat_tokenizer.count_prompts([]) == chat_tokenizer.offsets([]) == []


def test_grouped_attention_gives_the_logits_of_plain_attention_in_a_padded_batch(plain):
    from transformers import AutoModelForCausalLM

    from corag_ray.models import grouped_attention

    tokenizer, model = plain
    grouped = AutoModelForCausalLM.from_pretrained(
        SMOLLM2.folder(), dtype=torch.float32, attn_implementation=grouped_attention.register()
    ).eval()
    batch = tokenizer(["Tea came to Britain", "Paris"], padding=True, padding_side="left", return_tensors="pt")
    assert batch["attention_mask"].min() == 0
    logits = []
    for one in (model, grouped):
        with torch.inference_mode():
            first = one(**batch, use_cache=True)
            mask = torch.cat([batch["attention_mask"], torch.ones(2, 1, dtype=torch.long)], dim=1)
            step = one(
                input_ids=torch.tensor([[504], [338]]),
                attention_mask=mask,
                position_ids=(mask.sum(dim=1, keepdim=True) - 1),
                past_key_values=first.past_key_values,
            )
        logits.append((first.logits[:, -1], step.logits[:, -1]))
    for expected, found in zip(*logits, strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=2e-4)


def test_the_template_and_the_counts_are_transformers_own(chat_tokenizer, plain):
    tokenizer, _ = plain
    expected = [
        tokenizer.apply_chat_template([{"role": "user", "content": p}], add_generation_prompt=True, return_dict=True)
        for p in PROMPTS
    ]
    assert chat_tokenizer.encode_prompts(PROMPTS) == [one["input_ids"] for one in expected]
    texts = ["tea", "", "埃菲尔铁塔 👩‍🚀", "12. Tea in 1660.\n"]
    assert chat_tokenizer.count(texts) == [len(tokenizer(t, add_special_tokens=False)["input_ids"]) for t in texts]
    assert chat_tokenizer.context_window == 8192
    assert chat_tokenizer.name == "smollm2"


def test_decoding_is_transformers_own_without_special_tokens_and_outer_blanks(chat_tokenizer, plain):
    tokenizer, _ = plain
    for text in ("  It 's  old , and 埃菲尔 👩‍🚀 !\n", "12. Tea\n\n", " "):
        ids = tokenizer(text, add_special_tokens=False)["input_ids"]
        ended = [*ids, tokenizer.eos_token_id]
        assert chat_tokenizer.decode(ended) == tokenizer.decode(ended, skip_special_tokens=True).strip() == text.strip()
    assert chat_tokenizer.decode([]) == ""


def test_the_bytes_of_one_character_are_tokens_with_the_same_start(chat_tokenizer):
    [starts] = chat_tokenizer.offsets(["a 鱻"])  # a rare character: several tokens
    assert chat_tokenizer.count(["a 鱻"]) == [len(starts)]
    assert starts[0] == 0
    assert len(starts) > len(set(starts)) >= 2


@settings(max_examples=60, deadline=None)
@given(st.lists(st.text(st.one_of(st.characters(codec="utf-8"), st.sampled_from("a 茶👩\u200d🚀\n1")), max_size=30)))
def test_offsets_are_one_a_token_inside_the_text_and_never_decrease(chat_tokenizer, texts):
    offsets = chat_tokenizer.offsets(texts)
    assert [len(starts) for starts in offsets] == chat_tokenizer.count(texts)
    for text, starts in zip(texts, offsets, strict=True):
        assert starts == sorted(starts)
        assert all(0 <= start < len(text) for start in starts)


def test_offsets_are_the_characters_where_tokens_start(chat_tokenizer):
    assert chat_tokenizer.offsets(["the cat is", "12"]) == [[0, 3, 7], [0, 1]]  # a blank goes with its word; digits
    assert chat_tokenizer.offsets(["\x16a"]) == [[1]]  # the vocabulary lacks some control characters: no token


def test_prompts_that_share_their_beginning_give_the_greedy_tokens_of_each_alone(generator, plain):
    head = "Information: The Eiffel Tower stands in Paris, is 330 metres high and was opened in 1889 by Eiffel. "
    prompts = [head + "How high is it?", head + "It is made of iron. What is it made of?", head + "When was it opened?"]
    assert generator.generate(prompts, NEW_TOKENS) == [greedy(plain, prompt) for prompt in prompts]


def test_prompts_are_read_in_portions_of_bounded_tokens_in_their_order_and_decoded_by_length(monkeypatch):
    from corag_ray.models import generator as module

    monkeypatch.setattr(module, "READ_TOKENS", 10)
    monkeypatch.setattr(module, "DECODE_TOKENS", 11)
    monkeypatch.setattr(module, "DECODE_PROMPTS", 2)
    prompts = [[0] * n for n in (4, 6, 1, 12, 3)]
    assert [[len(p) for p in portion] for portion in module._portions(prompts)] == [[4, 6], [1], [12], [3]]
    assert list(module._decode_batches([4, 6, 1, 12, 3])) == [[2, 4], [0], [1], [3]]
