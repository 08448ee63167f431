"""What people really give it, and what they are told."""

import json
import os
import signal
import time
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Event, Thread

import pytest

from penstock.testing import GroqServer, Reply, hang
from tests.e2e.commands import LIMIT_SECONDS, CommandLine, Done, end
from tests.preloaded import Started
from tests.together import wait_until

PROSE = "A keeper of weirs explains, at some length, how water is held back and when it is let go. "
DOCUMENTS = 40
# One second and five are promised; ten times as much on a machine that other programs keep busy.
SAID_SECONDS, ENDED_SECONDS = 10.0, 50.0
STOPPING = "stopping, a second Ctrl-C stops at once"


def good(folder: Path, name: str = "good.txt") -> Path:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(PROSE * 3)
    return folder


def test_a_missing_path_is_wrong_use_and_is_named(penstock: CommandLine) -> None:
    told = penstock.run("ingest", "/no/such/path")

    assert told.code == 2
    assert "/no/such/path" in told.err


def test_a_source_that_cannot_be_used_is_told_in_the_shape_of_a_report(
    penstock: CommandLine,
) -> None:
    told = penstock.run("ingest", "/no/such/path", "--json")

    assert told.code == 2
    assert told.json["status"] == "error"
    assert "/no/such/path" in told.json["error"]
    assert {"run_id", "counts", "llm_calls", "tokens", "cost_usd", "seconds"} <= set(told.json)


def test_a_home_that_cannot_be_made_is_named(penstock: CommandLine, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")

    told = CommandLine(tmp_path / "file" / "home", penstock.prefect).run_in(tmp_path, "status")

    assert told.code == 1
    assert "PENSTOCK_HOME" in told.err
    assert "Traceback" not in told.err


def test_a_url_list_that_was_damaged_expires_nothing(penstock: CommandLine, tmp_path: Path) -> None:
    urls = tmp_path / "urls.txt"
    urls.write_text("http://127.0.0.1:9/a\n")
    penstock.run("ingest", urls)
    urls.write_text("htps://127.0.0.1:9/a\n")

    told = penstock.run("ingest", urls)

    assert told.code == 2
    assert "was ingested as a url_list before" in told.err


def test_an_unknown_profile_is_wrong_use_and_the_known_ones_are_named(
    penstock: CommandLine, tmp_path: Path
) -> None:
    told = penstock.run("ingest", good(tmp_path / "docs"), "--profile", "poem")

    assert told.code == 2
    assert "job_posting" in told.err


def test_a_misspelt_setting_stops_the_start(penstock: CommandLine) -> None:
    told = CommandLine(penstock.home, settings={"PENSTOCK_TENNANT": "x"}).run("status")

    assert told.code == 1
    assert "PENSTOCK_TENNANT" in told.err


def test_an_empty_folder_finishes_with_no_documents(penstock: CommandLine, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()

    told = penstock.run("ingest", tmp_path / "empty", "--json")

    assert told.code == 0
    assert set(told.json["counts"].values()) == {0}


def test_bad_files_are_errors_of_their_own_and_the_rest_goes_on(
    penstock: CommandLine, tmp_path: Path
) -> None:
    folder = good(tmp_path / "docs")
    (folder / "zero.pdf").write_bytes(b"")
    (folder / "latin.txt").write_bytes(("Überlauf und Schütz: " + PROSE * 2).encode("latin-1"))
    (folder / "noise.bin").write_bytes(bytes(range(256)) * 50)
    with (folder / "huge.txt").open("wb") as huge:
        huge.truncate(200 * 1024 * 1024)
    os.mkfifo(folder / "pipe.txt")
    (folder / "dangling.txt").symlink_to(folder / "nowhere")
    (folder / "loop").symlink_to(folder)

    told = penstock.run("ingest", folder, "--json")

    assert told.code == 0, told.err
    documents = penstock.run("run", str(told.json["run_id"]), "--json").json["documents"]
    by_name = {line["external_id"]: line for line in documents}
    assert {name for name, line in by_name.items() if line["status"] == "ready"} == {
        "good.txt",
        "latin.txt",
    }
    assert by_name["zero.pdf"]["error_class"] == "empty"
    assert by_name["huge.txt"]["error_class"] == "too_large"
    assert "PENSTOCK_MAX_DOCUMENT_BYTES" in by_name["huge.txt"]["reason"]
    assert by_name["noise.bin"]["error_class"] == "unsupported"
    assert by_name["pipe.txt"]["error_class"] == "unsupported"
    assert by_name["dangling.txt"]["status"] == "error"
    assert told.json["counts"]["error"] == 5
    text = penstock.run("show", by_name["latin.txt"]["node_id"], "--json").json["text"]
    assert "Überlauf und Schütz" in text


def test_a_url_that_is_not_there_is_an_error_of_that_document(
    penstock: CommandLine, tmp_path: Path
) -> None:
    class Site(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            found = self.path == "/here"
            body = f"<p>{PROSE * 3}</p>".encode()
            self.send_response(200 if found else 404)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(body if found else b"")

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Site)
    Thread(target=server.serve_forever, daemon=True).start()
    try:
        base = f"http://127.0.0.1:{server.server_address[1]}"
        urls = tmp_path / "urls.txt"
        urls.write_text(f"# two pages\n{base}/here\n{base}/gone\n")
        allowed = {"PENSTOCK_ALLOW_PRIVATE_ADDRESSES": "true", "PENSTOCK_CRAWL_DELAY_SECONDS": "0"}
        told = CommandLine(penstock.home, penstock.prefect, allowed).run("ingest", urls, "--json")
        forbidden = CommandLine(tmp_path / "other", penstock.prefect).run("ingest", urls, "--json")
    finally:
        server.shutdown()
        server.server_close()

    assert told.json["counts"] == {"ready": 1, "error": 1, "skipped": 0, "expired": 0, "pending": 0}
    assert forbidden.json["counts"]["error"] == 2


def test_a_site_that_cannot_be_listed_is_a_failed_run_not_an_empty_one(
    penstock: CommandLine,
) -> None:
    told = penstock.run("ingest", "http://127.0.0.1:9/", "--json")

    assert told.code == 1
    assert told.json["status"] == "error"
    assert "PENSTOCK_ALLOW_PRIVATE_ADDRESSES" in told.json["error"]


def test_a_database_of_a_newer_version_is_refused(penstock: CommandLine) -> None:
    penstock.run("status")
    import sqlite3

    with sqlite3.connect(penstock.home / "penstock.db") as connection:
        connection.execute("UPDATE alembic_version SET version_num = '9999'")
    connection.close()

    told = penstock.run("status")

    assert told.code == 1
    assert "newer" in told.err
    assert "upgrade Penstock" in told.err


# In the middle of a run, which lasts because its models take their time.


@pytest.fixture
def models() -> Iterator[GroqServer]:
    with GroqServer() as models:
        models.always(None, Reply().after(0.5))
        yield models


@pytest.fixture
def slow(penstock: CommandLine, models: GroqServer, tmp_path: Path) -> CommandLine:
    settings = {
        "PREFECT_HOME": str(tmp_path / "prefect"),  # nothing is cached from before
        "GROQ_API_KEY": "gsk_stand-in",
        "EXTRACTION_BASE_URL": models.base_url,
        "EXTRACTION_CONCURRENCY": "2",
        "PENSTOCK_BATCH_SIZE": "5",
    }
    return replace(penstock, settings=settings)


def many(folder: Path) -> Path:
    """Documents for seconds of work."""
    folder.mkdir()
    for number in range(DOCUMENTS):
        (folder / f"{number}.txt").write_text(f"{PROSE * 2} This is number {number}.")
    return folder


def interrupt(slow: CommandLine, models: GroqServer, folder: Path, number: signal.Signals) -> Done:
    """A run that gets this signal when some of its documents are done; models are quick then."""
    first = slow.start("ingest", folder, "--json")
    wait_until(lambda: models.count(status=200) > 4)
    ended = end(first, number)
    assert models.count(status=200) < DOCUMENTS, "the run was over before the signal came"
    models.always(None, Reply())
    return ended


def test_a_second_run_of_the_same_source_is_refused_while_the_first_goes_on(
    slow: CommandLine, models: GroqServer, tmp_path: Path
) -> None:
    folder = many(tmp_path / "docs")
    models.always(None, hang(), when="number 39")
    first = slow.start("ingest", folder, "--json")
    wait_until(lambda: models.count() > 0)

    second = slow.run("ingest", folder, "--json")
    ended = end(first, signal.SIGKILL)

    assert second.code == 1, (second, ended)
    assert second.json["status"] == "refused"
    assert "run 1 " in second.json["error"]


def hung(slow: CommandLine, models: GroqServer, folder: Path) -> Started:
    """A run with some documents done, and models that say no more to what they were asked."""
    started = slow.start("ingest", folder, "--json")
    wait_until(lambda: models.count(status=200) > 4)
    models.always(None, hang())
    wait_until(lambda: models.count() - models.count(status=200) >= 2)
    return started


def hear(started: Started, sentence: str) -> None:
    """Wait until it says so on standard error."""
    for line in started.stderr:
        if sentence in line:
            return
    pytest.fail(f"it never said: {sentence}")


def check_taken_up(slow: CommandLine, *command: str | Path) -> None:
    """The same run is gone on with, and ends with exact counts."""
    again = slow.run(*command, "--json")

    assert again.code == 0, again
    assert again.json["run_id"] == 1
    assert again.json["status"] == "finished"
    assert again.json["counts"] == {
        "ready": DOCUMENTS,
        "error": 0,
        "skipped": 0,
        "expired": 0,
        "pending": 0,
    }
    assert slow.run("status", "--json").json["work"]["processing"] == 0


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)], ids=["SIGINT", "SIGTERM"]
)
def test_an_interrupted_run_stops_soon_and_is_resumed(
    slow: CommandLine, models: GroqServer, tmp_path: Path, number: signal.Signals, code: int
) -> None:
    started = hung(slow, models, many(tmp_path / "docs"))

    began = time.monotonic()
    started.send_signal(number)
    hear(started, STOPPING)
    said_after = time.monotonic() - began
    out, err = started.communicate(timeout=LIMIT_SECONDS)
    ended_after = time.monotonic() - began

    assert said_after < SAID_SECONDS
    assert ended_after < ENDED_SECONDS
    assert started.wait() == code, err
    assert "Traceback" not in err
    told = json.loads(out)
    assert told["status"] == "ingesting"
    assert "penstock resume 1" in told["error"]
    assert slow.run("runs", "--json").json[0]["status"] == "ingesting"
    assert slow.run("status", "--json").json["work"]["processing"] == 0, "all was given back"
    models.always(None, Reply())
    check_taken_up(slow, "resume", "1")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_run_is_gone_on_with_by_the_next_ingest_of_its_source(
    slow: CommandLine, models: GroqServer, tmp_path: Path, number: signal.Signals
) -> None:
    folder = many(tmp_path / "docs")
    stopped = interrupt(slow, models, folder, number)

    assert stopped.code == 128 + number, stopped
    check_taken_up(slow, "ingest", folder)


@pytest.fixture
def slow_site() -> Iterator[tuple[str, Event]]:
    """A site that gives five pages and holds back the others until the event is set."""
    released = Event()

    class Site(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            number = self.path.rpartition("/")[2]
            if number.isdigit() and int(number) >= 5:
                released.wait(60)
            self.send_response(200 if number.isdigit() else 404)
            self.send_header("Content-Type", "text/plain")
            self.end_headers()
            if number.isdigit():
                self.wfile.write(f"{PROSE * 2} This is number {number}.".encode())

        def log_message(self, *_: object) -> None:
            pass

    class Server(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, *_: object) -> None:
            """Whoever asked was ended, and is not there any more."""

    server = Server(("127.0.0.1", 0), Site)
    Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}", released
    released.set()
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize("second", [False, True], ids=["one interrupt", "two interrupts"])
def test_what_cannot_be_cut_off_is_not_waited_for_and_the_run_is_resumed(
    slow: CommandLine,
    models: GroqServer,
    slow_site: tuple[str, Event],
    tmp_path: Path,
    second: bool,
) -> None:
    url, released = slow_site
    allowed = {"PENSTOCK_ALLOW_PRIVATE_ADDRESSES": "true", "PENSTOCK_CRAWL_DELAY_SECONDS": "0"}
    line = replace(slow, settings=slow.settings | allowed)
    urls = tmp_path / "urls.txt"
    urls.write_text("".join(f"{url}/{number}\n" for number in range(DOCUMENTS)))
    started = line.start("ingest", urls)
    wait_until(lambda: models.count() >= 1)

    began = time.monotonic()
    started.send_signal(signal.SIGINT)
    if second:
        hear(started, STOPPING)
        started.send_signal(signal.SIGINT)
    _, err = started.communicate(timeout=LIMIT_SECONDS)

    assert time.monotonic() - began < ENDED_SECONDS
    assert started.wait() == 130, err
    assert "penstock resume 1" in err
    released.set()
    models.always(None, Reply())
    check_taken_up(line, "resume", "1")


def test_a_run_whose_start_is_interrupted_is_resumed(
    slow: CommandLine, models: GroqServer, tmp_path: Path
) -> None:
    """While the command waits for the Prefect server that it starts, nothing is begun yet."""
    models.always(None, Reply())
    own = {name: value for name, value in slow.settings.items() if name != "PREFECT_HOME"}
    alone = replace(slow, prefect=None, settings=own)
    started = alone.start("ingest", many(tmp_path / "docs"))
    hear(started, "starting the Prefect server")

    began = time.monotonic()
    started.send_signal(signal.SIGINT)
    _, err = started.communicate(timeout=LIMIT_SECONDS)

    assert time.monotonic() - began < ENDED_SECONDS
    assert started.wait() == 130, err
    assert STOPPING in err
    assert "penstock resume 1" in err
    check_taken_up(slow, "resume", "1")
    alone.run("down")


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)], ids=["SIGINT", "SIGTERM"]
)
def test_an_interrupted_backfill_stops_soon_and_is_gone_on_with(
    slow: CommandLine, models: GroqServer, tmp_path: Path, number: signal.Signals, code: int
) -> None:
    models.always(None, Reply())
    assert slow.run("ingest", many(tmp_path / "docs")).code == 0
    asked = models.count()
    models.always(None, hang())
    later = replace(slow, settings=slow.settings | {"EXTRACTION_VERSION": "2.0.0"})
    started = later.start("backfill", "--reason", "outdated")
    wait_until(lambda: models.count() > asked)

    began = time.monotonic()
    started.send_signal(number)
    hear(started, STOPPING)
    out, err = started.communicate(timeout=LIMIT_SECONDS)

    assert time.monotonic() - began < ENDED_SECONDS
    assert started.wait() == code, err
    assert "the same command goes on" in err
    assert "Traceback" not in err
    assert out == ""
    assert later.run("status", "--json").json["work"]["processing"] == 0, "all was given back"
    models.always(None, Reply())
    again = later.run("backfill", "--reason", "outdated", "--json")
    assert (again.code, again.json["enqueued"]) == (0, DOCUMENTS), again
    assert again.json["id"] == 1


def test_a_killed_run_is_taken_up_again_and_loses_nothing(
    slow: CommandLine, models: GroqServer, tmp_path: Path
) -> None:
    folder = many(tmp_path / "docs")
    short = {
        "PENSTOCK_LEASE_SECONDS": "2",
        "PENSTOCK_HEARTBEAT_SECONDS": "0.5",
        "PENSTOCK_SWEEP_SECONDS": "0.5",
    }
    line = replace(slow, settings=slow.settings | short)
    interrupt(line, models, folder, signal.SIGKILL)
    time.sleep(2.1)  # the lease itself, not a guess: two seconds and a bit
    # Those of the next one do not run out, however busy the machine is.
    quick = {"PENSTOCK_SWEEP_SECONDS": "0.5"}
    line = replace(slow, settings=slow.settings | quick)

    again = line.run("ingest", folder, "--json")

    assert again.json["run_id"] == 1
    assert again.json["counts"] == {
        "ready": DOCUMENTS,
        "error": 0,
        "skipped": 0,
        "expired": 0,
        "pending": 0,
    }
    assert line.run("status", "--json").json["work"]["processing"] == 0
