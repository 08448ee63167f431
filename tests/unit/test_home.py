"""No other account of the machine reads what is in the home folder."""

import errno
import os
from pathlib import Path

import pytest

from penstock import home as home_module
from penstock.app import open_app
from penstock.home import close_home, make_home, make_private_folder
from penstock.settings import load_settings


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


@pytest.fixture(params=["root", "somebody"])
def mode_of_home(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """For root, whose Postgres is another account's, others may enter the home."""
    real = os.geteuid()
    if request.param == "root" and real != 0:
        # What belongs to us is what belongs to root here.
        monkeypatch.setattr(home_module, "_is_root", lambda: True)
    if request.param == "somebody":
        monkeypatch.setattr(home_module, "_is_root", lambda: False)
    return 0o711 if request.param == "root" else 0o700


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


def is_open(path: Path) -> bool:
    return bool(mode(path) & 0o077)


def leave_open(home: Path) -> None:
    """A home as older versions left it."""
    home.mkdir(mode=0o755)
    for name in ("penstock.db", "penstock.db-wal", "penstock.db-shm", "penstock.log"):
        (home / name).touch(mode=0o644)
    for name in ("raw", "logs", "prefect"):
        (home / name).mkdir(mode=0o755)
    for path in (home, *home.iterdir()):
        path.chmod(mode(path) | 0o044)


def test_a_home_is_made_closed(home: Path, mode_of_home: int) -> None:
    make_home(home)
    assert mode(home) == mode_of_home
    make_private_folder(home / "logs")
    assert mode(home / "logs") == 0o700


def test_a_home_that_was_left_open_is_closed(home: Path, mode_of_home: int) -> None:
    leave_open(home)
    close_home(home)
    assert mode(home) == mode_of_home
    assert {mode(path) for path in home.glob("penstock.db*")} == {0o600}
    reachable = home.iterdir() if mode_of_home & 0o011 else ()
    assert not [path for path in reachable if is_open(path)]


@pytest.mark.parametrize("shared_by", ["the sticky bit", "what others have there"])
def test_a_folder_that_is_shared_is_left_as_it_is_but_for_what_is_ours(
    home: Path, mode_of_home: int, shared_by: str
) -> None:
    del mode_of_home
    leave_open(home)
    ours = list(home.iterdir())
    theirs = [home / "www", home / "other.conf", home / "postgresql"]
    if shared_by == "the sticky bit":
        home.chmod(0o1777)
    else:
        home.chmod(0o755)
        for path in theirs:
            path.mkdir()
            path.chmod(0o755)
    before = home.stat().st_mode

    close_home(home)

    assert home.stat().st_mode == before
    assert not [path for path in ours if is_open(path)]
    assert {mode(path) for path in theirs if path.exists()} <= {0o755}


def test_what_file_systems_put_there_themselves_does_not_make_it_shared(
    home: Path, mode_of_home: int
) -> None:
    leave_open(home)
    (home / "lost+found").mkdir()
    close_home(home)
    assert mode(home) == mode_of_home


def test_what_is_no_home_stays_away(home: Path) -> None:
    close_home(home)
    assert not home.exists()
    home.touch()
    close_home(home / "below")


def test_what_a_link_in_it_points_to_is_left_alone(
    home: Path, tmp_path: Path, mode_of_home: int
) -> None:
    del mode_of_home
    make_home(home)
    (tmp_path / "elsewhere").mkdir(mode=0o755)
    (home / "raw").symlink_to(tmp_path / "elsewhere")
    close_home(home)
    assert mode(tmp_path / "elsewhere") == 0o755


def test_the_database_and_the_files_beside_it_are_its_owners_alone(
    home: Path, mode_of_home: int
) -> None:
    del mode_of_home
    before = os.umask(0o022)
    try:
        with open_app(load_settings(home=home)) as app:
            with app.database.read() as tx:
                assert tx.now
            files = {path.name: mode(path) for path in home.glob("penstock.db*")}
            assert {"penstock.db", "penstock.db-wal", "penstock.db-shm"} <= set(files)
            assert set(files.values()) == {0o600}
            key = app.raw.put("acme", "cvs", "1.txt", b"the mill", "txt")
    finally:
        os.umask(before)
    assert (home / key).read_bytes() == b"the mill"
    assert not is_open(home / "raw")
    assert mode(home) in (0o700, 0o711)


def test_a_database_that_was_left_open_is_closed_by_the_next_command(home: Path) -> None:
    open_app(load_settings(home=home)).close()
    for path in (home, home / "penstock.db"):
        path.chmod(mode(path) | 0o044)
    open_app(load_settings(home=home)).close()
    assert mode(home / "penstock.db") == 0o600
    assert not mode(home) & 0o044


def test_a_folder_of_raw_bytes_that_is_named_is_as_others_need_it(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        shared = tmp_path / "shared"
        with open_app(load_settings(home=tmp_path / "home", raw_folder=shared)) as app:
            app.raw.put("acme", "cvs", "1.txt", b"the mill", "txt")
    finally:
        os.umask(before)
    assert mode(shared / "raw") == 0o755


def test_a_home_whose_modes_cannot_be_changed_costs_one_warning(
    home: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    open_app(load_settings(home=home)).close()
    home.chmod(0o755)
    (home / "penstock.db").chmod(0o644)

    def refuse(path: Path, mode: int) -> None:
        raise OSError(errno.EROFS, f"{oct(mode)} is not for a read-only file system", str(path))

    monkeypatch.setattr(Path, "chmod", refuse)
    for _ in range(2):
        with open_app(load_settings(home=home)) as app, app.database.read() as tx:
            assert tx.now

    (warning,) = [one.getMessage() for one in caplog.records if one.name == home_module.__name__]
    assert str(home) in warning
    assert "PENSTOCK_HOME" in warning


def test_one_entry_that_cannot_be_closed_leaves_no_other_open(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    leave_open(home)
    change = Path.chmod

    def refuse_one(path: Path, mode: int) -> None:
        if path.name == "penstock.db":
            raise PermissionError(errno.EPERM, "Operation not permitted", str(path))
        change(path, mode)

    monkeypatch.setattr(Path, "chmod", refuse_one)
    monkeypatch.setattr(home_module, "_is_root", lambda: True)
    close_home(home)
    assert {path.name for path in home.iterdir() if is_open(path)} == {"penstock.db"}
