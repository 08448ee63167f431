"""What the Prefect server does by itself: end zombies, have what crashed recovered, note failed
ingests, send for help."""

from collections.abc import Callable
from datetime import timedelta
from uuid import UUID

from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.objects import StateType
from prefect.events.actions import ChangeFlowRunState, DoNothing, RunDeployment
from prefect.events.schemas.automations import AutomationCore, EventTrigger, Posture
from prefect.exceptions import ObjectNotFound

from flows.recover import RESTARTED
from tasks.events import QUEUE_OLD

ZOMBIES = "penstock: zombie flow runs → crashed"
FAILED_INGESTS = "penstock: failed ingest → event"
OLD_QUEUES = "penstock: old queue → extra process run"
CRASHED = "penstock: crashed flow run → recover"
TAG = "penstock"
"""On every deployment of prefect.yaml, and so on every flow run and heartbeat of theirs."""
HEARTBEAT_SECONDS = 30
"""As prefect.yaml sets it for every flow run; Prefect beats no faster."""

_HEARTBEAT = "prefect.flow-run.heartbeat"
# After these no heartbeat is due. The last two wait for a process that is yet to be started.
_QUIET_STATES = (
    "Completed",
    "CompletedWithErrors",
    "Failed",
    "TimedOut",
    "Cancelled",
    "Crashed",
    "Suspended",
    "AwaitingRetry",
)
_TROUBLED_STATES = ("Failed", "Crashed", "Suspended", "CompletedWithErrors")
_OURS = {"prefect.resource.role": "tag", "prefect.resource.id": f"prefect.tag.{TAG}"}
_INGEST = {"prefect.resource.role": "flow", "prefect.resource.name": "ingest"}
_HELPER = "process/process"
_RECOVERY = "recover/recover"
_MESSAGE = (
    "No heartbeat for {seconds:g} s: the process of this flow run is gone (killed, out of memory, "
    "its machine lost) and could not report it. Its documents are safe: other workers take them "
    "back, and `recover` starts the flow run again. The worker's log and its machine's may tell "
    "the cause."
)


def install_automations(within_seconds: float = 3 * HEARTBEAT_SECONDS) -> list[str]:
    """Create the automations, or bring them up to date; what was done.

    `within_seconds`: how long a flow run may be silent before it is taken for dead.
    """
    with get_client(sync_client=True) as client:
        wanted = [_crash_zombies(within_seconds), _note_failed_ingests()]
        done = [_install(client, automation) for automation in wanted]
        helpers = ((OLD_QUEUES, _HELPER, _send_for_help), (CRASHED, _RECOVERY, _recover_crashed))
        return [*done, *(_install_starter(client, *helper) for helper in helpers)]


def _install(client: SyncPrefectClient, wanted: AutomationCore) -> str:
    found = client.read_automations_by_name(wanted.name)
    if not found:
        client.create_automation(wanted)
        return f"created automation {wanted.name!r}"
    known = found[0]
    # An update would have the server forget which flow runs it is waiting for.
    if (known.trigger, known.actions) == (wanted.trigger, wanted.actions):
        return f"unchanged automation {wanted.name!r}"
    # Keep it off if it was switched off in the UI.
    client.update_automation(known.id, _update(wanted, enabled=known.enabled))
    return f"updated automation {wanted.name!r}"


def _install_starter(
    client: SyncPrefectClient, name: str, started: str, make: Callable[[UUID], AutomationCore]
) -> str:
    try:
        deployment = client.read_deployment_by_name(started)
    except ObjectNotFound:
        return f"left out {name!r}: deploy {started} first, then register again"
    return _install(client, make(deployment.id))


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
            match_related=_OURS,
            for_each={"prefect.resource.id"},
            threshold=1,
            within=timedelta(seconds=within_seconds),
        ),
        # Not by force: the server then refuses it to a flow run that has ended after all.
        actions=[ChangeFlowRunState(state=StateType.CRASHED, message=message)],
    )


def _note_failed_ingests() -> AutomationCore:
    """The event `prefect.automation.triggered`, and a place where people add what they want."""
    return AutomationCore(
        name=FAILED_INGESTS,
        description=(
            "Triggered by every ingest that failed, crashed, was suspended because a setting has "
            "to be mended, or completed with errors. Add a notification or a webhook as an action; "
            "the events `penstock.run.failed` and `penstock.run.paused` tell tenant, source and "
            "reason."
        ),
        tags=[TAG],
        trigger=EventTrigger(
            posture=Posture.Reactive,
            expect={f"prefect.flow-run.{state}" for state in _TROUBLED_STATES},
            match={"prefect.resource.id": "prefect.flow-run.*"},
            match_related=_INGEST,
            for_each={"prefect.resource.id"},
            threshold=1,
            within=timedelta(0),
        ),
        actions=[DoNothing()],
    )


def _send_for_help(deployment_id: UUID) -> AutomationCore:
    return AutomationCore(
        name=OLD_QUEUES,
        description=(
            "Starts one more `process` when something waits longer than "
            "PENSTOCK_QUEUE_AGE_SECONDS; the deployment's concurrency limit is the most there are."
        ),
        tags=[TAG],
        trigger=EventTrigger(
            posture=Posture.Reactive,
            expect={QUEUE_OLD},
            match={"prefect.resource.id": "penstock.queue.*"},
            threshold=1,
            within=timedelta(0),
        ),
        actions=[RunDeployment(source="selected", deployment_id=deployment_id)],
    )


def _recover_crashed(deployment_id: UUID) -> AutomationCore:
    """Not of `recover` itself: it would be started for ever where no flow run lives."""
    names = {"prefect.resource.role": "flow", "prefect.resource.name": list(RESTARTED)}
    return AutomationCore(
        name=CRASHED,
        description=(
            "Starts `recover` as soon as a flow run has crashed: it takes back what its process "
            "held when the leases end, and starts the flow run again, a few times at most."
        ),
        tags=[TAG],
        trigger=EventTrigger(
            posture=Posture.Reactive,
            expect={"prefect.flow-run.Crashed"},
            match={"prefect.resource.id": "prefect.flow-run.*"},
            match_related=names,
            for_each={"prefect.resource.id"},
            threshold=1,
            within=timedelta(0),
        ),
        actions=[RunDeployment(source="selected", deployment_id=deployment_id)],
    )


def _update(automation: AutomationCore, *, enabled: bool) -> AutomationCore:
    """With every field set, since an update sends no defaults; but the owner it may not name."""
    values = automation.model_dump(exclude={"owner_resource"})
    return AutomationCore.model_validate({**values, "enabled": enabled})
