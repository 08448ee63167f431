"""`python -m entrypoints.reference` (`make reference`): brings the reference pages up to date."""

import typer

from entrypoints.reference import FOLDER, write_pages


def main() -> None:
    """Write every page."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    for path, text in write_pages().items():
        path.write_text(text, encoding="utf-8")
        typer.echo(f"wrote docs/reference/{path.name}")


if __name__ == "__main__":
    main()
