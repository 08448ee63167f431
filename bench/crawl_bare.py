"""What a bare httpx loop reaches: so many threads, one client, every page read once."""

import json
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx

from bench.memory import PeakMemory


def main(urls: list[str], threads: int) -> dict[str, float]:
    limits = httpx.Limits(max_connections=threads, max_keepalive_connections=threads)
    with PeakMemory() as memory, httpx.Client(limits=limits, trust_env=False) as client:

        def get(url: str) -> int:
            return len(client.get(url).raise_for_status().content)

        with ThreadPoolExecutor(threads) as pool:
            started = time.perf_counter()
            total = sum(pool.map(get, urls))
            seconds = time.perf_counter() - started
    return {"seconds": seconds, "peak_mb": memory.peak_mb, "pages": len(urls), "bytes": total}


if __name__ == "__main__":
    print(json.dumps(main(Path(sys.argv[1]).read_text().split(), int(sys.argv[2]))))  # noqa: T201 - read by its caller
