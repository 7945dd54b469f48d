"""Peers of the store service that say nothing keep no member out."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from broker_shim.service import service as service_module
from tests.support.stores.controls import ServicedRoot
from tests.support.stores.raw_member import RawMember

pytestmark = pytest.mark.slow

PLACES = 3


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ServicedRoot]:
    monkeypatch.setattr(service_module, "MAX_CONNECTIONS", PLACES)
    it = ServicedRoot(tmp_path / "root")
    yield it
    it.stop()


def test_the_oldest_that_has_not_greeted_gives_way(root: ServicedRoot) -> None:
    greeted = RawMember(root.path, "first")
    greeted.hello()
    silent = [RawMember(root.path, f"silent{number}") for number in range(PLACES + 1)]
    late = RawMember(root.path, "late")
    assert late.hello()
    assert silent[0].hears() is None
    for peer in (greeted, late, *silent):
        peer.peer.close()


def test_who_has_greeted_gives_way_to_nobody(root: ServicedRoot) -> None:
    members = [RawMember(root.path, f"m{number}") for number in range(PLACES)]
    for member in members:
        member.hello()
    late = RawMember(root.path, "late")
    assert late.hears() is None
    for peer in (*members, late):
        peer.peer.close()
