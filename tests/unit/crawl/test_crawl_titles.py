import pytest

from penstock.crawl.listing import Listed, TitleFilter, title_from_url


def listed(title: str | None, url: str = "https://acme.test/jobs/1") -> Listed:
    return Listed("1", url, title)


@pytest.mark.parametrize(
    ("pattern", "title", "matches"),
    [
        ("intern", "Intern, Data Team", True),
        ("intern", "International Sales", False),
        ("engineer*", "Engineering Manager", True),
        ("engineer", "Engineers", False),
        ("C++", "Senior C++ Developer", True),
        ("data   engineer", "Data Engineer", True),
        ("ingénieur", "INGÉNIEUR logiciel", True),
    ],
)
def test_patterns_are_whole_words(pattern: str, title: str, matches: bool) -> None:
    assert TitleFilter(include=[pattern]).decide(listed(title)).included is matches
    assert TitleFilter(exclude=[pattern]).decide(listed(title)).included is not matches


def test_without_patterns_everything_is_included() -> None:
    decision = TitleFilter().decide(listed(None))
    assert (decision.included, decision.why) == (True, "listed")


def test_an_exclusion_wins_over_an_inclusion_and_is_named() -> None:
    decision = TitleFilter(["engineer"], ["junior"]).decide(listed("Junior Engineer"))
    assert (decision.included, decision.why) == (False, "title excluded by 'junior'")


def test_a_decision_names_why_a_title_is_not_included() -> None:
    decision = TitleFilter(["engineer"]).decide(listed("Cook"))
    assert (decision.included, decision.why) == (False, "title has none of the included words")


def test_the_address_stands_for_a_title_that_is_not_known() -> None:
    url = "https://acme.test/jobs/senior-data_engineer?id=3"
    assert title_from_url(url) == "senior data engineer"
    assert TitleFilter(["data engineer"]).decide(listed(None, url)).included
