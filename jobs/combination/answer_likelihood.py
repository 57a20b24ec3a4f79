"""The generator as a teacher: how likely the reference answer is to it after a combination.

REPLUG trains a retriever by this (Shi et al., NAACL 2024): no label of evidence is needed, and what is measured is of
use to the very model that will read the chunks.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tokenizers import Tokenizer

from corag_ray.models.causal_model import load_causal_model
from corag_ray.models.generator import ChatTokenizer
from corag_ray.models.prefix_forward import read, tail_log_probability
from corag_ray.models.torch_setup import Compute
from corag_ray.prompts import PROMPTS
from corag_ray.types import Combination
from jobs.combination.examples import Asked

LANGUAGE = "en"
"""Of the prompts: the data sets' that the head is trained on."""


class AnswerLikelihood:
    """The mean log probability of an answer's tokens, in nats, where the assistant's turn begins with it.

    The prompt is the pipeline's own, chunks numbered in the combination's order; without chunks it has no information.
    What a question's prompts share at their beginning is computed once.
    """

    def __init__(self, folder: Path, name: str, prompt: str, compute: Compute) -> None:
        """Load a chat model from a transformers folder; `prompt` is one of `prompts.PROMPTS`."""
        self._prompt = PROMPTS[prompt]
        self._chat = ChatTokenizer(folder, name)
        self._plain = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self._plain.encode_special_tokens = True  # that is, as text
        self._model = load_causal_model(folder, compute)

    def of(self, asked: Asked, combinations: Sequence[Combination]) -> list[float]:
        """One a combination, in order, of the question's first answer, which must not be blank."""
        answer = self._plain.encode(asked.answers[0], add_special_tokens=False).ids
        passages = [[asked.chunks[number].text for number in chosen] or None for chosen in combinations]
        prompts = self._chat.encode_prompts([self._prompt(asked.text, texts, LANGUAGE) for texts in passages])
        reading = read(self._model, [[*prompt, *answer] for prompt in prompts], keep=False)
        return [tail_log_probability(self._model, reading, number, answer) for number in range(len(prompts))]
