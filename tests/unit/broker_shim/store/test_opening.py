"""What a store, a member or a chain is opened with: a wrong value is refused in a line."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from broker_shim.errors import InvalidRequest
from broker_shim.store.chain.audit import CallAuditor
from broker_shim.store.chain.place import Tolerance
from broker_shim.store.chain.store_chain import MessageStoreChain
from broker_shim.store.delta import DeltaMessageStore
from broker_shim.store.memory import MemoryMessageStore
from broker_shim.store.remote.greeting import MemberIdentity
from broker_shim.store.remote.remote_store import RemoteMessageStore
from sparkstore.config import ChainMemberConfig, StoreConfig

ANYTHING: Any = 5
NOTHING: Any = None
TEXT: Any = "end"
NOWHERE = Path("nowhere")


def chained(*members: Any) -> None:
    store = MemoryMessageStore()
    try:
        MessageStoreChain(store, members)
    finally:
        store.close()


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (lambda: DeltaMessageStore(NOTHING), "a root cannot be NoneType: give the path"),
        (lambda: DeltaMessageStore(""), "a root cannot be empty"),
        (lambda: RemoteMessageStore(NOTHING), "cannot be NoneType: give unix:PATH"),
        (lambda: RemoteMessageStore(""), "cannot be empty: give unix:PATH"),
        (lambda: RemoteMessageStore(NOWHERE, ANYTHING), "greeting cannot be int"),
        (lambda: RemoteMessageStore(NOWHERE, retry_s=TEXT), "retry_s cannot be 'end'"),
        (lambda: RemoteMessageStore(NOWHERE, retry_s=float("nan")), "retry_s cannot be nan"),
        (lambda: RemoteMessageStore(NOWHERE, max_message_bytes=0), "max_message_bytes cannot be 0"),
        (lambda: MemberIdentity(ANYTHING, "1"), "member cannot be int"),
        (lambda: MemberIdentity("\ud800", "1"), "member"),
        (lambda: MemberIdentity("a/b", "1"), "without a slash"),
        (lambda: MemberIdentity("xid:1", "1"), "holder of a branch"),
        (lambda: MemberIdentity("m", NOTHING), "incarnation cannot be NoneType"),
        (lambda: MemberIdentity("m", "1", ANYTHING), "host cannot be int"),
        (lambda: MemberIdentity("m", "1", is_exclusive=ANYTHING), "is_exclusive cannot be int"),
        (lambda: Tolerance(TEXT), "may_drop cannot be str"),
        (lambda: Tolerance(max_waiting=-1), "max_waiting cannot be -1"),
        (lambda: CallAuditor(ANYTHING), "an audit cannot go to int"),
        (lambda: chained(NOTHING), "pairs of a member and its Tolerance"),
        (lambda: chained((NOTHING, Tolerance())), "cannot be NoneType: give a Mirror"),
        (lambda: chained((MemoryMessageStore(), Tolerance())), "cannot be MemoryMessageStore"),
        (
            lambda: StoreConfig(chain=(ChainMemberConfig("x"), ChainMemberConfig("x"))),
            "names x twice",
        ),
    ],
)
def test_a_wrong_value_is_refused_in_a_line_and_nothing_is_made(
    call: Callable[[], Any], told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InvalidRequest, match=told) as refusal:
        call()
    assert "\n" not in str(refusal.value)
    assert [*tmp_path.iterdir()] == []
