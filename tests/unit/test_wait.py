"""flock.testing.wait: answers are handed out, deadlines name what never came."""

import asyncio

import pytest

from flock.testing.wait import WaitTimeout, await_until, wait_until


def test_the_answer_is_handed_out() -> None:
    answers = iter([0, None, "", "here"])
    assert wait_until(lambda: next(answers)) == "here"


def test_the_deadline_names_what_was_awaited() -> None:
    with pytest.raises(WaitTimeout) as caught:
        wait_until(lambda: False, deadline=0.0, what="the moon")
    assert "the moon" in str(caught.value)


def test_an_error_that_is_forgiven_is_told_at_the_end() -> None:
    def refuse() -> bool:
        raise ConnectionRefusedError("nobody home")

    with pytest.raises(WaitTimeout) as caught:
        wait_until(refuse, deadline=0.0, forgive=(ConnectionRefusedError,))
    assert "nobody home" in str(caught.value)


def test_an_error_that_is_not_forgiven_passes() -> None:
    def refuse() -> bool:
        raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        wait_until(refuse, forgive=(OSError,))


async def test_the_loop_runs_between_two_questions() -> None:
    event = asyncio.Event()
    asyncio.get_running_loop().call_later(0.01, event.set)
    assert await await_until(event.is_set)


async def test_a_coroutine_may_be_asked() -> None:
    async def answer() -> int:
        return 7

    assert await await_until(answer) == 7
