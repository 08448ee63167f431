"""Has the Prefect server mark flow runs as crashed whose process died without a word."""

from datetime import timedelta

from prefect.client.orchestration import get_client
from prefect.client.schemas.objects import StateType
from prefect.events.actions import ChangeFlowRunState
from prefect.events.schemas.automations import AutomationCore, EventTrigger, Posture

ZOMBIES = "penstock: zombie flow runs → crashed"
TAG = "penstock"
"""On every deployment of prefect.yaml, and so on every flow run and heartbeat of theirs."""
HEARTBEAT_SECONDS = 30
"""As prefect.yaml sets it for every flow run; Prefect beats no faster."""

_HEARTBEAT = "prefect.flow-run.heartbeat"
# After these no heartbeat is due. The last two wait for a process that is yet to be started.
_QUIET_STATES = (
    "Completed",
    "Failed",
    "TimedOut",
    "Cancelled",
    "Crashed",
    "Suspended",
    "AwaitingRetry",
)
_MESSAGE = (
    "No heartbeat for {seconds:g} s: the process of this flow run is gone (killed, out of memory, "
    "its machine lost) and nobody was left to report it. Its documents are safe: the flows "
    "`process` and `recover` take them back by themselves. Run the same source again to have it "
    "listed to the end; the worker's log and its machine's may tell the cause."
)


def install_automations(within_seconds: float = 3 * HEARTBEAT_SECONDS) -> list[str]:
    """Create the automation, or bring it up to date; what was done."""
    wanted = _crash_zombies(within_seconds)
    with get_client(sync_client=True) as client:
        found = client.read_automations_by_name(wanted.name)
        if not found:
            client.create_automation(wanted)
            return [f"created automation {wanted.name!r}"]
        known = found[0]
        # An update would have the server forget which flow runs it is waiting for.
        if (known.trigger, known.actions) == (wanted.trigger, wanted.actions):
            return [f"unchanged automation {wanted.name!r}"]
        # Whoever switched it off in the UI had a reason.
        client.update_automation(known.id, _update(wanted, enabled=known.enabled))
        return [f"updated automation {wanted.name!r}"]


def _crash_zombies(within_seconds: float) -> AutomationCore:
    """See https://docs.prefect.io/v3/advanced/detect-zombie-flows"""
    message = _MESSAGE.format(seconds=within_seconds)
    return AutomationCore(
        name=ZOMBIES,
        description="A flow run whose heartbeats stop without an end is marked as crashed.",
        tags=[TAG],
        trigger=EventTrigger(
            posture=Posture.Proactive,
            after={_HEARTBEAT},
            expect={_HEARTBEAT, *(f"prefect.flow-run.{state}" for state in _QUIET_STATES)},
            match={"prefect.resource.id": "prefect.flow-run.*"},
            match_related={
                "prefect.resource.role": "tag",
                "prefect.resource.id": f"prefect.tag.{TAG}",
            },
            for_each={"prefect.resource.id"},
            threshold=1,
            within=timedelta(seconds=within_seconds),
        ),
        # Not by force: the server then refuses it to a flow run that has ended after all.
        actions=[ChangeFlowRunState(state=StateType.CRASHED, message=message)],
    )


def _update(automation: AutomationCore, *, enabled: bool) -> AutomationCore:
    """With every field set, since an update sends no defaults; but the owner it may not name."""
    values = automation.model_dump(exclude={"owner_resource"})
    return AutomationCore.model_validate({**values, "enabled": enabled})
