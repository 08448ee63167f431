"""Makes the documents that the text bench reads: text PDFs, and pages whose article is known."""

import gzip
import json
import random
import re
import sys
import time
from pathlib import Path

from fpdf import FPDF

from bench.pages import write_pages

_SENTENCE = (
    "the turbine gate leads water from a reservoir down to the wheel and its governor measures "
    "what each season brings so that the station can plan repairs inspections and budgets"
)
_ARTICLE = re.compile(r"<article.*?</article>", re.DOTALL)
_PARAGRAPH = re.compile(r"<p>(.*?)</p>", re.DOTALL)


def write_pdfs(folder: Path, count: int, *, pages: int) -> None:
    """`count` distinct PDFs of full pages of text, about 3,000 characters each."""
    folder.mkdir(parents=True)
    for number in range(count):
        chosen = random.Random(number)
        pdf = FPDF()
        pdf.set_title(f"Report {number}")
        pdf.set_font("Helvetica", size=10)
        for _ in range(pages):
            pdf.add_page()
            pdf.multi_cell(0, text="\n\n".join(_paragraph(chosen) for _ in range(6)))
        pdf.output(str(folder / f"report-{number:06}.pdf"))


def _paragraph(chosen: random.Random) -> str:
    return " ".join(chosen.choices(_SENTENCE.split(), k=85)).capitalize() + "."


def write_known_pages(folder: Path, count: int) -> None:
    """Made-up pages in the layout that `--pages` takes, each with the text of its article."""
    write_pages(folder / "made", count, seed=1)
    (folder / "html").mkdir()
    truth = {}
    for path in sorted((folder / "made").iterdir()):
        source = path.read_text(encoding="utf-8")
        truth[path.stem] = {"articleBody": _article_text(source)}
        compressed = gzip.compress(source.encode(), compresslevel=1)
        (folder / "html" / f"{path.stem}.html.gz").write_bytes(compressed)
    (folder / "ground-truth.json").write_text(json.dumps(truth), encoding="utf-8")


def _article_text(source: str) -> str:
    found = _ARTICLE.search(source)
    return "\n".join(_PARAGRAPH.findall(found.group())) if found else ""


def main(folder: str, pdfs: str, pdf_pages: str, short_pdfs: str, known_pages: str) -> None:
    """Make all of it, in a process of its own: a child's peak memory starts at its parent's."""
    started = time.perf_counter()
    write_pdfs(Path(folder) / "pdfs", int(pdfs), pages=int(pdf_pages))
    write_pdfs(Path(folder) / "short", int(short_pdfs), pages=1)
    write_known_pages(Path(folder) / "pages", int(known_pages))
    sys.stdout.write(json.dumps({"seconds": time.perf_counter() - started, "peak_mb": 0.0}))


if __name__ == "__main__":
    main(*sys.argv[1:])
