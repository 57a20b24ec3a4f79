"""Prompts: the question, then the passages in their order, in the question's language."""

import pytest

from corag_ray.prompts import PROMPTS, abstains, concise, concise_or_abstain, numbered_passage, seed


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
@pytest.mark.parametrize(
    ("tag", "language"),
    [
        ("zh-Hant", "zh"),
        ("zh-hans-CN", "zh"),
        ("zh_CN", "zh"),
        ("zh_Hans", "zh"),
        ("es_MX-x", "es"),
        ("ES", "es"),
        ("es-419", "es"),
        ("en-GB", "en"),
        ("zhx", "en"),
        ("", "en"),
    ],
)
def test_a_language_tag_is_read_by_its_first_part_whatever_its_case(prompt, tag, language):
    assert prompt("Q", ["p"], tag) == prompt("Q", ["p"], language)


@pytest.mark.parametrize("prompt", PROMPTS.values())
@pytest.mark.parametrize("language", ["en", "zh", "es"])
def test_without_passages_there_is_no_information_section_and_with_none_chosen_an_empty_one(prompt, language):
    closed_book, empty, one = (prompt("Q", passages, language) for passages in (None, [], ["p"]))
    assert closed_book.endswith("Q\n")
    assert empty.startswith(closed_book)
    assert empty.removeprefix(closed_book).count("\n") == 1  # the section's heading
    assert one == empty + "1. p\n"


def test_prompts_are_found_by_name():
    assert {"seed": seed, "concise": concise, "concise_or_abstain": concise_or_abstain} == PROMPTS


AGREED = {"en": "unanswerable", "zh": "无法回答", "es": "sin respuesta"}


def test_the_prompt_that_lets_abstain_is_the_concise_one_with_a_second_instruction():
    assert concise_or_abstain("Height?", ["330 m."], "en") == (
        "Answer the question in one or two sentences, from the information given.\n"
        "If the information does not hold the answer, write nothing but: unanswerable\n"
        "Question: Height?\nInformation:\n1. 330 m.\n"
    )


@pytest.mark.parametrize("language", AGREED)
def test_that_instruction_names_the_agreed_words_in_the_questions_language(language):
    first, second, *rest = concise_or_abstain("Q", ["p"], language).splitlines()
    assert [first, *rest] == concise("Q", ["p"], language).splitlines()
    assert second.endswith(AGREED[language])


@pytest.mark.parametrize("answer", ["{}", " {}.\n", "**{}**", "_«{}»_", "“{}”。", "{}!?"])
@pytest.mark.parametrize(
    ("language", "agreed"), [*AGREED.items(), ("xx", "UnAnswerable"), ("es", "SIN Respuesta"), ("zh-TW", "无法回答")]
)
def test_the_agreed_words_alone_abstain_whatever_their_case_and_what_stands_around_them(language, agreed, answer):
    assert abstains("concise_or_abstain", answer.format(agreed), language) is True


@pytest.mark.parametrize(
    ("answer", "language"),
    [
        ("", "en"),
        ("unanswerable because nobody knows", "en"),
        ("It is unanswerable.", "en"),
        ("unanswerable unanswerable", "en"),
        ("answerable", "en"),
        ("I don't know.", "en"),
        ("unanswerable", "es"),  # the words agreed on in another language
        ("sin respuesta", "zh"),
        ("x无法回答", "zh"),
    ],
)
def test_anything_else_is_an_answer(answer, language):
    assert abstains("concise_or_abstain", answer, language) is False


@pytest.mark.parametrize("prompt", ["seed", "concise"])
def test_of_a_prompt_that_agrees_on_no_words_nothing_is_said(prompt):
    assert abstains(prompt, "unanswerable", "en") is None
