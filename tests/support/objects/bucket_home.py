"""Where stores on a bucket live in tests of every store: one server in memory, a prefix for each.

A crash loses this machine: the bucket as it is at one moment is all that the next one finds.
"""

from __future__ import annotations

import atexit
import hashlib
import os
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from broker_shim.store.delta import DeltaMessageStore
from sparkstore.config import StoreConfig
from tests.support.objects.s3_server import S3Server, use


def open_in_bucket(folder: Path, config: StoreConfig) -> DeltaMessageStore:
    """A store on the prefix that belongs to a folder; its working copy is in that folder."""
    with pytest.MonkeyPatch.context() as environment:
        use(_server().endpoint, environment)
        here = replace(config, copy_dir=str(folder / "copy"), commit_interval_ms=0)
        return DeltaMessageStore(f"s3://lake/{_prefix(folder)}", here)


def copy_bucket(folder: Path, to: Path) -> None:
    """Give another folder a prefix that holds what this one's holds now."""
    old, new = _prefix(folder), _prefix(to)
    with _server().lock:
        for name, content in [*_server().objects.items()]:
            if name.startswith(f"{old}/"):
                _server().objects[new + name.removeprefix(old)] = content


def _prefix(folder: Path) -> str:
    return hashlib.sha256(os.fsencode(folder)).hexdigest()[:16]


@cache
def _server() -> S3Server:
    server = S3Server()
    atexit.register(server.close)
    return server
