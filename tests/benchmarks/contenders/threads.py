"""The ceiling of jobs that wait: threads that do nothing else, without any queue."""

from __future__ import annotations

import os
import threading
import time

from tests.benchmarks.starts import NAP, record_start

#: The slots of a worker with default settings.
SLOTS = 10


def naps(jobs: int, *, slots: int = SLOTS) -> float:
    """Return how many jobs a second so many threads do, when all they do is the jobs."""

    def work() -> None:
        for number in range(jobs // slots):
            record_start(number)
            time.sleep(NAP)

    threads = [threading.Thread(target=work) for _ in range(slots)]
    began = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return jobs // slots * slots / (time.perf_counter() - began)


if __name__ == "__main__":
    print(naps(int(os.environ["OJS_BENCH_JOBS"])))
