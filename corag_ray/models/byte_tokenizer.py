"""Token counts where the model's tokenizer is not at hand: its bytes, an upper bound."""

from __future__ import annotations

from collections.abc import Sequence

TEMPLATE_TOKENS = 256
"""What a chat template adds, at most: roles, marks and a default system turn."""


class ByteTokenizer:
    """Counts UTF-8 bytes: a byte-level or byte-fallback BPE never makes more tokens of a text than it has bytes.

    A budget so counted is never exceeded, but English text fills only about a quarter of it. It is no bound for a
    tokenizer whose normalisation lengthens texts (NFKC of a few ligatures).
    """

    def __init__(self, name: str, context_window: int, template_tokens: int = TEMPLATE_TOKENS) -> None:
        """`context_window` is in the model's tokens; `template_tokens` are added to every prompt."""
        self.name = name
        self.context_window = context_window
        self._template_tokens = template_tokens

    def count(self, texts: Sequence[str]) -> list[int]:
        """Bytes of each text; half of a character (a lone surrogate) counts as the three bytes of its substitute."""
        return [len(text.encode("utf-8", "surrogatepass")) for text in texts]

    def offsets(self, texts: Sequence[str]) -> list[list[int]]:
        """The character that each byte belongs to."""
        return [
            [place for place, sign in enumerate(text) for _ in range(len(sign.encode("utf-8", "surrogatepass")))]
            for text in texts
        ]

    def count_prompts(self, prompts: Sequence[str]) -> list[int]:
        """Bytes of each prompt and the template's tokens."""
        return [count + self._template_tokens for count in self.count(prompts)]
