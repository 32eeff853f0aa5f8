"""How a value that a stranger wrote is shown in an error: quoted, on one line, cut. Pure."""

LIMIT = 80


def shown(value: object, limit: int = LIMIT) -> str:
    """``repr`` of a value, without control characters and at most ``limit`` characters long."""
    text = repr(value[: limit + 1] if isinstance(value, (str, bytes)) else value)
    return text if len(text) <= limit else text[: limit - 1] + "…"
