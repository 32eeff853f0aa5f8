"""Tables for people, JSON for programs: every command has ``-o``. Rich is imported only where a table is drawn."""

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

import click
import msgspec

F = TypeVar("F", bound=Callable[..., object])


def output_option(function: F) -> F:
    """Add ``-o table|json`` to a command."""
    return click.option(
        "-o", "output", type=click.Choice(["table", "json"]), default="table", show_default=True, help="How to print."
    )(function)


def print_json(value: object) -> None:
    """One JSON value, indented."""
    data = msgspec.json.encode(value, enc_hook=str)
    click.echo(msgspec.json.format(data, indent=2).decode())


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object]], empty: str) -> None:
    """A table, or one sentence where there are no rows."""
    from rich.console import Console  # noqa: PLC0415 - 40 ms that only a table pays
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    listed = list(rows)
    if not listed:
        click.echo(empty)
        return
    table = Table(box=None, header_style="bold", pad_edge=False)
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in listed:
        table.add_row(*(Text("" if cell is None else str(cell)) for cell in row))
    console = Console()
    if not console.is_terminal:
        # A pipe has no width: lines stay whole, for grep.
        console = Console(width=400)
    console.print(table)
