"""What the composition root sets for the whole process."""

import subprocess
import sys
from pathlib import Path

import pytest

# Threads that are alive together, each of which takes memory from the C library.
TAKING = """
import ctypes, sys, threading
from penstock.app import share_freed_memory

if sys.argv[1] == "shared":
    share_freed_memory()
everyone = threading.Barrier(4)


def take():
    everyone.wait()
    kept = [b"x" * 5000 for _ in range(100)]
    everyone.wait()


threads = [threading.Thread(target=take) for _ in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
libc = ctypes.CDLL(None)
libc.fopen.restype = ctypes.c_void_p
file = ctypes.c_void_p(libc.fopen(sys.argv[2].encode(), b"w"))
libc.malloc_info(0, file)
libc.fclose(file)
"""


@pytest.mark.parametrize(("memory", "alone"), [("shared", True), ("of their own", False)])
def test_threads_of_a_process_that_ingests_share_memory(
    memory: str, alone: bool, tmp_path: Path
) -> None:
    told = tmp_path / "malloc.xml"
    subprocess.run([sys.executable, "-c", TAKING, memory, str(told)], check=True, timeout=60)
    assert (told.read_text(encoding="utf-8").count("<heap nr=") == 1) is alone
