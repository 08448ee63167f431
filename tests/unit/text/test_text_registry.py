"""Users' own extractors: which documents they are asked about, and what comes of their answers."""

import pytest

from penstock.documents import ExtractedText, RawDocument
from penstock.errors import DocumentFault, ErrorClass, UsageError
from penstock.text import custom as custom_module
from penstock.text.custom import Extract, extractor, registered_extractors, remove_extractor
from penstock.text.extract import extract_text
from tests.unit.text.factories import make_page, make_raw


@pytest.fixture(autouse=True)
def own_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a test registers, no other test meets."""
    monkeypatch.setattr(custom_module, "_registered", {})


def answer(text: str | ExtractedText | None) -> Extract:
    """An extractor that always finds the same."""

    def find(raw: RawDocument) -> str | ExtractedText | None:
        del raw
        return text

    return find


def fault_of(raw: RawDocument) -> DocumentFault:
    with pytest.raises(DocumentFault) as caught:
        extract_text(raw)
    return caught.value


# Which documents


@pytest.mark.parametrize("suffix", ["mill", ".mill", "MILL", ".Mill"])
@pytest.mark.parametrize("name", ["a.mill", "A.MILL", "https://x.example/a.mill?page=2#top"])
def test_an_extractor_is_called_for_files_of_its_suffix(suffix: str, name: str) -> None:
    extractor(suffixes=[suffix])(answer("mine"))
    assert extract_text(make_raw("theirs", name)).text == "mine"
    assert extract_text(make_raw("theirs", "a.txt")).text == "theirs"


@pytest.mark.parametrize("declared", ["application/x-mill", "Application/X-Mill; charset=utf-8"])
def test_an_extractor_is_called_for_the_declared_type(declared: str) -> None:
    extractor(media_types=["application/X-mill"])(answer("mine"))
    assert extract_text(make_raw("theirs", media_type=declared)).text == "mine"
    assert extract_text(make_raw("theirs", media_type="text/plain")).text == "theirs"


def test_an_extractor_is_called_for_the_detected_type() -> None:
    extractor(media_types=["text/html"])(answer("mine"))
    assert extract_text(make_raw(make_page(), "page.txt", "text/plain")).text == "mine"


def test_an_extractor_may_add_a_format_that_is_not_supported() -> None:
    picture = make_raw(b"\x89PNG\r\n\x1a\n" + bytes(50), "scan.png")
    assert fault_of(picture).kind is ErrorClass.UNSUPPORTED
    extractor(media_types=["image/png"])(answer("read by OCR"))
    extracted = extract_text(picture)
    assert (extracted.text, extracted.media_type) == ("read by OCR", "image/png")


def test_an_extractor_without_types_is_called_for_every_document() -> None:
    extractor()(answer("mine"))
    assert extract_text(make_raw(make_page())).text == "mine"
    assert extract_text(make_raw("text", "a.csv")).text == "mine"


def test_no_extractor_is_called_for_an_empty_document() -> None:
    extractor()(answer("something from nothing"))
    assert fault_of(make_raw(b"")).kind is ErrorClass.EMPTY


# Companies


def test_a_company_has_its_own_extractor() -> None:
    extractor(name="general", media_types=["text/html"])(answer("for all"))
    extractor(name="special", company="mills")(answer("for mills"))
    page = make_page().encode()
    assert extract_text(RawDocument("page", page, source="mills")).text == "for mills"
    assert extract_text(RawDocument("page", page, source="locks")).text == "for all"
    assert extract_text(RawDocument("page", page)).text == "for all"


def test_what_a_company_extractor_leaves_goes_to_the_next() -> None:
    extractor(name="general")(answer("for all"))
    extractor(name="special", company="mills")(answer(None))
    assert extract_text(RawDocument("page", b"text", source="mills")).text == "for all"


def test_a_company_extractor_of_a_suffix_needs_both() -> None:
    extractor(company="mills", suffixes=["job"])(answer("mine"))
    assert extract_text(RawDocument("a.job", b"theirs", source="mills")).text == "mine"
    assert extract_text(RawDocument("a.txt", b"theirs", source="mills")).text == "theirs"
    assert extract_text(RawDocument("a.job", b"theirs", source="locks")).text == "theirs"


# The registry


def test_extractors_are_called_in_the_order_of_their_registration() -> None:
    extractor(name="first")(answer(None))
    extractor(name="second")(answer("second"))
    extractor(name="third")(answer("third"))
    assert [custom.name for custom in registered_extractors()] == ["first", "second", "third"]
    assert extract_text(make_raw("theirs")).text == "second"


def test_an_extractor_of_the_same_name_replaces_the_other() -> None:
    extractor(name="mine")(answer("old"))
    extractor(name="mine")(answer("new"))
    assert len(registered_extractors()) == 1
    assert extract_text(make_raw("theirs")).text == "new"


def test_a_removed_extractor_is_not_called() -> None:
    extractor(name="mine")(answer("mine"))
    remove_extractor("mine")
    remove_extractor("never there")
    assert extract_text(make_raw("theirs")).text == "theirs"


def test_a_decorated_function_is_named_after_itself_and_stays_a_function() -> None:
    @extractor(suffixes=["mill"])
    def read_mill(raw: RawDocument) -> str:
        return raw.name

    assert read_mill(make_raw("", "a.mill")) == "a.mill"
    assert [custom.name for custom in registered_extractors()] == ["read_mill"]


@pytest.mark.parametrize("wanted", [{"suffixes": "mill"}, {"media_types": "text/html"}], ids=str)
def test_a_text_where_a_list_belongs_is_refused(wanted: dict[str, str]) -> None:
    with pytest.raises(UsageError, match="give a list, as in"):
        extractor(**wanted)


# Answers


def test_a_whole_answer_is_kept_and_cleaned() -> None:
    found = ExtractedText("a\x00b  ", title=" Mills ", media_type="x/mill", metadata={"year": 1999})
    extractor()(answer(found))
    extracted = extract_text(make_raw("theirs"))
    assert (extracted.text, extracted.title) == ("ab", "Mills")
    assert (extracted.media_type, extracted.metadata) == ("x/mill", {"year": 1999})


def test_finding_no_text_is_an_empty_document() -> None:
    extractor()(answer("  \n "))
    assert fault_of(make_raw("theirs")).kind is ErrorClass.EMPTY


def test_an_answer_that_is_no_text_names_the_extractor() -> None:
    extractor(name="careless")(lambda raw: 42)  # type: ignore[arg-type, return-value]  # noqa: ARG005
    fault = fault_of(make_raw("theirs"))
    assert fault.kind is ErrorClass.UNKNOWN
    assert "page: the extractor 'careless' returned int" in str(fault)


def test_an_error_names_the_extractor_and_may_pass() -> None:
    def stumble(raw: RawDocument) -> str:
        raise KeyError(raw.name)

    extractor()(stumble)
    fault = fault_of(make_raw("theirs"))
    assert fault.kind is ErrorClass.UNKNOWN
    assert "the extractor 'stumble' failed (KeyError: 'page')" in str(fault)


def test_an_extractor_may_say_itself_what_is_wrong() -> None:
    def refuse(raw: RawDocument) -> str:
        raise DocumentFault(ErrorClass.CORRUPTION, f"{raw.name}: page 3 is missing")

    extractor()(refuse)
    fault = fault_of(make_raw("theirs"))
    assert (fault.kind, str(fault)) == (ErrorClass.CORRUPTION, "page: page 3 is missing")


@pytest.mark.parametrize(
    ("install", "command"),
    [(None, "pip install no_such_library"), ("apt install mill-tools", "apt install mill-tools")],
)
def test_a_missing_library_comes_with_the_command_that_installs_it(
    install: str | None, command: str
) -> None:
    def need(raw: RawDocument) -> str:
        import no_such_library.deep  # type: ignore[import-not-found]

        return str(no_such_library.deep.read(raw))

    extractor(install=install)(need)
    fault = fault_of(make_raw("theirs"))
    assert fault.kind is ErrorClass.EXTRACTOR_MISSING
    assert str(fault).endswith(f": {command}")
