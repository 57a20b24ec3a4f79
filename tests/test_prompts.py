"""Prompts: the question, then the passages in their order, in the question's language."""

import pytest

from corag_ray.prompts import PROMPTS, concise, numbered_passage, seed


def test_a_passage_stands_under_its_number_on_a_line():
    assert numbered_passage(12, "Tea.") == "12. Tea.\n"


def test_the_seed_prompt_reads_as_in_the_paper():
    assert seed("Height?", ["330 m.", "In Paris."], "en") == (
        "User question: Height?\nRelevant information:\n1. 330 m.\n2. In Paris.\n"
    )


def test_the_concise_prompt_gives_an_instruction_first():
    assert concise("Height?", ["330 m."], "en") == (
        "Answer the question in one or two sentences, from the information given.\n"
        "Question: Height?\nInformation:\n1. 330 m.\n"
    )


def test_the_order_of_the_passages_is_the_callers():
    one, other = seed("Q", ["a", "b"], "en"), seed("Q", ["b", "a"], "en")
    assert one.endswith("1. a\n2. b\n")
    assert other.endswith("1. b\n2. a\n")


@pytest.mark.parametrize(
    ("language", "asked", "information"),
    [("zh", "用户查询：", "相关信息："), ("es", "Consulta del usuario: ", "Información relevante:")],
)
def test_the_seed_prompt_speaks_the_questions_language(language, asked, information):
    assert seed("Q", ["p"], language) == f"{asked}Q\n{information}\n1. p\n"


@pytest.mark.parametrize(("language", "asked"), [("zh", "问题："), ("es", "Pregunta: ")])
def test_the_concise_prompt_speaks_the_questions_language(language, asked):
    assert f"\n{asked}Q\n" in concise("Q", ["p"], language)
    assert "Question" not in concise("Q", ["p"], language)


@pytest.mark.parametrize("prompt", PROMPTS.values())
def test_an_unknown_language_is_read_as_english(prompt):
    assert prompt("Q", ["p"], "xx") == prompt("Q", ["p"], "en")


@pytest.mark.parametrize("prompt", PROMPTS.values())
@pytest.mark.parametrize("language", ["en", "zh", "es"])
def test_without_passages_there_is_no_information_section_and_with_none_chosen_an_empty_one(prompt, language):
    closed_book, empty, one = (prompt("Q", passages, language) for passages in (None, [], ["p"]))
    assert closed_book.endswith("Q\n")
    assert empty.startswith(closed_book)
    assert empty.removeprefix(closed_book).count("\n") == 1  # the section's heading
    assert one == empty + "1. p\n"


def test_prompts_are_found_by_name():
    assert {"seed": seed, "concise": concise} == PROMPTS
