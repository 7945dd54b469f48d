"""Write the lines of standard error as text for people, or as JSON for a log collector.

A line of JSON is one object: `time` (UTC, µs), `level`, `logger`, `message`, and `exception` with
the whole traceback if there is one. It is ASCII on one line, whatever a client put into a name.

The choice is one of a process, made once by its command (`use`). Everything that a command says on
standard error goes through `say` or through `logging`, so nothing else stands between the objects.
A mistyped command line alone is reported as text: the choice is not known yet.
"""

from __future__ import annotations

import json
import logging
import sys
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any


class LogFormat(StrEnum):
    """The two forms of a line on standard error."""

    TEXT = "text"
    JSON = "json"


class TextFormatter(logging.Formatter):
    """Formats a record of `logging` as a line of a broker, its time as in the audit log."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s: %(message)s")

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:  # noqa: N802, ARG002  # of `logging`
        """Return the time in UTC with its zone, to the microsecond."""
        return _time_of(record)


def _time_of(record: logging.LogRecord) -> str:
    at = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="microseconds")
    return at.replace("+00:00", "Z")


class JsonFormatter(logging.Formatter):
    """Formats a record of `logging` as one JSON object."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the object as one line of ASCII."""
        line = {
            "time": _time_of(record),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line)


def add_log_format(add: Callable[..., object]) -> None:
    """Add `--log-format` to the options of a command."""
    add(
        "--log-format",
        type=LogFormat,
        choices=[*LogFormat],
        default=LogFormat.TEXT,
        metavar="text|json",
        help="lines on standard error: text, or one JSON object a line with time, level, logger,"
        " message and exception (default text)",
    )


def use(chosen: LogFormat, level: int = logging.INFO) -> None:
    """Have this process log in a form from now on; text is what Python's `logging` does.

    With JSON also warnings of Python and exceptions that nobody catches become objects.
    """
    root = logging.getLogger()
    for handler in [
        handler for handler in root.handlers if isinstance(handler.formatter, JsonFormatter)
    ]:
        root.removeHandler(handler)
    if chosen is LogFormat.TEXT:
        return
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter())
    root.handlers[:] = [handler]
    logging.getLogger("sparkstore").setLevel(level)
    logging.getLogger("broker_shim").setLevel(level)
    logging.captureWarnings(capture=True)
    sys.excepthook = _uncaught
    threading.excepthook = _uncaught_in_thread


def is_json() -> bool:
    """True once this process writes JSON to standard error."""
    return any(
        isinstance(handler.formatter, JsonFormatter) for handler in logging.getLogger().handlers
    )


def is_progress_shown(asked: bool | None) -> bool:  # noqa: FBT001  # three values
    """Decide whether a long command shows its steps: as `--progress` says, else to who reads them.

    Args:
        asked: What `--progress` or `--no-progress` says; None: neither was given.
    """
    return (is_json() or sys.stderr.isatty()) if asked is None else asked


def say(program: str, line: str, level: int = logging.WARNING) -> None:
    """Write one line of a command to standard error, in the form of this process.

    Args:
        program: The command, which stands before the line, or is its logger.
        line: Text without control characters.
        level: Its level as JSON; text shows none.
    """
    if is_json():
        logging.getLogger(program.replace(" ", ".")).log(level, "%s", line)
    else:
        sys.stderr.write(f"{program}: {line}\n")


def say_of_java(line: str) -> None:
    """Pass on a line that a JVM wrote: as it is, or as an object of the logger `java`."""
    if is_json():
        logging.getLogger("java").error("%s", line.rstrip("\n"))
    else:
        sys.stderr.write(line)


def _uncaught(kind: type[BaseException], error: BaseException, trace: Any) -> None:
    if not issubclass(kind, KeyboardInterrupt):
        text = "an error that nobody caught: %s"
        logging.getLogger("sparkstore").critical(text, error, exc_info=(kind, error, trace))


def _uncaught_in_thread(arguments: threading.ExceptHookArgs) -> None:
    error = arguments.exc_value
    if error is not None:
        _uncaught(arguments.exc_type, error, arguments.exc_traceback)
