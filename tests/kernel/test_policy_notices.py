"""Which transactions of nftables wake the agent: all of others, none of its own policy thread."""

import select

import pytest

from flock.model.ownership import WORKER_THREAD
from flock.netlink.generations import Generations
from flock.policy.kernel import PolicyTable
from flock.policy.nft_text import TABLE
from flock.policy.plan import plan_ground
from flock.system.threads import name_this_thread
from flock_lab.netns import Netns

pytestmark = pytest.mark.kernel


@pytest.mark.parametrize(("name", "heard"), [(WORKER_THREAD, 0), ("flock-other", 1), ("flock", 1), ("other", 1)])
def test_a_transaction_is_heard_by_the_name_of_its_thread(node: Netns, name: str, heard: int) -> None:
    def change() -> None:
        name_this_thread(name)
        table = PolicyTable()
        table.commit(plan_ground().before)
        table.close()

    node.command("nft", "add", "table", "inet", TABLE)
    generations = node.run(Generations)
    try:
        node.run(change)
        assert generations.read() == heard
        node.command("nft", "delete", "table", "inet", TABLE)
        assert select.select([generations], [], [], 5.0)[0]
        assert generations.read() == 1
    finally:
        generations.close()
