"""Write the résumés that cannot be typed by hand: `python -m entrypoints.demo.build_corpus`.

The same bytes come out on each run; the results are committed under `corpus/resumes/`.
"""

from collections.abc import Callable, Mapping
from pathlib import Path

from entrypoints.demo.docx_layouts import set_as_timeline, set_with_headings, set_with_skill_grid
from entrypoints.demo.pdf_layouts import set_in_one_column, set_with_side_column, set_with_table
from entrypoints.demo.resume import Resume, parse_resume

RESUMES_FOLDER = Path(__file__).with_name("corpus") / "resumes"
DUPLICATE = ("imogen-haldane.pdf", "haldane-cv-final-v2.pdf")
BROKEN = "broken.pdf"
EMPTY = "empty.txt"
LATIN_1 = "joaquin-ibanez-muller.txt"

_TEXTS_FOLDER = Path(__file__).with_name("texts")
_LAYOUTS: Mapping[str, Callable[[Resume], bytes]] = {
    "imogen-haldane.pdf": set_in_one_column,
    "desmond-achterberg.pdf": set_with_side_column,
    "tova-ekelund.pdf": set_with_table,
    "marguerite-oyelaran.docx": set_with_headings,
    "bertrand-wisniewski.docx": set_as_timeline,
    "priya-vantongeren.docx": set_with_skill_grid,
}


def build_files() -> dict[str, bytes]:
    """Every generated file: name → content."""
    files = {name: layout(_read_resume(name)) for name, layout in _LAYOUTS.items()}
    original, copy = DUPLICATE
    files[copy] = files[original]
    files[BROKEN] = _garble(files["tova-ekelund.pdf"])
    files[EMPTY] = b""
    files[LATIN_1] = _read_text(LATIN_1).encode("latin-1")
    return files


def write_corpus(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in build_files().items():
        (folder / name).write_bytes(content)


def _read_resume(output_name: str) -> Resume:
    return parse_resume(_read_text(Path(output_name).with_suffix(".txt").name))


def _read_text(name: str) -> str:
    return (_TEXTS_FOLDER / name).read_text(encoding="utf-8")


def _garble(pdf: bytes) -> bytes:
    """Keep the first line, so that it still passes for a PDF, and spoil the first of the rest."""
    header, _, rest = pdf.partition(b"\n")
    return header + b"\n" + bytes(byte ^ 0x5A for byte in rest[:3000])


if __name__ == "__main__":
    write_corpus(RESUMES_FOLDER)
