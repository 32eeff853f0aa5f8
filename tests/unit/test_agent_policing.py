"""The policy thread: when it writes, what it answers, and what it does after a failure."""

import asyncio
import threading
from collections.abc import AsyncIterator, Sequence
from functools import partial

import pytest
import pytest_asyncio

from flock.agent.policing import Policing
from flock.api.network_policy import NetworkPolicy
from flock.errors import FlockError, IOFailure, TryAgain
from flock.policy.changes import Known
from flock.policy.explain import Direction
from flock.policy.plan import FRAME
from flock.policy.select import Rulings
from flock.policy.world import Member
from flock.testing.wait import await_until

SERVER = Member(namespace="blue", name="server", interface="flk1", addresses=(b"\n\0\0\1",))
CLOSED = NetworkPolicy(namespace="blue", name="closed", ingress=())


class Written:
    """Takes what is written and fails when it is told to; what it has is never asked of it but as ``known``."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.commits: list[tuple[bytes, ...]] = []
        self.failing: list[FlockError] = []
        self.known = Known()
        self.whole: list[bool] = []
        self.gate: threading.Event | None = None
        self.closed = 0

    def observe(self, whole: bool) -> Known:
        self.whole.append(whole)
        return self.known

    def commit(self, requests: Sequence[bytes]) -> None:
        if self.gate is not None:
            assert self.gate.wait(10.0)
        if self.failing:
            raise self.failing.pop(0)
        if requests:
            self.commits.append(tuple(requests))

    async def load(self, text: str) -> None:
        self.texts.append(text)

    async def make(self) -> None:
        self.texts.append("make")

    def close(self) -> None:
        self.closed += 1


class Told:
    """Keeps what was answered."""

    def __init__(self) -> None:
        self.answers: list[FlockError | None] = []

    def __call__(self, error: FlockError | None) -> None:
        self.answers.append(error)


@pytest_asyncio.fixture
async def table() -> Written:
    return Written()


@pytest_asyncio.fixture
async def policing(table: Written) -> AsyncIterator[Policing]:
    made = Policing(table, asyncio.get_running_loop())
    made.start()
    yield made
    await asyncio.to_thread(made.stop)


async def settled(policing: Policing) -> FlockError | None:
    """Everything that was posted before is done."""
    told = Told()
    policing.post(lambda _: None, told)
    await await_until(lambda: told.answers)
    return told.answers[0]


async def test_nothing_is_written_before_everything_is_known(policing: Policing, table: Written) -> None:
    policing.post(lambda rulings: rulings.put_member(SERVER))
    assert isinstance(await settled(policing), TryAgain)
    assert table.texts == []
    policing.begin()
    assert await settled(policing) is None
    assert table.texts[0] == "make"
    assert "flk1" in str(table.commits)


async def test_what_comes_together_is_one_transaction(policing: Policing, table: Written) -> None:
    policing.begin()
    await settled(policing)
    before = len(table.commits)
    table.gate = threading.Event()
    policing.post(lambda rulings: rulings.put_member(SERVER))
    for number in range(2, 30):
        other = Member(namespace="blue", name=f"pod-{number}", interface=f"flk{number}",
                       addresses=(bytes([10, 0, 0, number]),))
        policing.post(lambda rulings, other=other: rulings.put_member(other))  # type: ignore[misc]
    table.gate.set()
    await settled(policing)
    assert len(table.commits) - before <= 2


async def test_the_first_to_see_to_his_sees_to_all_that_are_prepared(policing: Policing, table: Written) -> None:
    policing.begin()
    await settled(policing)
    before = len(table.commits)
    members = [Member(namespace="blue", name=f"pod-{number}", interface=f"flk{number}") for number in range(20)]
    prepared = [policing.prepare(partial(put, member)) for member in members]
    for see_to in prepared:
        await asyncio.to_thread(see_to)
    assert len(table.commits) == before + 1
    assert all(f"flk{number}" in str(table.commits[-1]) for number in range(20))


async def test_what_is_prepared_before_everything_is_known_is_to_be_tried_again(policing: Policing) -> None:
    with pytest.raises(TryAgain, match="policies are not known yet"):
        await asyncio.to_thread(policing.prepare(partial(put, SERVER)))


def put(member: Member, rulings: Rulings) -> None:
    rulings.put_member(member)


async def test_what_isn_t_urgent_is_written_soon(policing: Policing, table: Written) -> None:
    policing.begin()
    await settled(policing)
    told = Told()
    policing.post(partial(put, SERVER), told, urgent=False)
    await await_until(lambda: told.answers == [None])
    assert "flk1" in str(table.commits[-1])


async def test_a_pod_that_comes_needs_no_program(policing: Policing, table: Written) -> None:
    policing.post(lambda rulings: rulings.put_policy(CLOSED))
    policing.post(lambda rulings: rulings.put_member(SERVER))
    policing.begin()
    await settled(policing)
    before = len(table.texts)
    other = Member(namespace="blue", name="other", interface="flk2", addresses=(b"\n\0\0\2",))
    policing.post(lambda rulings: rulings.put_member(other))
    assert await settled(policing) is None
    assert len(table.texts) == before


async def test_a_refused_change_is_written_anew_at_once(policing: Policing, table: Written) -> None:
    policing.begin()
    await settled(policing)
    table.failing = [IOFailure("the table is gone")]
    policing.post(lambda rulings: rulings.put_member(SERVER))
    assert await settled(policing) is None
    assert table.texts.count("make") == 2
    assert policing.error == ""


async def test_what_can_t_be_written_is_told_and_tried_again(policing: Policing, table: Written) -> None:
    policing.begin()
    await settled(policing)
    told = Told()
    table.failing = [IOFailure("no nftables")] * 3
    policing.post(lambda rulings: rulings.put_member(SERVER), told)
    await await_until(lambda: told.answers)
    assert "no nftables" in str(told.answers[0])
    # Nobody posts anything more.
    await await_until(lambda: not policing.error)
    assert "flk1" in str(table.commits[-1])


async def test_what_was_posted_is_written_before_the_end(policing: Policing, table: Written) -> None:
    policing.begin()
    told = Told()
    policing.post(lambda rulings: rulings.put_member(SERVER), told)
    await asyncio.to_thread(policing.stop)
    assert told.answers == [None]
    assert table.closed == 1


@pytest.mark.parametrize("whole", [True, False])
async def test_a_look_finds_what_differs_and_nothing_else(policing: Policing, table: Written, *, whole: bool) -> None:
    policing.begin()
    await settled(policing)
    table.known = FRAME
    policing.look(whole=whole)
    await settled(policing)
    assert table.whole[-1] is whole
    assert table.texts.count("make") == 1
    table.known = Known()
    policing.look(whole=whole)
    await settled(policing)
    assert table.texts.count("make") == 2


async def test_whoever_asks_is_shown_the_world(policing: Policing) -> None:
    policing.post(lambda rulings: rulings.put_policy(CLOSED))
    policing.post(lambda rulings: rulings.put_member(SERVER))
    world = await asyncio.to_thread(policing.world)
    assert list(world.policies) == [("blue", "closed")]
    assert list(world.subjects()) == [SERVER]


async def test_a_fault_of_flock_ends_nothing(policing: Policing, table: Written) -> None:
    policing.begin()
    await settled(policing)
    told, table.gate = Told(), threading.Event()
    policing.post(lambda rulings: rulings.put_member(SERVER))
    policing.post(lambda rulings: rulings.remove_policy(()), told)  # type: ignore[arg-type]
    policing.post(lambda rulings: rulings.put_policy(CLOSED))
    table.gate.set()
    assert await settled(policing) is None
    assert "flock failed to decide policy" in str(told.answers[0])
    assert "flk1" in str(table.commits)
    assert "in_" in table.texts[-1]


def test_the_frame_has_no_pods() -> None:
    assert FRAME.entries == {direction: {} for direction in Direction}
