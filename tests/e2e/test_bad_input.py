"""What people really give it, and what they are told."""

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

from tests.e2e.commands import CommandLine, Done, end

PROSE = "A keeper of weirs explains, at some length, how water is held back and when it is let go. "


def good(folder: Path, name: str = "good.txt") -> Path:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(PROSE * 3)
    return folder


def wait_for(condition: Callable[[], bool], seconds: float = 180) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.05)


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


def slow_folder(folder: Path, count: int = 400) -> Path:
    """Enough documents to be in the middle of for a while."""
    folder.mkdir()
    for number in range(count):
        words = " ".join(f"word{number}x{place}" for place in range(1000))
        (folder / f"{number:04}.html").write_text(f"<article><p>{words}</p></article>")
    return folder


def test_a_second_run_of_the_same_source_is_refused_while_the_first_goes_on(
    penstock: CommandLine, tmp_path: Path
) -> None:
    folder = slow_folder(tmp_path / "docs")
    first = penstock.start("ingest", folder, "--json")
    wait_for(lambda: bool(penstock.run("runs", "--json").json))

    second = penstock.run("ingest", folder, "--json")
    out, err = first.communicate(timeout=120)

    assert second.code == 1, (second, out, err)
    assert second.json["status"] == "refused"
    assert "run 1 " in second.json["error"]
    assert first.returncode == 0
    assert '"status": "finished"' in out


SMALL_STEPS = {"PENSTOCK_BATCH_SIZE": "10"}


def interrupted(penstock: CommandLine, folder: Path, number: signal.Signals) -> Done:
    slowed = CommandLine(penstock.home, penstock.api_url, SMALL_STEPS)
    first = slowed.start("ingest", folder, "--json")
    wait_for(lambda: penstock.run("status", "--json").json["work"]["complete"] > 0)
    return end(first, number)


def test_a_run_that_was_told_to_stop_is_gone_on_with_by_the_next_start(
    penstock: CommandLine, tmp_path: Path
) -> None:
    folder = slow_folder(tmp_path / "docs")
    stopped = interrupted(penstock, folder, signal.SIGTERM)

    again = penstock.run("ingest", folder, "--json")

    assert stopped.code != 0
    assert again.json["run_id"] == 1
    assert again.json["counts"]["ready"] == 400


def test_an_interrupted_run_is_aborted_and_the_next_one_takes_its_documents(
    penstock: CommandLine, tmp_path: Path
) -> None:
    folder = slow_folder(tmp_path / "docs")
    stopped = interrupted(penstock, folder, signal.SIGINT)

    again = penstock.run("ingest", folder, "--json")

    assert stopped.code == 1
    assert stopped.json["status"] == "aborted"
    runs = penstock.run("runs", "--json").json
    assert [run["status"] for run in runs] == ["finished", "aborted"]
    assert sum(runs[1]["counts"].values()) <= 400
    assert again.json["counts"]["ready"] + again.json["counts"]["skipped"] == 400


def test_a_killed_run_is_taken_up_again_and_loses_nothing(
    penstock: CommandLine, tmp_path: Path
) -> None:
    folder = slow_folder(tmp_path / "docs")
    short = {
        "PENSTOCK_LEASE_SECONDS": "2",
        "PENSTOCK_HEARTBEAT_SECONDS": "0.5",
        "PENSTOCK_SWEEP_SECONDS": "0.5",
        **SMALL_STEPS,
    }
    line = CommandLine(penstock.home, penstock.api_url, short)
    first = line.start("ingest", folder, "--json")
    wait_for(lambda: line.run("status", "--json").json["work"]["complete"] > 0)
    end(first, signal.SIGKILL)
    time.sleep(2.1)  # the lease itself, not a guess: two seconds and a bit

    again = line.run("ingest", folder, "--json")

    assert again.json["run_id"] == 1
    assert again.json["counts"] == {
        "ready": 400,
        "error": 0,
        "skipped": 0,
        "expired": 0,
        "pending": 0,
    }
    assert line.run("status", "--json").json["work"]["processing"] == 0
