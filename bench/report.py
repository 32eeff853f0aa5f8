"""What was measured against which bar, as a table for people and as bench/latest.json. Pure but for ``write``.

Invariant: a figure is judged in one place, ``Figure.ok``, by the numbers that are printed beside it.
"""

import json
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

LATEST = Path(__file__).with_name("latest.json")


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One line: ``ours`` and, where the bar is relative, ``theirs``; ``least`` turns the bar into a lower bound.

    Without a bar it is only told.
    """

    name: str
    group: str
    ours: float
    theirs: float | None = None
    unit: str
    bar: float | None = None
    least: bool = False

    @property
    def ratio(self) -> float | None:
        return None if self.theirs is None else self.ours / self.theirs

    @property
    def ok(self) -> bool:
        judged = self.ours if self.ratio is None else self.ratio
        if self.bar is None:
            return True
        return judged >= self.bar if self.least else judged <= self.bar

    def entry(self) -> dict[str, object]:
        """As it lies in latest.json."""
        return {
            "name": self.name, "group": self.group, "ours": _rounded(self.ours), "theirs": _rounded(self.theirs),
            "unit": self.unit, "ratio": _rounded(self.ratio), "bar": self.bar, "ok": self.ok,
        }

    def row(self) -> tuple[str, ...]:
        """As it stands in the table."""
        sign = "≥" if self.least else "≤"
        return (
            self.group, self.name, _number(self.ours), _number(self.theirs), self.unit, _number(self.ratio),
            *(("–", "") if self.bar is None else (f"{sign} {self.bar:g}", "ok" if self.ok else "FAILS")),
        )


def render(figures: Sequence[Figure]) -> str:
    """The table, a line for each figure."""
    rows = [("group", "what", "ours", "theirs", "unit", "ratio", "bar", ""), *(figure.row() for figure in figures)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    numbers = {2, 3, 5, 6}
    return "\n".join(
        "  ".join(
            cell.rjust(width) if column in numbers else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    )


def write(figures: Sequence[Figure], path: Path = LATEST) -> None:
    """Replace the measured groups in latest.json; those that were left out keep what was measured last."""
    groups = {figure.group for figure in figures}
    former = json.loads(path.read_text()) if path.exists() else []
    entries = [entry for entry in former if entry["group"] not in groups] + [figure.entry() for figure in figures]
    path.write_text(json.dumps(entries, indent=1, ensure_ascii=False) + "\n")


def median(values: Iterable[float]) -> float:
    return statistics.median(values)


def percentile(values: Sequence[float], percent: int) -> float:
    """The smallest value that ``percent`` of all don't exceed."""
    ordered = sorted(values)
    return ordered[max(0, -(-len(ordered) * percent // 100) - 1)]


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}" if abs(value) < 10 else f"{value:.1f}"


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 4)
