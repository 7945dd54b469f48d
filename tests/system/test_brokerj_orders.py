"""Orders of the command line about the root of a Broker-J: refused while it is attached."""

from __future__ import annotations

import json
import os
from typing import NamedTuple

import pytest
from proton import Message

from tests.support.roots.logs import until
from tests.support.system import brokerj
from tests.support.system.clients import Pipelined
from tests.support.system.forked import ForkedProcess, piped

pytestmark = [pytest.mark.system, pytest.mark.slow]

WAIT_S = 60.0
ORDERS = (
    ("queue create", "new"),
    ("queue alter", "auto.q", "--set", "max_delivery_count=3"),
    ("queue purge", "auto.q"),
    ("queue delete", "auto.q", "--force"),
    ("exchange create", "news", "--type", "topic"),
    ("exchange delete", "amq.topic", "--force"),
    ("binding add", "amq.topic", "auto.q", "--key", "k"),
    ("binding remove", "amq.direct", "auto.q", "--key", "auto.q"),
    ("transactions", "--rollback", "7:01:02"),
)
"""All that change something and need no Spark; those that do: tests/spark/test_brokerj_sql.py."""


class Ended(NamedTuple):
    """What came of a command."""

    code: int
    out: str
    err: str


class Command:
    """`sparkstore …` as a process that runs beside others."""

    def __init__(self, host: brokerj.Setup, words: str, *arguments: str) -> None:
        (self._stdout, out), (self._stderr, err) = piped(), piped()
        self._process = ForkedProcess(
            "sparkstore.__main__",
            *words.split(),
            str(host.root),
            *arguments,
            stdout=out,
            stderr=err,
        )
        os.close(out)
        os.close(err)

    def end(self) -> Ended:
        """Wait for it; it says little, so no pipe is ever full."""
        code = self._process.wait(WAIT_S)
        with self._stdout, self._stderr:
            return Ended(code, self._stdout.read(), self._stderr.read())


def test_every_order_is_refused_while_broker_j_is_attached_and_taken_when_it_ended(
    host: brokerj.Setup,
) -> None:
    Pipelined(host.broker.url, "auto.q", [Message(durable=True, body=b"x")] * 3).run()
    commands = [Command(host, *order) for order in ORDERS]
    for order, ended in zip(ORDERS, [each.end() for each in commands], strict=True):
        assert (ended.code, ended.out, ended.err.count("\n")) == (2, "", 1), (order, ended)
        assert "a Broker-J host is attached" in ended.err, order
        assert "stop it first" in ended.err, order
    host.broker.terminate()
    purged: list[Ended] = []

    def is_purged() -> bool:  # the service may be about to see that the broker ended
        purged.append(Command(host, "queue purge", "auto.q", "--json").end())
        return purged[-1].code == 0

    until(is_purged)
    assert json.loads(purged[-1].out)["done"] == 3
    shown = Command(host, "queues", "--json").end().out.splitlines()
    queues = [json.loads(line) for line in shown]
    assert [(each["queue"], each["depth"]) for each in queues] == [("auto.q", 0)]
