"""Every route of the dashboard with what it needs, so that none is forgotten."""

from tests.dashboard.furnishing import Furnished

# Open to all: they tell nothing of anybody.
OPEN_PAGES = {"/ui", "/ui/", "/ui/login"}
# The same for everybody of a tenant, and of that tenant only.
OVERVIEWS = {"/ui/runs", "/ui/runs/table", "/ui/search", "/ui/review", "/ui/queues", "/ui/cost"}
OF_ONE_RUN = {
    "/ui/runs/{run_id}",
    "/ui/runs/{run_id}/documents",
    "/ui/runs/{run_id}/lines",
    "/ui/runs/{run_id}/events",
    "/ui/runs/{run_id}/log.txt",
}
OF_ONE_DOCUMENT = {"/ui/documents/{node_id}", "/ui/documents/{node_id}/raw"}
EVERY_PAGE = OPEN_PAGES | OVERVIEWS | OF_ONE_RUN | OF_ONE_DOCUMENT


def path_of(route: str, room: Furnished) -> str:
    """The route for what this tenant has; jobs are those that hang, aborted runs those at work."""
    run_id = room.active_run_id if route.endswith("/abort") else room.run_id
    return (
        route.replace("{run_id}", str(run_id))
        .replace("{node_id}", room.node_id)
        .replace("{job_id}", str(room.stuck_job))
    )


def fields_of(route: str, room: Furnished) -> dict[str, str]:
    """What its form holds beside the secret."""
    filled = {
        "/ui/runs": {"source": "papers"},
        "/ui/documents/{node_id}/fields": {"field": "industries", "value": "Hydropower"},
        "/ui/queues/dead-letters": {"stage": "text", "job": str(room.dead_job)},
        "/ui/tenant": {"tenant": "globex"},
        "/ui/login": {"token": "x", "next": "/runs"},
    }
    return filled.get(route, {})


# What each form does, for whoever may write or review; for dead letters, whoever may administer.
EVERY_FORM = {
    "/ui/runs",
    "/ui/runs/{run_id}/abort",
    "/ui/runs/{run_id}/retry",
    "/ui/runs/{run_id}/again",
    "/ui/documents/{node_id}/refresh",
    "/ui/documents/{node_id}/fields",
    "/ui/documents/{node_id}/accept",
    "/ui/documents/{node_id}/delete",
    "/ui/queues/jobs/{job_id}/retry",
    "/ui/queues/dead-letters",
    "/ui/login",
    "/ui/logout",
    "/ui/tenant",
}
CHANGES = EVERY_FORM - {"/ui/login", "/ui/logout", "/ui/tenant"}
