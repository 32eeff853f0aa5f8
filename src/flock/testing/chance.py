"""Chance that a test decides: scripted first, then pseudo-random from a seed, so that every run is the same."""

import random
from collections.abc import Iterable


class ScriptedRandom:
    """A ``RandomSource``. ``asked`` counts the draws of each kind."""

    def __init__(
        self,
        *,
        nibbles: Iterable[int] = (),
        iids: Iterable[int] = (),
        picks: Iterable[int] = (),
        seed: int = 0,
    ) -> None:
        self._nibbles = list(nibbles)
        self._iids = list(iids)
        self._picks = list(picks)
        self._random = random.Random(seed)
        self.asked = {"nibble": 0, "iid": 0, "pick": 0}

    def nibble(self) -> int:
        self.asked["nibble"] += 1
        return self._nibbles.pop(0) if self._nibbles else self._random.randrange(16)

    def iid(self, nbytes: int) -> bytes:
        self.asked["iid"] += 1
        if self._iids:
            return self._iids.pop(0).to_bytes(nbytes, "big")
        return self._random.randbytes(nbytes)

    def pick(self, n: int) -> int:
        self.asked["pick"] += 1
        number = self._picks.pop(0) if self._picks else self._random.randrange(n)
        assert 0 <= number < n, f"picked {number} of {n}"
        return number
