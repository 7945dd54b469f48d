"""What docs/links.md says of the clients that are tested is what they are."""

from __future__ import annotations

import json
import re
from importlib.metadata import version

from tests.support.checkout import CHECKOUT
from tests.support.documents import text_of
from tests.support.system.client_cases import CASES
from tests.support.system.client_sights import can_write

PROGRAMS = CHECKOUT / "tests" / "system" / "programs"
LINKS = text_of("docs/links.md")


def told_version(client: str) -> str:
    """What the table says."""
    found = re.search(rf"^\| {re.escape(client)}.*?\| ([0-9.]+) \|", LINKS, re.MULTILINE)
    assert found is not None, client
    return found[1]


def test_the_versions_are_those_that_are_installed() -> None:
    lock = json.loads((PROGRAMS / "node" / "package-lock.json").read_text())
    go = (PROGRAMS / "go" / "go.mod").read_text()
    pom = (CHECKOUT / "broker_shim" / "brokerj" / "pom.xml").read_text()
    jms = f"<artifactId>qpid-jms-client</artifactId><version>{told_version('Qpid JMS')}</version>"
    assert version("python-qpid-proton").startswith(told_version("python-qpid-proton"))
    assert lock["packages"]["node_modules/rhea"]["version"] == told_version("rhea")
    assert f"go-amqp v{told_version('go-amqp')}\n" in go
    assert jms in pom


def test_the_number_of_messages_is_right() -> None:
    words = " ".join(LINKS.split())
    assert f"{len(CASES)} messages, with every type" in words
    written_by_jms = sum(can_write("jms", case) for case in CASES.values())
    assert f"JMS writes {written_by_jms} of them" in words
