"""Every test of the contract runs once for each store."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from broker_shim.store.interface import BrokerStore
from tests.support.stores.stores import OPENERS, Home

THOROUGH = {"bucket", "mirrored"}
"""What stands on other stores that are tested in full, and takes long."""


@pytest.fixture(
    params=[
        pytest.param(name, marks=[pytest.mark.thorough, pytest.mark.slow])
        if name in THOROUGH
        else name
        for name in OPENERS
    ]
)
def home(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Home]:
    """A place with an empty store that is open."""
    place = Home(request.param, tmp_path / "store")
    yield place
    place.store.close()


@pytest.fixture
def store(home: Home) -> BrokerStore:
    """The open, empty store of `home`."""
    return home.store
