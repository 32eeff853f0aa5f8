"""Chance for the allocator, which is injected there (``RandomSource``): the real source is cryptographic (I20).

If the process dies on any line: nothing is kept here.
"""

import secrets


class CryptoRandom:
    """The kernel's random numbers."""

    def nibble(self) -> int:
        return secrets.token_bytes(1)[0] & 0x0F

    def iid(self, nbytes: int) -> bytes:
        return secrets.token_bytes(nbytes)

    def pick(self, n: int) -> int:
        return secrets.randbelow(n) if n > 1 else 0
