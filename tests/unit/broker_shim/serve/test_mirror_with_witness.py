"""A mirror of a root with a witness is served in its place: the two never tell at a time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from broker_shim.errors import Fenced, InvalidRequest, StoreError
from broker_shim.serve.stores import Stores
from broker_shim.store.chain.first_store import first_store
from broker_shim.store.delta import DeltaMessageStore
from broker_shim.store.interface import MessageHeader, Queue
from sparkstore.config import ChainMemberConfig, StoreConfig
from sparkstore.tables.root import open_root
from tests.support.objects.s3_server import served
from tests.support.roots.logs import until
from tests.support.stores.served_roots import open_root_stores
from tests.support.stores.stores import done

pytestmark = pytest.mark.slow

LEASE_S = 0.5


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "witness").mkdir()
    with served(monkeypatch):
        yield


@pytest.fixture(params=["folder", "bucket"])
def mirror(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return str(tmp_path / "mirror") if request.param == "folder" else "s3://lake/mirror"


def chained(folder: Path, mirror: str) -> Stores:
    member = ChainMemberConfig(mirror=mirror, on_failure="drop")
    witness = str(folder / "witness")
    config = StoreConfig(chain=(member,), witness=witness, witness_lease_s=LEASE_S)
    return open_root_stores(str(folder / "root"), config)


def put(stores: Stores, body: bytes) -> None:
    store = stores.messages
    done(store.enqueue, store.message(MessageHeader(), body), "q")


def bodies(store: DeltaMessageStore) -> list[bytes]:
    return [store.load(number).body for number in store.recover().entries["q"]]


def test_the_first_root_is_fenced_before_its_mirror_serves(tmp_path: Path, mirror: str) -> None:
    stores = chained(tmp_path, mirror)
    done(stores.messages.create, Queue("q"))
    put(stores, b"one")
    if "://" not in mirror:  # another process holds a folder's lock as long as it lives
        stores.close()
    elsewhere = StoreConfig(witness_lease_s=LEASE_S, copy_dir=str(tmp_path / "elsewhere"))
    with closing(first_store(mirror, elsewhere)) as heir:
        assert bodies(heir) == [b"one"]
        if "://" in mirror:
            until(lambda: is_fenced(stores))
        else:
            assert open_root(mirror).identity.witness == str(tmp_path / "witness")
    with pytest.raises(Fenced, match="took over"):
        chained(tmp_path, mirror)


def is_fenced(stores: Stores) -> bool:
    try:
        put(stores, b"late")
    except StoreError:
        stores.close()
        return True
    return False


def test_a_kill_on_the_way_leaves_what_the_next_start_goes_on_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mirror, module = str(tmp_path / "mirror"), "broker_shim.store.chain.first_store"
    stores = chained(tmp_path, mirror)
    done(stores.messages.create, Queue("q"))
    stores.close()

    def killed(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    for step in ("change_identity", "take_place"):
        with monkeypatch.context() as patched:
            patched.setattr(f"{module}.{step}", killed)
            with pytest.raises(KeyboardInterrupt):
                first_store(mirror, StoreConfig())
        with pytest.raises(Fenced, match="took over"):
            chained(tmp_path, mirror)
    first_store(mirror, StoreConfig()).close()
    assert open_root(mirror).identity.generation == 2


def test_another_witness_is_refused_and_one_that_is_lost_is_left_out_by_name(
    tmp_path: Path,
) -> None:
    mirror = str(tmp_path / "mirror")
    stores = chained(tmp_path, mirror)
    stores.close()
    (tmp_path / "other").mkdir()
    with pytest.raises(InvalidRequest, match="leave witness out, or name that"):
        first_store(mirror, StoreConfig(witness=str(tmp_path / "other")))
    first_store(mirror, StoreConfig(witness="none")).close()
    assert open_root(mirror).identity.witness == ""
