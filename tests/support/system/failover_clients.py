"""Clients of every library over a pair of brokers, each a process that says what it did.

The addresses are those of docs/failover.md, and so is the code that connects again
(`tests/system/test_failover_clients.py` looks): what is shown there is what runs.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from tests.support.documents import section, text_of
from tests.support.system.client_programs import BUILT, LANGUAGES, SOURCES, Language, build

PROGRAMS: dict[str, tuple[object, ...]] = {
    "proton": (sys.executable, SOURCES / "proton_failover.py"),
    "rhea": ("node", SOURCES / "node" / "failover.js"),
    "go-amqp": (BUILT / "goclient",),
    "fe2o3-amqp": (BUILT / "rust" / "debug" / "rustclient",),
    "jms": (*LANGUAGES["jms"].command[:-1], "Failover"),
    "jms-0-10": (*LANGUAGES["jms"].command[:-1], "OldFailover"),
}
NEW_IDS = "jms-0-10"
"""The client that gives a message another id when its program sends it again."""
DUPLICATES_DROPPED = (
    '[broker]\naddresses = [{match = "#", arguments = {duplicate_window_ms = 600000}}]\n'
)
"""Settings of a pair: what a client sends again is accepted, and is on its queue once."""
_URLS = {"jms": "failover:(", "jms-0-10": "amqp://"}
"""How the URL begins that names both machines, of clients that have one."""
_END_S = 60.0


class Event(NamedTuple):
    """A line of a client: a word and a number, and when it came, by the monotonic clock."""

    word: str
    number: int
    at_s: float


class FailoverClient:
    """A process that sends numbers to a queue of its own, and takes them, over either machine."""

    def __init__(self, name: str, ports: Sequence[int], errors: Path) -> None:
        self.name = name
        self.events: list[Event] = []
        self._errors = errors
        with errors.open("w") as file:
            self._process = subprocess.Popen(
                [*map(str, (*PROGRAMS[name], name, *_addresses(name, ports)))],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=file,
                text=True,
                env={**os.environ, **make(name).environment},
            )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def numbers(self, word: str, since_s: float = 0.0) -> list[int]:
        """Return the numbers that it said with a word: accepted, received or settled."""
        return [e.number for e in [*self.events] if e.word == word and e.at_s >= since_s]

    def first(self, word: str, since_s: float) -> float:
        """Return when it said a word for the first time after a moment."""
        return min(e.at_s for e in [*self.events] if e.word == word and e.at_s >= since_s)

    def stop(self) -> None:
        """Let it send no more, and wait until it has all that was accepted.

        Raises:
            AssertionError: It did not end, or not well; what it wrote on standard error.
        """
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            code = self._process.wait(_END_S)
        except subprocess.TimeoutExpired:
            code = -1
        finally:
            self.kill()
        assert code == 0, f"{self.name} ended with {code}\n{self._errors.read_text()[-4000:]}"

    def kill(self) -> None:
        """End it, in whatever state it is."""
        self._process.kill()
        self._process.wait()
        self._reader.join()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()

    def lost(self) -> set[int]:
        """Return what was accepted, and never came."""
        return {*self.numbers("accepted")} - {*self.numbers("received")}

    def undone(self) -> set[int]:
        """Return what came again after a broker had confirmed that it is off the queue."""
        settled: set[int] = set()
        again: set[int] = set()
        for event in self.events:
            if event.word == "settled":
                settled.add(event.number)
            elif event.word == "received" and event.number in settled:
                again.add(event.number)
        return again

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            word, _, number = line.strip().partition(" ")
            self.events.append(Event(word, int(number or 0), time.monotonic()))


def make(name: str) -> Language:
    """Make a client's program if it is not yet; skips the test if this machine lacks a tool."""
    language = name.removesuffix("-0-10")
    build(language)
    return LANGUAGES[language]


def _addresses(name: str, ports: Sequence[int]) -> list[str]:
    """Return the addresses of a pair, as docs/failover.md shows those of the machines a and b."""
    shown = ["amqps://a:5671", "amqps://b:5671"]
    if name in _URLS:
        lines = section(text_of("docs/failover.md"), "Clients").splitlines()
        shown = [next(line for line in lines if line.startswith(_URLS[name]))]
    return [_here(text, ports) for text in shown]


def _here(text: str, ports: Sequence[int]) -> str:
    text = text.replace("amqps:", "amqp:").replace("ssl='true'&", "")
    for machine, port in zip("ab", ports, strict=True):
        text = text.replace(f"//{machine}:5671", f"//127.0.0.1:{port}")
    return text
