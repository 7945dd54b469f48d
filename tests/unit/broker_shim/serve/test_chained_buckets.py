"""Chains with a bucket in them: where and how the first store is kept is not said of its mirror."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from broker_shim.errors import InvalidRequest
from broker_shim.store.delta import DeltaMessageStore
from broker_shim.store.interface import MessageHeader, Queue
from sparkstore.config import ChainMemberConfig, StoreConfig
from tests.support.objects.copies import bodies_in
from tests.support.objects.s3_server import S3Server, served
from tests.support.stores.served_roots import open_root_stores
from tests.support.stores.stores import done

pytestmark = pytest.mark.slow

URI = "s3://lake/queues"


@pytest.fixture(autouse=True)
def server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[S3Server]:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with served(monkeypatch) as server:
        yield server


@pytest.mark.parametrize(
    ("root", "mirror", "settings"),
    [
        (URI, "FOLDER/mirror", {"ack": "delta", "copy_dir": "FOLDER/copy"}),
        (URI, "s3://lake/mirror", {"ack": "wal", "wal_dir": "FOLDER/wal"}),
        (URI, "s3://lake/mirror", {"copy_dir": "FOLDER/copy"}),
        ("FOLDER/root", "s3://lake/mirror", {"wal_dir": "FOLDER/wal"}),
    ],
)
def test_a_mirror_is_kept_in_its_own_way(
    tmp_path: Path, root: str, mirror: str, settings: dict[str, str]
) -> None:
    def here(text: str) -> str:
        return text.replace("FOLDER", str(tmp_path))

    chain = (ChainMemberConfig(mirror=here(mirror)),)
    given = {name: here(value) for name, value in settings.items()}
    config = StoreConfig(chain=chain, **given)  # type: ignore[arg-type]
    stores = open_root_stores(here(root), config)
    try:
        store = stores.messages
        done(store.create, Queue("q"))
        done(store.enqueue, store.message(MessageHeader(), b"one"), "q")
    finally:
        stores.close()
    assert bodies_in(here(mirror)) == [b"one"]


def test_a_bucket_is_no_mirror_of_itself() -> None:
    config = StoreConfig(chain=(ChainMemberConfig(mirror=f"{URI}/"),))
    with pytest.raises(InvalidRequest, match="is the root itself"):
        open_root_stores(URI, config)
    DeltaMessageStore(URI).close()
