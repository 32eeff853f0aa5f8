"""Logging, set up once: a line for people or a JSON object for machines, on standard error.

Event names are stable (``runtime ready``, ``pod added``); what belongs to an event rides in ``extra={"ctx": {...}}``.
If the process dies on any line: a log line is lost, nothing else.
"""

import logging
import sys
from typing import Any

import msgspec

_ENCODE = msgspec.json.Encoder(enc_hook=str).encode


class JsonFormatter(logging.Formatter):
    """One JSON object a line: time, level, logger, event, then the event's own fields."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": round(record.created, 6), "level": record.levelname.lower(), "logger": record.name,
            "event": record.getMessage(), **_context(record),
        }
        if record.exc_info:
            line["trace"] = self.formatException(record.exc_info)
        return _ENCODE(line).decode()


class ConsoleFormatter(logging.Formatter):
    """``12:00:00.000 INFO event key=value …``"""

    def format(self, record: logging.LogRecord) -> str:
        context = "".join(f" {name}={_plain(value)}" for name, value in _context(record).items())
        clock = self.formatTime(record, "%H:%M:%S")
        line = f"{clock}.{int(record.msecs):03d} {record.levelname} {record.getMessage()}{context}"
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


def set_up_logging(style: str, level: str) -> None:
    """Install the one handler of the process."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if style == "json" else ConsoleFormatter())
    root = logging.getLogger("flock")
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    root.propagate = False
    # Nobody formats these; without them a record costs less (logging howto, "Optimization").
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False


def ctx(**fields: object) -> dict[str, dict[str, object]]:
    """The ``extra`` argument of a log call."""
    return {"ctx": fields}


def _context(record: logging.LogRecord) -> dict[str, object]:
    fields = getattr(record, "ctx", None)
    return fields if isinstance(fields, dict) else {}


def _plain(value: object) -> str:
    text = str(value)
    return repr(text) if not text or not text.isprintable() or " " in text else text
