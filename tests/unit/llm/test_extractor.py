"""The rules that hold whichever model answers."""

import pytest

from penstock.documents import ExtractionRequest, ExtractionSkipped, Fault
from penstock.errors import ErrorClass
from penstock.llm.prompts import PreparedRequest, cut_text, prepare_request


def prepare(text: str, profile: str = "resume") -> object:
    return prepare_request(ExtractionRequest(text=text, profile=profile))


def test_ninety_nine_characters_are_too_few() -> None:
    assert prepare("x" * 99) == ExtractionSkipped("insufficient_text")


def test_a_hundred_characters_are_enough() -> None:
    assert isinstance(prepare("x" * 100), PreparedRequest)


def test_blanks_around_the_text_do_not_count() -> None:
    assert prepare("  \n" + "x" * 99 + "\n  ") == ExtractionSkipped("insufficient_text")


def test_an_unknown_profile_is_a_permanent_fault_of_that_request() -> None:
    fault = prepare("x" * 200, profile="unheard-of")
    assert isinstance(fault, Fault)
    assert fault.kind is ErrorClass.UNSUPPORTED
    assert "resume" in fault.message


def test_a_long_text_is_cut_where_a_sentence_ends() -> None:
    text = "One sentence here. " * 1000
    question = prepare(text)
    assert isinstance(question, PreparedRequest)
    assert 11_900 < len(question.text) <= 12_000
    assert question.text.endswith("here.")


@pytest.mark.parametrize(
    ("text", "limit", "expected"),
    [
        ("short", 10, "short"),
        ("Aaaa. Bbbb. Cccc.", 12, "Aaaa. Bbbb."),
        ("Aaaa. Bbbb. Cccc.", 11, "Aaaa. Bbbb."),
        ("Version 1.25 is out now", 12, "Version 1.25"),
        ("no end in sight here", 15, "no end in sight"),
        ("unbroken" * 4, 10, "unbrokenun"),
    ],
)
def test_a_cut_keeps_whole_sentences_else_whole_words(text: str, limit: int, expected: str) -> None:
    assert cut_text(text, limit) == expected


def test_half_a_surrogate_pair_is_replaced() -> None:
    question = prepare("x" * 120 + "\ud800")
    assert isinstance(question, PreparedRequest)
    question.text.encode("utf-8")


def test_a_title_is_one_short_line() -> None:
    request = ExtractionRequest("x" * 100, "resume", title=" A\n title " + "x" * 5000)
    question = prepare_request(request)
    assert isinstance(question, PreparedRequest)
    assert question.title is not None
    assert question.title.startswith("A title xxx")
    assert len(question.title) == 300
