"""Where random addresses come from: injected, so that tests are deterministic; the real source is cryptographic (I20).

The allocator itself knows the Protocol alone. If the process dies on any line: nothing is kept here.
"""

import secrets
from typing import Protocol


class RandomSource(Protocol):
    """What an allocator asks of chance."""

    def nibble(self) -> int:
        """A number from 0 to 15."""
        ...

    def iid(self, nbytes: int) -> bytes:
        """Random bytes for an interface identifier."""
        ...

    def pick(self, n: int) -> int:
        """A number from 0 to n - 1; 0 where n is 1."""
        ...


class CryptoRandom:
    """The kernel's random numbers."""

    def nibble(self) -> int:
        return secrets.token_bytes(1)[0] & 0x0F

    def iid(self, nbytes: int) -> bytes:
        return secrets.token_bytes(nbytes)

    def pick(self, n: int) -> int:
        return secrets.randbelow(n) if n > 1 else 0
