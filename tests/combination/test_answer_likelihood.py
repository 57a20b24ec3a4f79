"""The generator as a teacher, against the definition, computed one prompt at a time with transformers alone."""

import pytest
import torch

from corag_ray.models.packaged import SMOLLM2
from corag_ray.models.torch_setup import Compute
from corag_ray.prompts import seed
from corag_ray.types import Chunk
from jobs.combination.answer_likelihood import AnswerLikelihood
from jobs.combination.examples import Asked

pytestmark = pytest.mark.models

TEXTS = ["The Eiffel Tower is 330 metres high.", "Photosynthesis turns light and water into sugar."]
CHUNKS = tuple(Chunk(n, f"d{n}", 0, 0, len(text), text, 9) for n, text in enumerate(TEXTS))
HOLDS = (frozenset({0}), frozenset())
ASKED = Asked("How high is the Eiffel Tower?", "train", "single", CHUNKS, (0, 1), HOLDS, 1, ("330 metres", "330 m"))
COMBINATIONS = [(0,), (1,), (0, 1), (1, 0), ()]


@pytest.fixture(scope="module")
def values():
    teacher = AnswerLikelihood(SMOLLM2.folder(), "smollm2", "seed", Compute(threads=1))
    return dict(zip(COMBINATIONS, teacher.of(ASKED, COMBINATIONS), strict=True))


def by_hand(combination):
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(SMOLLM2.folder())
    model = AutoModelForCausalLM.from_pretrained(SMOLLM2.folder(), dtype=torch.float32).eval()
    turn = [{"role": "user", "content": seed(ASKED.text, [TEXTS[n] for n in combination] or None, "en")}]
    text = tokenizer.apply_chat_template(turn, tokenize=False, add_generation_prompt=True)
    prompt, answer = (tokenizer(one, add_special_tokens=False)["input_ids"] for one in (text, "330 metres"))
    with torch.inference_mode():
        chances = model(torch.tensor([prompt + answer])).logits[0].log_softmax(dim=-1)
    return sum(float(chances[len(prompt) + n - 1, token]) for n, token in enumerate(answer)) / len(answer)


def test_a_label_is_the_mean_log_probability_of_the_first_answer_after_the_pipelines_prompt(values):
    for combination in [(1, 0), ()]:
        assert values[combination] == pytest.approx(by_hand(combination), abs=1e-4)


def test_evidence_makes_the_answer_likelier_than_another_text_or_none(values):
    assert values[0,] > max(values[1,], values[()]) + 0.5
    assert values[0, 1] != values[1, 0]
