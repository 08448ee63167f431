"""The seam by which tests make a process fail."""

import errno
import subprocess
import sys
from collections.abc import Iterator

import pytest

from penstock import failpoints
from penstock.errors import ConfigurationError


@pytest.fixture(autouse=True)
def disarmed() -> Iterator[None]:
    yield
    failpoints.arm(None)


def test_nothing_happens_unless_it_is_armed() -> None:
    for point in failpoints.POINTS:
        failpoints.hit(point)


def test_a_fault_happens_once_at_its_time() -> None:
    failpoints.arm("raw.storing=full@2")
    failpoints.hit("raw.storing")
    failpoints.hit("text.begun")
    with pytest.raises(OSError, match="No space left") as caught:
        failpoints.hit("raw.storing")
    assert caught.value.errno == errno.ENOSPC
    failpoints.hit("raw.storing")


def test_several_faults_are_separated_by_commas() -> None:
    assert failpoints.parse("text.begun=kill, embed.computed=stop@7") == {
        "text.begun": failpoints.FailureMode("kill"),
        "embed.computed": failpoints.FailureMode("stop", 7),
    }


@pytest.mark.parametrize(
    "text", ["text.begun", "nowhere=kill", "text.begun=explode", "text.begun=kill@0", ","]
)
def test_what_cannot_happen_is_refused_with_what_can(text: str) -> None:
    with pytest.raises(ConfigurationError, match=r"claim\.uncommitted.*kill, stop, full"):
        failpoints.arm(text)


@pytest.mark.full_suite
def test_kill_is_a_sigkill() -> None:
    code = (
        "from penstock import failpoints as points; "
        "points.arm('text.begun=kill'); points.hit('text.begun')"
    )
    done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True)
    assert done.returncode == -9


def test_a_process_that_will_fail_says_so(caplog: pytest.LogCaptureFixture) -> None:
    failpoints.arm("text.begun=kill")
    assert "this process will fail on purpose: PENSTOCK_FAULTS=text.begun=kill" in caplog.text
