"""What people really give it, and what they are told."""

import os
import signal
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from penstock.testing import GroqServer, Reply, hang
from tests.e2e.commands import CommandLine, Done, end
from tests.together import wait_until

PROSE = "A keeper of weirs explains, at some length, how water is held back and when it is let go. "
DOCUMENTS = 40


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

    told = CommandLine(tmp_path / "file" / "home", penstock.api_url).run_in(tmp_path, "status")

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
    from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
    from threading import Thread

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
        told = CommandLine(penstock.home, penstock.api_url, allowed).run("ingest", urls, "--json")
        forbidden = CommandLine(tmp_path / "other", penstock.api_url).run("ingest", urls, "--json")
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


def test_a_run_that_was_told_to_stop_is_gone_on_with_by_the_next_start(
    slow: CommandLine, models: GroqServer, tmp_path: Path
) -> None:
    folder = many(tmp_path / "docs")
    stopped = interrupt(slow, models, folder, signal.SIGTERM)

    again = slow.run("ingest", folder, "--json")

    assert stopped.code != 0
    assert again.json["run_id"] == 1
    assert again.json["counts"]["ready"] == DOCUMENTS


def test_an_interrupted_run_is_aborted_and_the_next_one_takes_its_documents(
    slow: CommandLine, models: GroqServer, tmp_path: Path
) -> None:
    folder = many(tmp_path / "docs")
    stopped = interrupt(slow, models, folder, signal.SIGINT)

    again = slow.run("ingest", folder, "--json")

    assert stopped.code == 1
    assert stopped.json["status"] == "aborted"
    runs = slow.run("runs", "--json").json
    assert [run["status"] for run in runs] == ["finished", "aborted"]
    assert sum(runs[1]["counts"].values()) <= DOCUMENTS
    assert again.json["counts"]["ready"] + again.json["counts"]["skipped"] == DOCUMENTS


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
