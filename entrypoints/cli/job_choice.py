"""How jobs are chosen on the command line: by their ids, or by what filters find."""

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.bootstrap import App
from penstock.documents import Stage
from penstock.errors import ErrorClass, NotFound, UsageError
from penstock.work.items import ItemStatus

if TYPE_CHECKING:
    from penstock.operations.bulk import Bulk
    from penstock.operations.jobs import JobFilter

# Ids are 64-bit.
LARGEST_ID = 2**63 - 1

JobId = Annotated[int, typer.Argument(min=1, max=LARGEST_ID, help="From `penstock jobs list`.")]
JobIds = Annotated[
    list[int] | None, typer.Argument(min=1, max=LARGEST_ID, help="From `penstock jobs list`.")
]
OfStage = Annotated[Stage | None, typer.Option("--stage", help="Only this stage.")]
OfStatus = Annotated[ItemStatus | None, typer.Option("--status", help="Only this status.")]
OfRun = Annotated[
    int | None, typer.Option("--run", min=1, max=LARGEST_ID, help="Only jobs of this run.")
]
OfNode = Annotated[str | None, typer.Option("--node", help="Only jobs of this node.")]
OfClass = Annotated[
    ErrorClass | None, typer.Option("--error-class", help="Only what last failed with this.")
]
All = Annotated[bool, typer.Option("--all", help="All that the filters find.")]
Most = Annotated[
    int | None, typer.Option("--limit", min=1, max=2000, help="With --all: the newest so many.")
]


def build_filter(
    tenant_id: str,
    stage: Stage | None,
    status: ItemStatus | None,
    run: int | None,
    node: str | None,
    error_class: ErrorClass | None,
) -> "JobFilter":
    from penstock.operations.jobs import JobFilter
    from penstock.search.nodes import valid_node_id

    try:
        node_id = None if node is None else valid_node_id(node)
    except NotFound as error:
        raise UsageError(f"--node: {error}") from None
    return JobFilter(tenant_id, (stage,) if stage else (), status, node_id, run, error_class)


def check_choice(command: str, ids: list[int] | None, everything: bool) -> None:
    if bool(ids) == everything:
        raise UsageError(
            f"name jobs (penstock jobs {command} 7 8), or else choose them by filters and --all "
            f"(penstock jobs {command} --stage extract --all)"
        )


def do_in_pages(
    do: Callable[..., "Bulk"],
    opened: App,
    wanted: "JobFilter",
    ids: list[int] | None,
    limit: int | None,
) -> "Bulk":
    """Those that are named, or all that a filter finds, so many in one transaction."""
    if ids or limit is not None:
        chosen = {"ids": ids} if ids else {"limit": limit}
        return do(opened.database, opened.queue, wanted, **chosen)
    done = do(opened.database, opened.queue, wanted)
    while done.next_before is not None:
        done += do(opened.database, opened.queue, replace(wanted, before=done.next_before))
    return done
