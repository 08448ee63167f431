"""An installation keeps its ports from start to start."""

import socket
from pathlib import Path

import pytest

from penstock.local.ports import Ports
from penstock.local.processes import free_port

pytestmark = pytest.mark.full_suite


def test_a_part_keeps_the_port_of_its_first_start(tmp_path: Path) -> None:
    preferred, said = free_port(), list[str]()
    ports = Ports(tmp_path / "ports.json", said.append)
    assert ports.choose("prefect", preferred) == preferred
    any_free = ports.choose("valkey")
    again = Ports(tmp_path / "ports.json", said.append)
    assert again.choose("prefect", free_port()) == preferred
    assert again.choose("valkey") == any_free
    assert said == []


def test_a_port_that_another_program_has_taken_is_left_to_it_and_told(tmp_path: Path) -> None:
    said: list[str] = []
    ports = Ports(tmp_path / "ports.json", said.append)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        ports.keep("prefect", port)
        moved = ports.choose("prefect")
    assert said == [f"port {port} is taken by another program: prefect is at port {moved} now"]
    assert ports.choose("prefect") == moved, "and stays there"


def test_a_file_that_cannot_be_understood_is_as_good_as_none(tmp_path: Path) -> None:
    path = tmp_path / "ports.json"
    path.write_text("[1]")
    assert Ports(path, print).last("prefect") is None
    port = Ports(path, print).choose("prefect")
    assert Ports(path, print).last("prefect") == port
