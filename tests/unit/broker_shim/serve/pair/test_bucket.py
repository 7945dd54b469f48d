"""What `--standby` is not for is refused before anything is opened."""

from __future__ import annotations

from argparse import Namespace

import pytest

from broker_shim.errors import InvalidRequest
from broker_shim.serve.pair.bucket import bucket_turn
from sparkstore.config import StoreConfig


def test_it_is_for_a_root_in_a_bucket_whose_log_is_there() -> None:
    assert bucket_turn(Namespace(root="/r", standby=False), StoreConfig()) is None
    for root in (None, "/r"):
        with pytest.raises(InvalidRequest, match="for a folder say --standby-of"):
            bucket_turn(Namespace(root=root, standby=True), StoreConfig())
    with pytest.raises(InvalidRequest, match="keeps the log on one machine: leave it out"):
        bucket_turn(Namespace(root="s3://lake/r", standby=True), StoreConfig(ack="wal"))
