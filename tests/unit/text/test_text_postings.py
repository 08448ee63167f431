"""Job postings give their fields, from JSON-LD where there is any."""

from typing import Any

import pytest

from penstock.text.extract import extract_text
from tests.unit.text.factories import (
    PARAGRAPH,
    make_page,
    make_posting,
    make_posting_page,
    make_raw,
)


def test_a_posting_gives_fields_and_ordered_text() -> None:
    extracted = extract_text(make_posting_page(make_posting()))
    assert extracted.title == "Miller & Baker"
    assert extracted.metadata == {
        "schema_type": "JobPosting",
        "title": "Miller & Baker",
        "company": "Mills Ltd",
        "location": "Ulm, BW, DE",
        "employment_type": "FULL_TIME, CONTRACTOR",
        "salary": "50000–60000 EUR / year",
        "description": "Grind the corn.\n- Every day\n- With care",
        "requirements": "Strong arms",
    }
    assert extracted.text == (
        "Miller & Baker\nMills Ltd\nUlm, BW, DE\nFULL_TIME, CONTRACTOR\n50000–60000 EUR / year\n\n"
        "Grind the corn.\n- Every day\n- With care\nRequirements\nStrong arms"
    )


@pytest.mark.parametrize(
    "data",
    [
        [{"@type": "WebSite"}, make_posting()],
        {"@context": "https://schema.org", "@graph": [{"@type": "Organization"}, make_posting()]},
        {"@type": "WebPage", "mainEntity": make_posting()},
        make_posting(**{"@type": ["Thing", "JobPosting"]}),
    ],
)
def test_a_posting_is_found_in_lists_graphs_and_inside_others(data: Any) -> None:
    assert extract_text(make_posting_page(data)).metadata["company"] == "Mills Ltd"


@pytest.mark.parametrize(
    ("changes", "field", "expected"),
    [
        ({"hiringOrganization": "Mills Ltd"}, "company", "Mills Ltd"),
        ({"jobLocation": "Ulm"}, "location", "Ulm"),
        (
            {"jobLocation": [{"address": {"addressLocality": "Ulm"}}, {"address": "Bern"}]},
            "location",
            "Ulm; Bern",
        ),
        (
            {
                "jobLocation": None,
                "jobLocationType": "TELECOMMUTE",
                "applicantLocationRequirements": {"@type": "Country", "name": "Germany"},
            },
            "location",
            "Remote Germany",
        ),
        ({"baseSalary": {"currency": "EUR", "value": 4000}}, "salary", "4000 EUR"),
        ({"baseSalary": "negotiable"}, "salary", "negotiable"),
        ({"description": "&lt;p&gt;Grind&amp;nbsp;corn&lt;/p&gt;"}, "description", "Grind corn"),
        ({"description": "Plain &amp; short"}, "description", "Plain & short"),
        ({"qualifications": ["Arms", {"name": "Legs"}]}, "requirements", "Arms\nLegs"),
    ],
)
def test_fields_are_read_in_all_their_shapes(
    changes: dict[str, Any], field: str, expected: str
) -> None:
    assert extract_text(make_posting_page(make_posting(**changes))).metadata[field] == expected


def test_requirements_are_split_from_a_description_that_holds_both() -> None:
    html = (
        "<p>Grind corn.</p><h3>Requirements</h3><ul><li>Arms</li></ul><h3>Benefits</h3><p>Bread</p>"
    )
    posting = make_posting(description=html, qualifications=None)
    extracted = extract_text(make_posting_page(posting))
    metadata = extracted.metadata
    assert extracted.text.endswith("Grind corn.\nRequirements\n- Arms\nBenefits\nBread")
    assert metadata["requirements"] == "Requirements\n- Arms"
    assert metadata["description"] == "Grind corn."


def test_a_page_with_broken_json_ld_is_read_as_a_page() -> None:
    head = '<title>Mills</title><script type="application/ld+json">{"@type": "JobPosting",</script>'
    extracted = extract_text(make_raw(make_page(head=head)))
    assert PARAGRAPH in extracted.text
    assert extracted.title == "Mills"


def test_a_job_page_without_json_ld_still_gives_its_requirements() -> None:
    body = (
        f"<main><h1>Miller</h1><p>{PARAGRAPH}</p><p>{PARAGRAPH}</p>"
        "<h2>Requirements</h2><ul><li>Strong arms</li><li>Patience with corn</li></ul></main>"
    )
    head = '<title>Miller</title><meta property="og:site_name" content="Mills Ltd">'
    raw = make_raw(make_page(body, head), "https://mills.example/careers/1")
    metadata = extract_text(raw).metadata
    assert metadata["requirements"] == "Requirements\n- Strong arms\n- Patience with corn"
    assert metadata["company"] == "Mills Ltd"
    assert "Strong arms" not in metadata["description"]
