"""Many sessions at once: threads that start together and are all awaited."""

from __future__ import annotations

import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Callable

import psycopg

RACE_S = 120.0


def race(work: list[Callable[[], object]], timeout_s: float = RACE_S) -> list[object]:
    """Runs all of `work` at once from one starting line. Results in order; an exception is a result."""
    line = threading.Barrier(len(work), timeout=timeout_s)

    def run(fn):
        try:
            line.wait()
            return fn()
        except Exception as error:  # handed to the test, which decides what it means
            return error

    with ThreadPoolExecutor(len(work)) as pool:
        futures = [pool.submit(run, fn) for fn in work]
        return [future.result(timeout_s) for future in futures]


def failures(results: list[object]) -> list[str]:
    """What failed, readable: SQLSTATE and message."""
    return [
        f"{getattr(result, 'sqlstate', None) or type(result).__name__}: {result}"
        for result in results
        if isinstance(result, Exception)
    ]


class Retries:
    """What the server told a client to run again, counted. Wraps calls as a client's retry loop does."""

    STATES = ("40001", "40P01", "23505")

    def __init__(self, attempts_max: int = 1000):
        self.attempts_max = attempts_max
        self.counts: Counter[str] = Counter()
        self._lock = threading.Lock()

    def __call__(self, fn: Callable[..., object], *args):
        for _ in range(self.attempts_max):
            try:
                return fn(*args)
            except psycopg.Error as error:
                if error.sqlstate not in self.STATES:
                    raise
                with self._lock:
                    self.counts[error.sqlstate] += 1
        raise AssertionError(f"no success in {self.attempts_max} attempts: {dict(self.counts)}")


@contextmanager
def sessions(connect: Callable[..., psycopg.Connection], count: int, level: str | None = None, **kw):
    """`count` open connections; `level`: their default isolation, as a server's or role's setting."""
    if level:
        kw["settings"] = {**kw.get("settings", {}), "default_transaction_isolation": level}
    opened: list[psycopg.Connection] = []
    try:
        for _ in range(count):
            opened.append(connect(**kw))
        yield opened
    finally:
        for conn in opened:
            conn.close()


class Background:
    """A call that runs beside the test, because it is meant to wait for something."""

    def __init__(self, fn: Callable[[], object]):
        self._result: object = None
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, args=(fn,), daemon=True)
        self._thread.start()

    def _run(self, fn):
        try:
            self._result = fn()
        except BaseException as error:
            self._error = error

    @property
    def done(self) -> bool:
        return not self._thread.is_alive()

    def result(self, timeout_s: float = 30.0):
        self._thread.join(timeout_s)
        if self._thread.is_alive():
            raise AssertionError(f"the call did not come back within {timeout_s} s")
        if self._error:
            raise self._error
        return self._result

    def error(self, timeout_s: float = 30.0) -> psycopg.Error:
        """The database error the call must have ended with."""
        try:
            result = self.result(timeout_s)
        except psycopg.Error as error:
            return error
        raise AssertionError(f"the call gave {result!r} where an error was due")


class Until:
    """Loops beside the test: each body again and again until the block ends; `turns` counts, also
    meanwhile. An error of a body ends the test."""

    def __init__(self, *bodies: Callable[[], object]):
        self._stop = threading.Event()
        self._bodies = bodies
        self.turns = [0] * len(bodies)

    def __enter__(self):
        self._loops = [Background(lambda i=i: self._loop(i)) for i in range(len(self._bodies))]
        return self

    def _loop(self, index: int) -> None:
        while not self._stop.is_set():
            self._bodies[index]()
            self.turns[index] += 1

    def __exit__(self, kind, *_rest):
        self._stop.set()
        broken = []
        for loop in self._loops:
            try:
                loop.result(RACE_S)
            except BaseException as error:
                broken.append(error)
        if broken and kind is None:
            raise broken[0]
        return False


def now() -> float:
    """For the order of observations, which all come from this process."""
    return time.monotonic()
