"""A table that follows a world, step by step, for tests of policy in the kernel."""

import asyncio
from collections.abc import Callable, Sequence

import msgspec

from flock.policy.changes import Known, names_of_sets, parts_of, rewriting
from flock.policy.kernel import PolicyTable
from flock.policy.plan import FRAME, Steps, plan_change, plan_frame, plan_ground
from flock.policy.ruleset import Chain
from flock.policy.select import Rulings
from flock.policy.world import Member, World
from flock_lab.netns import Netns


class Enforced:
    """What the agent's thread does, without an agent: rulings, and a table on ``node`` that follows them.

    ``nft`` is the program; ``place`` gives the members of a world the interfaces that they have here.
    """

    def __init__(self, node: Netns, place: Callable[[Member], Member], nft: Sequence[str] = ("nft",)) -> None:
        self._node = node
        self._place = place
        self._table = PolicyTable(node.argv(nft))
        self.rulings = Rulings()
        asyncio.run(self._table.make())
        self._apply(plan_ground())
        self._apply(plan_frame())

    def _apply(self, steps: Steps) -> None:
        self._node.run(lambda: self._table.commit(steps.before))
        asyncio.run(self._table.load(steps.text))
        self._node.run(lambda: self._table.commit(steps.after))

    def close(self) -> None:
        self._table.close()

    def use(self, nft: Sequence[str]) -> None:
        """Another program from now on."""
        self.close()
        self._table = PolicyTable(self._node.argv(nft))

    def observed(self) -> Known:
        return self._node.run(self._table.observe)

    def follow(self, world: World) -> World:
        """Make the rulings those of a world, step by step, and the table theirs."""
        placed = msgspec.structs.replace(world, members={
            one.id: one for one in map(self._place, world.members.values())})
        before = self.rulings.world()
        for key in before.policies.keys() - placed.policies.keys():
            self.rulings.remove_policy(key)
        for name in before.namespaces.keys() - placed.namespaces.keys():
            self.rulings.put_namespace(name, None)
        for member in before.members.keys() - placed.members.keys():
            self.rulings.remove_member(member)
        for name, labels in placed.namespaces.items():
            self.rulings.put_namespace(name, labels)
        for one in placed.members.values():
            self.rulings.put_member(one)
        for policy in placed.policies.values():
            self.rulings.put_policy(policy)
        self._apply(plan_change(self.rulings.drain()))
        return placed

    def write_anew(self) -> None:
        """As a new agent does, that knows nothing of the table but what is in it."""
        change = rewriting(self.rulings.ruleset(), self.observed(), FRAME)
        self._apply(plan_ground())
        self._apply(plan_change(change))
        self._apply(plan_frame())

    def must_be_as_wanted(self) -> None:
        """The kernel has what was wanted, and nothing else."""
        wanted, known = self.rulings.ruleset(), self.observed()
        assert (known.entries, known.sources) == (wanted.entries, wanted.sources)
        parts = [part for fragment in wanted.fragments for part in parts_of(fragment)]
        assert known.chains == FRAME.chains | {name for name, part in parts if isinstance(part, Chain)}
        assert known.sets == FRAME.sets | {name for _, part in parts for name in names_of_sets(part)}
        for gathering, elements in wanted.sets.items():
            assert elements == frozenset(one for name in names_of_sets(gathering) for one in known.elements[name])
