"""A document's profile is found from its content, in many languages; `document` when unsure."""

import time

import pytest

from penstock.rules.detection import detect_profile
from tests.unit.llm.scoring import load_samples

LIMIT_SECONDS = 0.02

RESUMES = {
    "en": "Jane Doe\nStaff Nurse\njane@example.org\n\nWork Experience\n"
    "St Mary's Hospital, 2015 - Present\n\n"
    "Education\nBSc Nursing, 2011 - 2014\n",
    "de": "Lebenslauf\nJana Weiß, Maschinenbauingenieurin\n\nBeruflicher Werdegang\n"
    "03/2015 – heute: Pumpenbau AG\n\n"
    "Ausbildung\n2009 – 2014 Studium in Aachen\n",
    "fr": "Zoé Martin\nzoe@example.fr\n\nExpériences professionnelles\n"
    "2016 - 2020 : comptable chez Durand\n\n"
    "Formation\nMaster, 2012 - 2014\n",
    "es": "Luz Peña\nluz@example.es\n\nExperiencia laboral\n"
    "2018 - actual: arquitecta en Obra SL\n\nFormación académica\n",
    "pt": "Rui Sá\nrui@example.pt\n\nExperiência profissional\n"
    "2014 - atual: soldador\n\nFormação acadêmica\n",
    "nl": "Curriculum vitae\nJoost de Wit\n\nWerkervaring\n2013 - heden: timmerman\n\n"
    "Opleidingen\n",
    "pl": "Jan Nowak\njan@example.pl\n\nDoświadczenie zawodowe\n"
    "2010 - 2018: elektryk\n\nWykształcenie\n",
}
POSTINGS = {
    "en": "Weir Keeper\nAcme Water\n\nWhat you'll do\nOpen the gates.\n\n"
    "Requirements\nA licence.\n\nApply now.\n",
    "de": "Schleusenwart (m/w/d)\n\nDeine Aufgaben\nTore öffnen.\n\nDein Profil\n"
    "Ausbildung als Schlosser.\n\nWir bieten\n30 Tage.\n",
    "fr": "Éclusier (H/F)\n\nVos missions\nOuvrir les portes.\n\nProfil recherché\n"
    "Permis B.\n\nPostuler en ligne.\n",
    "es": "Esclusero\n\nFunciones\nAbrir compuertas.\n\nRequisitos\nCarné B.\n\n"
    "Ofrecemos contrato fijo.\nInscríbete.\n",
    "it": "Guardiano di chiuse\n\nCosa offriamo\nContratto.\n\nRequisiti\n"
    "Patente B.\n\nCerchiamo una persona attenta.\n",
    "nl": "Sluiswachter\n\nWat ga je doen\nPoorten openen.\n\nWat bieden wij\n"
    "30 dagen.\n\nSolliciteer direct.\n",
    "ja": "水門の管理\n\n業務内容\n水門の開閉。\n\n応募資格\n普通免許。\n\n待遇\n社会保険。\n",
}
OTHERS = (
    "Turbulent flow past a flat plate\n\nAbstract\n"
    "This paper studies the skin friction of plates, et al.\n",
    "Invoice 2044\nMill & Sons\ninfo@example.org\nTel. +44 20 7946 0000\n\n"
    "Total: 99.50 EUR, due 2019-04-01\n",
    "Minutes of the meeting\n\nPresent: the council. The budget of 2018 - 2019 was approved.\n",
    "County firearms report\n\nSerial, make, calibre, 2014 to 2016, and where each was found.\n",
    "Our hiking trip\n\n"
    "We walked for three days. You will need good shoes, and you have to book early.\n",
    "",
)


@pytest.mark.parametrize("language", RESUMES)
def test_a_resume_is_known_in_many_languages(language: str) -> None:
    assert detect_profile(RESUMES[language]).profile == "resume"


@pytest.mark.parametrize("language", POSTINGS)
def test_a_posting_is_known_in_many_languages(language: str) -> None:
    assert detect_profile(POSTINGS[language]).profile == "job_posting"


@pytest.mark.parametrize("text", OTHERS)
def test_anything_else_is_a_document(text: str) -> None:
    assert detect_profile(text).profile == "document"


def test_what_speaks_for_both_is_a_document_and_the_reason_says_so() -> None:
    found = detect_profile(RESUMES["en"] + POSTINGS["en"] + POSTINGS["en"])
    assert found.profile == "document"
    assert found.reason.startswith("unsure: ")


def test_the_reason_names_what_was_found() -> None:
    assert "a part on experience" in detect_profile(RESUMES["de"]).reason
    assert detect_profile("").reason == "neither a résumé nor a posting"


@pytest.mark.parametrize("profile", ["resume", "job_posting", "document"])
def test_labelled_samples_are_never_taken_for_the_wrong_kind(profile: str) -> None:
    """Of fragments and noise the kind may stay open; then they are documents."""
    found = [detect_profile(s.request.text, s.request.title).profile for s in load_samples(profile)]
    assert set(found) <= {profile, "document"}
    assert found.count(profile) >= 0.75 * len(found)


def test_a_long_text_is_looked_at_in_milliseconds() -> None:
    text = (RESUMES["en"] + OTHERS[0]) * 2000
    detect_profile(text)
    began = time.perf_counter()
    for _ in range(10):
        detect_profile(text)
    assert (time.perf_counter() - began) / 10 < LIMIT_SECONDS
