"""Lines of standard error as JSON: one object each, whatever is in them."""

from __future__ import annotations

import json
import logging
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from sparkstore.jobs.job import progress
from sparkstore.log_format import LogFormat, TextFormatter, is_progress_shown, say, say_of_java, use

ODD = 'a"b\nc\x1b[31m ü\ud800'
log = logging.getLogger("sparkstore.test")


@contextmanager
def json_used() -> Iterator[None]:
    """Use JSON, and put all back that this changes in the process."""
    root, hooks = logging.getLogger(), (sys.excepthook, threading.excepthook)
    handlers = [*root.handlers]
    loggers = [logging.getLogger(name) for name in ("sparkstore", "broker_shim")]
    levels = [each.level for each in loggers]
    use(LogFormat.JSON)
    try:
        yield
    finally:
        use(LogFormat.TEXT)
        root.handlers[:] = handlers
        sys.excepthook, threading.excepthook = hooks
        logging.captureWarnings(capture=False)
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


def objects(capsys: pytest.CaptureFixture[str]) -> list[dict[str, str]]:
    return [json.loads(line) for line in capsys.readouterr().err.splitlines()]


def test_whatever_is_said_is_one_object_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    with json_used():
        log.warning("queue %s", ODD)
        say("sparkstore serve", ODD, logging.ERROR)
        say_of_java("12:00 ERROR Executor: no\n")
        with progress("compact", is_shown=True):
            log.info("a step")
        assert (is_progress_shown(None), is_progress_shown(asked=False)) == (True, False)
    assert [(each["level"], each["logger"], each["message"]) for each in objects(capsys)] == [
        ("WARNING", "sparkstore.test", f"queue {ODD}"),
        ("ERROR", "sparkstore.serve", ODD),
        ("ERROR", "java", "12:00 ERROR Executor: no"),
        ("INFO", "sparkstore.test", "a step"),
    ]


def test_an_exception_is_one_field_also_of_a_thread(capsys: pytest.CaptureFixture[str]) -> None:
    with json_used():
        try:
            int(ODD)
        except ValueError:
            log.exception("it failed")
        thread = threading.Thread(target=int, args=("none",))
        thread.start()
        thread.join()
    logged, uncaught = objects(capsys)
    assert logged["exception"].startswith("Traceback")
    assert "ValueError" in logged["exception"]
    assert (logged["message"], uncaught["level"]) == ("it failed", "CRITICAL")
    assert "invalid literal" in uncaught["exception"]


def test_text_stays_as_it_was(capsys: pytest.CaptureFixture[str]) -> None:
    say("sparkstore", "no such queue")
    say_of_java("java\n")
    assert capsys.readouterr().err == "sparkstore: no such queue\njava\n"


def test_a_line_of_text_has_the_time_of_the_audit_lines_in_it(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In UTC with its zone, wherever the broker stands."""
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    try:
        with caplog.at_level(logging.INFO, "sparkstore.test"):
            log.info("queue %s", "q")
        (record,) = caplog.records
        record.created = 1_750_000_000.000_123
        expected = "2025-06-15T15:06:40.000123Z INFO sparkstore.test: queue q"
        assert TextFormatter().format(record) == expected
    finally:
        monkeypatch.undo()
        time.tzset()
