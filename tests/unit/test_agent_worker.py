"""The worker's order: posted jobs in turn, what nobody waits for afterwards, and a failing job stops nothing."""

import logging
import threading

import pytest

from flock.agent.worker import Worker


def test_posted_jobs_come_in_order_and_later_ones_when_none_is_left() -> None:
    worker, done, gate = Worker("t"), list[str](), threading.Event()
    worker.post(lambda: done.append("first" if gate.wait(5.0) else "the gate never opened"))
    worker.later(lambda: done.append("later"))
    worker.post(lambda: done.append("second"))
    worker.start()
    gate.set()
    worker.stop()
    assert done == ["first", "second", "later"]


def test_a_stop_loses_no_job() -> None:
    worker, done = Worker("t"), list[int]()
    for number in range(50):
        (worker.later if number % 2 else worker.post)(lambda number=number: done.append(number))  # type: ignore[misc]
    worker.start()
    worker.stop()
    assert sorted(done) == list(range(50))


def _fail() -> None:
    raise ValueError("as a job may")


def test_a_job_that_fails_is_told_and_the_next_one_runs(caplog: pytest.LogCaptureFixture) -> None:
    worker, done = Worker("t"), list[str]()
    worker.post(_fail)
    worker.post(lambda: done.append("next"))
    with caplog.at_level(logging.ERROR, logger="flock.worker"):
        worker.start()
        worker.stop()
    assert done == ["next"]
    assert "a job of the worker failed" in caplog.text
