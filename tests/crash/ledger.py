"""What the clients believe, so that lies are seen: who lives at which address, what was done, what was wrong."""

import threading
from collections import Counter
from collections.abc import Iterable


class Ledger:
    """Shared by all clients. A violation is noted, not raised: the run goes on and reports all of them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._living: dict[str, str] = {}
        self.done: Counter[str] = Counter()
        self.kills: Counter[str] = Counter()
        self.calls: Counter[str] = Counter()
        self.violations: list[str] = []

    def count(self, what: str) -> None:
        with self._lock:
            self.done[what] += 1

    def violation(self, text: str) -> None:
        with self._lock:
            self.violations.append(text)

    def claim(self, container: str, addresses: Iterable[str]) -> None:
        """An ADD succeeded: nobody else lives at these addresses."""
        with self._lock:
            for address in addresses:
                holder = self._living.setdefault(address, container)
                if holder != container:
                    self.violations.append(f"{address} was given to {container} while {holder} has it")

    def leave(self, container: str) -> None:
        """A DEL is about to be sent: from now on its addresses may be given again."""
        with self._lock:
            for address in [address for address, holder in self._living.items() if holder == container]:
                del self._living[address]

    def table(self) -> str:
        """What was done, for whoever reads the test's output."""
        lines = [f"{sum(self.kills.values())} kills"]
        for title, counter in (("kills", self.kills), ("the call it died at", self.calls), ("requests", self.done)):
            lines.append(f"  {title}:")
            lines += [f"    {count:7}  {name}" for name, count in sorted(counter.items(), key=lambda pair: -pair[1])]
        return "\n".join(lines)
