"""A document shows the fields that it has, also when its answer was there before it."""

from contextlib import closing
from pathlib import Path

from penstock.store.database import Database
from tests.contract.api.service import RESUME
from tests.dashboard.furnishing import Workshop
from tests.dashboard.pages import Pages

JAVA = RESUME.replace("Python", "Java")


def test_a_document_that_went_back_to_an_earlier_text(
    database: Database, tmp_path: Path, pages: Pages
) -> None:
    with closing(Workshop(database, tmp_path / "home")) as shop:
        for text in (RESUME, JAVA, RESUME):
            shop.write("ada.txt", text)
            shop.ingest(profile="resume")
        shown = pages.look(f"/ui/documents/{shop.node('ada.txt').id}")

    fields = shown.texts("[aria-label='Extracted fields'] .chips li")
    assert "Python" in fields
    assert "Java" not in fields
    assert "reused from an earlier extraction" in shown.words


def test_a_document_that_was_corrected_was_not_reused(
    database: Database, tmp_path: Path, pages: Pages
) -> None:
    with closing(Workshop(database, tmp_path / "home")) as shop:
        shop.write("ada.txt", RESUME)
        shop.ingest(profile="resume")
        page = f"/ui/documents/{shop.node('ada.txt').id}"
        pages.send(f"{page}/fields", field="industries", value="Mills")
        shown = pages.look(page)

    assert "Mills" in shown.texts("[aria-label='Extracted fields'] .chips li")
    assert "reused from an earlier extraction" not in shown.words
