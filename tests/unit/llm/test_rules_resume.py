"""How the rules read a résumé."""

from collections.abc import Mapping
from datetime import date
from typing import Any

import pytest

from penstock.documents import Extraction, ExtractionRequest
from penstock.llm.answers import UNCAPPED
from penstock.rules import RulesExtractor

from .scoring import TODAY

FILLER = (
    "\n\nInterests\nLong walks, short books and other things that no recruiter needs to know about."
)


def read(
    text: str, today: date | None = TODAY, metadata: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    request = ExtractionRequest(text + FILLER, "resume", metadata=metadata or {})
    outcome = RulesExtractor(UNCAPPED, today=today).extract([request])[0]
    assert isinstance(outcome, Extraction)
    return dict(outcome.fields)


@pytest.mark.parametrize(
    ("written", "name"),
    [
        ("k8s", "Kubernetes"),
        ("Postgres", "PostgreSQL"),
        ("golang", "Go"),
        ("ReactJS", "React"),
        ("sklearn", "scikit-learn"),
        ("C++", "C++"),
        ("c#", "C#"),
        (".NET", ".NET"),
        ("node.js", "Node.js"),
        ("amazon web services", "AWS"),
        ("machine-learning", "Machine Learning"),
    ],
)
def test_a_skill_goes_by_one_name(written: str, name: str) -> None:
    assert read(f"I have worked with {written} for a while.")["primary_skills"] == [name]


@pytest.mark.parametrize(
    "sentence",
    [
        "Excel in a fast paced environment and go to every meeting.",
        "Go to market plans, R&D budgets, C-level talks and vitamin C.",
        "Spark joy, react quickly, express yourself, rest well and swift as ever.",
        "Write to me@python.org or see node.example.com.",
        "John C. Smith and R. Miller were my managers.",
    ],
)
def test_everyday_words_are_no_skills(sentence: str) -> None:
    assert read(sentence)["primary_skills"] == []


def test_everyday_words_count_where_skills_are_listed() -> None:
    found = read("Skills\nC, R, Go, Excel, Swift, Rust")["primary_skills"]
    assert set(found) == {"C", "R", "Go", "Excel", "Swift", "Rust"}


def test_an_everyday_word_counts_in_a_list_within_a_sentence() -> None:
    assert set(read("Services in Go, Rust and Python.")["primary_skills"]) == {
        "Go",
        "Rust",
        "Python",
    }


def test_listed_skills_come_before_mentioned_ones() -> None:
    text = "Docker Docker Docker.\n\nSkills\nHaskell, Erlang"
    assert read(text)["primary_skills"] == ["Haskell", "Erlang", "Docker"]


def test_skills_the_table_does_not_know_are_taken_from_a_list() -> None:
    assert "Falconry" in read("Skills\nFalconry, Python")["primary_skills"]


def test_titles_are_ordered_by_date_not_by_place() -> None:
    text = (
        "Experience\nJunior Clerk, Alpha, 2010 - 2012\nOffice Manager, Gamma, 2016 - Present\n"
        "Senior Clerk, Beta, 2012 - 2016"
    )
    assert read(text)["recent_job_titles"] == ["Office Manager", "Senior Clerk", "Junior Clerk"]


@pytest.mark.parametrize(
    "entry",
    [
        "Data Engineer, Acme, 2019 - Present",
        "Acme | Data Engineer | 2019 – Present",
        "2019 - Present: Data Engineer at Acme",
        "Acme Corp\nData Engineer\nJan 2019 – Present",
        "Jan 2019 - Present\nData Engineer\nAcme Corp",
        "DATA ENGINEER — ACME (2019 to date)",
        "Worked as Data Engineer in Acme from Jan 2019 to till date.",
    ],
)
def test_a_title_is_found_in_many_layouts(entry: str) -> None:
    assert read(f"Experience\n{entry}")["recent_job_titles"] == ["Data Engineer"]


@pytest.mark.parametrize(
    ("text", "years"),
    [
        ("Nurse with 8 years of experience.", 8),
        ("Over 12+ years' experience in retail.", 12),
        ("Ten years of professional experience.", 10),
        ("I bring 5-7 years of experience.", "5-7"),
        ("Experience: 6.5 years", 6.5),
        ("The company has 40 years of history.", None),
    ],
)
def test_stated_years_are_taken_as_they_are(text: str, years: object) -> None:
    assert read(text)["years_experience_total"] == years


@pytest.mark.parametrize(
    ("entries", "years"),
    [
        ("Clerk, A, 2015-2019", 4),
        ("Clerk, A, 2015-2019\nCook, B, 2017-2021", 6),
        ("Clerk, A, 01/2018 - 12/2018\nCook, B, 01/2020 - 12/2020", 2),
        ("Clerk, A, Jan 2018 – Present", 7),
        ("Clerk, A, since 2020", 5),
        ("Clerk, A, 2019-2015", None),
        ("Clerk, A, 2031-2035", None),
    ],
)
def test_years_are_counted_once_from_the_dates(entries: str, years: int | None) -> None:
    assert read(f"Experience\n{entries}")["years_experience_total"] == years


def test_years_of_study_are_not_years_of_work() -> None:
    text = "Experience\nClerk, A, 2020-2023\n\nEducation\nUniversity of X, 2010-2020"
    assert read(text)["years_experience_total"] == 3


def test_dates_win_over_a_statement_about_one_skill() -> None:
    text = "Python: 2 years of experience\n\nExperience\nClerk, A, 2010-2020"
    assert read(text)["years_experience_total"] == 10


def test_a_certification_is_named_once() -> None:
    text = (
        "Ann Lee, CKA\n\nCertifications\nCertified Kubernetes Administrator (CKA), 2022\nPMP\nPMP"
    )
    assert read(text)["certifications"] == ["Certified Kubernetes Administrator (CKA)", "PMP"]


def test_nothing_found_is_null_for_certifications_and_industries() -> None:
    fields = read("I like to work.")
    assert fields["certifications"] is None
    assert fields["industries"] is None


def test_an_industry_needs_more_than_one_sign() -> None:
    assert read("I once visited a hospital.")["industries"] is None
    assert read("Patients of the hospital came to my clinic.")["industries"] == ["Healthcare"]


EXPORT = """Anita Rao
Team Lead - Lakeshore Systems

Pune, Maharashtra - Email me on Indeed: indeed.com/r/Anita-Rao/0123456789abcdef

Result oriented, with over 8 years of experience, and great at taking initiative.

WORK EXPERIENCE

Team Lead - Windows

Lakeshore Systems -  Pune, Maharashtra -

April 2014 to Present

Responsibilities:
Handling a team of nine.

Desktop Support

Harlan Networks -  Pune, Maharashtra -

June 2009 to March 2014

EDUCATION

B.Tech in Computer Engineer

Pune University

2005 to 2009

SKILLS

.NET (4 years), NET, Oracle Database, ORACLE (2 years), ReactJS, React, PeopleSoft (Less
than 1 year), Unix shell scripting, Team
Handling, Office 365

https://www.indeed.com/r/Anita-Rao/0123456789abcdef?isid=rex-download&co=IN

LINKS

http://www.example.com/anita

ADDITIONAL INFORMATION

Databases: MySQL, Redis (basic)
I am better than average at meeting dates.
"""


def test_a_board_export_gives_its_titles_total_and_skills() -> None:
    found = read(EXPORT, today=None)
    assert found["recent_job_titles"] == ["Team Lead - Windows", "Desktop Support"]
    assert found["years_experience_total"] == 8
    assert set(found["primary_skills"]) == {
        ".NET",
        "Oracle Database",
        "React",
        "PeopleSoft",
        "Unix shell scripting",
        "Team Handling",
        "Office 365",
        "MySQL",
        "Redis",
    }


def test_listed_skills_are_spelled_as_the_list_spells_them() -> None:
    listed = "Postgres, k8s, HP ALM/QC, P&L Management, Internet of Things"
    assert read(f"Skills\n{listed}")["primary_skills"] == listed.split(", ")


@pytest.mark.parametrize(
    "line",
    [
        "https://www.example.com/me",
        "great at taking initiative",
        "than",
        "I hereby declare that Python, Java and SQL are true",
        "Place: Pune",
        "worked with Python in the team",
    ],
)
def test_addresses_and_pieces_of_sentences_are_no_listed_skills(line: str) -> None:
    words = set(read(f"Skills\nCarpentry\nWelding\n{line}")["primary_skills"])
    assert words <= {"Carpentry", "Welding", "Python", "Java", "SQL"}


def test_mentioned_skills_are_left_out_where_many_are_listed() -> None:
    listed = ", ".join(f"Trade {name}" for name in "BCDEFGHJKLMN")
    assert "Docker" not in read(f"Built with Docker.\n\nSkills\n{listed}")["primary_skills"]
    assert "Docker" in read("Built with Docker.\n\nSkills\nTrade B")["primary_skills"]


def test_two_columns_are_read_one_after_the_other() -> None:
    rows = (
        ("SKILLS", "EXPERIENCE"),
        ("Falconry", "Barista, Corner Coffee"),
        ("Archery", "2015 - 2019"),
        ("Beekeeping", "Served guests every morning."),
        ("Weaving", ""),
        ("Pottery", "Cook, Harbour Inn"),
        ("Joinery", "2012 - 2015"),
        ("Basketry", "Cooked for eighty guests."),
    )
    text = "\n".join(f"{left:<24}{right}".rstrip() for left, right in rows)
    found = read(text)
    assert found["recent_job_titles"] == ["Barista", "Cook"]
    assert found["years_experience_total"] == 7
    assert {"Falconry", "Archery", "Basketry"} <= set(found["primary_skills"])


def test_a_row_of_dates_beside_jobs_is_no_column() -> None:
    text = "Experience\n" + "\n".join(
        f"{2000 + year}-{2001 + year}    Clerk, Alpha" for year in range(0, 16, 2)
    )
    assert read(text)["years_experience_total"] == 8


def test_headings_inside_one_long_line_are_found() -> None:
    text = (
        "Dan Price Amarillo, TX " + "To keep heavy trucks on the road. " * 12 + "WORK EXPERIENCE "
        "Welder Harlan Steel - Amarillo, TX - 2010 to 2016 Welded frames. Shop Helper Erie Works - "
        "2008 to 2010 Swept up. EDUCATION Diploma 2005 to 2008 "
        "SKILLS Welding (6 years), Air brakes ADDITIONAL INFORMATION Own tools."
    )
    found = read(text)
    assert found["recent_job_titles"] == ["Welder", "Shop Helper"]
    assert found["years_experience_total"] == 8
    assert found["primary_skills"] == ["Welding", "Air brakes"]


@pytest.mark.parametrize(
    ("text", "title", "years", "skill"),
    [
        (
            "Berufserfahrung\nMai 2014 - Januar 2019\nTeamleiter Einkauf, Elbe GmbH\n\n"
            "Kenntnisse\nRahmenverträge, Incoterms",
            "Teamleiter",
            5,
            "Rahmenverträge",
        ),
        (
            "Expérience professionnelle\nInfirmière en réanimation\njanvier 2015 à août 2019\n\n"
            "Compétences\nSoins palliatifs, Pack Office",
            "Infirmière en réanimation",
            5,
            "Soins palliatifs",
        ),
        (
            "Perfil\nIngeniero con 14 años de experiencia.\n\nExperiencia\n"
            "ACME — Jefe de obra (mayo 2015 - actualidad)\n\nInformática\nPresto, CYPE",
            "Jefe de obra",
            14,
            "Presto",
        ),
        (
            "Wie ben ik?\nAcht jaar werkervaring.\n\nWerkervaring\n"
            "Projectleider wijken\nseptember 2019 – heden\n\nVaardigheden\nParticipatie, ArcGIS",
            "Projectleider wijken",
            8,
            "Participatie",
        ),
    ],
)
def test_other_languages_are_read_the_same_way(
    text: str, title: str, years: int, skill: str
) -> None:
    found = read(text)
    assert found["recent_job_titles"][0].startswith(title)
    assert found["years_experience_total"] == years
    assert skill in found["primary_skills"]


def test_a_title_that_no_table_knows_is_found_where_the_others_stand() -> None:
    text = (
        "Experience\nStore Manager\nAlpha Retail\n2015 - 2019\n\nVisual Display\nBeta Retail\n"
        "2010 - 2015"
    )
    assert read(text)["recent_job_titles"] == ["Store Manager", "Visual Display"]


def test_a_role_in_a_project_is_no_title_beside_a_job() -> None:
    text = (
        "Experience\nData Engineer, Acme, 2015 - 2019\n\nProject: Portal\nRole: Developer\n"
        "Duration: Jan 2016 to Dec 2016"
    )
    assert read(text)["recent_job_titles"] == ["Data Engineer"]


@pytest.mark.parametrize("inside", ["Responsibilities:", "Overview", "Projects", "Skills"])
def test_a_heading_inside_a_job_does_not_end_the_jobs(inside: str) -> None:
    text = f"EXPERIENCE\nCook, A, 2015 - 2019\n{inside}\n- Cooked.\nClerk, B, 2010 - 2015"
    found = read(text)
    assert found["recent_job_titles"] == ["Cook", "Clerk"]
    assert found["years_experience_total"] == 9


def test_the_dates_win_over_years_that_only_a_job_or_a_skill_has() -> None:
    text = (
        "Experience\nClerk, A, 2010 - 2020\nTrained staff with 2 years of experience.\n\n"
        "Skills\nFiling, 3 years of experience"
    )
    assert read(text)["years_experience_total"] == 10


def test_a_skills_list_of_lone_words_in_capitals_has_no_headings() -> None:
    found = read("SKILLS\n\nFALCONRY\n\nARCHERY\n\nLinks")["primary_skills"]
    assert {"FALCONRY", "ARCHERY"} <= set(found)


def test_a_heading_that_no_table_knows_ends_a_list_of_skills() -> None:
    found = read("SKILLS\n\nFalconry, Archery\n\nROYAL HONOURS\n\nOrder of the Bath")
    assert found["primary_skills"] == ["Falconry", "Archery"]


def test_a_stated_total_wins_over_the_dates() -> None:
    text = "Clerk with over 8 years of experience.\n\nExperience\nClerk, A, Jan 2009 - Present"
    assert read(text)["years_experience_total"] == 8


def test_a_stated_total_wins_over_a_larger_part() -> None:
    text = "Total 5 years of experience at Acme.\n9 years of experience in all kinds of teaching."
    assert read(text)["years_experience_total"] == 5


def test_present_in_an_old_resume_is_its_newest_year() -> None:
    text = "Experience\nClerk, A, March 2008 - Present\n\nAwards\nClerk of the year 2012"
    assert abs(read(text, today=None)["years_experience_total"] - 4) <= 1


def test_a_certificate_that_expires_later_says_nothing_about_present() -> None:
    text = (
        "Experience\nClerk, A, March 2008 - Present\nCook, B, 2004 - 2008\n\nCertifications\n"
        "First aid, valid until 2021"
    )
    assert abs(read(text, today=None)["years_experience_total"] - 4) <= 1


def test_the_date_of_the_file_says_what_present_means() -> None:
    text = "Experience\nClerk, A, March 2008 - Present\n\nAwards\nClerk of the year 2012"
    found = read(text, today=None, metadata={"created": "2018-03-01"})
    assert found["years_experience_total"] == 10


def test_the_length_beside_an_open_job_says_when_it_was_written() -> None:
    text = "Experience\nAcme\nData Engineer\nMarch 2018 - Present (2 years 4 months)"
    assert read(text)["years_experience_total"] == 2
