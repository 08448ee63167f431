"""What maintenance shows in the Prefect UI."""

from collections.abc import Iterator

from prefect.artifacts import create_markdown_artifact

from penstock.maintenance.outcome import Maintained, Part, in_short
from tasks.best_effort import best_effort


def publish_figures(done: Maintained) -> None:
    """Leave behind what a person wants to know about it."""
    with best_effort("the figures of maintenance"):
        create_markdown_artifact(
            key="maintenance", markdown=figures_markdown(done), description="Maintenance"
        )


def figures_markdown(done: Maintained) -> str:
    """The figures as Markdown."""
    title = "# What maintenance would delete" if done.dry_run else "# Maintenance"
    lines = [title, "", "| part | objects | size | seconds | |", "|---|---:|---:|---:|---|"]
    lines += [row for part in done.parts for row in _rows(part)]
    lines += [f"\n**{failure}**" for failure in done.failures]
    return "\n".join(lines)


def _rows(part: Part) -> Iterator[str]:
    note = f"**failed:** {_cell(part.error)}" if part.error is not None else _cell(part.note)
    if not part.figures:
        yield f"| {part.name} | | | {part.seconds:.1f} | {note} |"
    for figure in part.figures:
        size = "" if figure.bytes is None else in_short(figure.bytes)
        yield f"| {figure.what} | {figure.count:,} | {size} | {part.seconds:.1f} | {note} |"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
