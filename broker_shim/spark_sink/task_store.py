"""The connection of one task of Spark to the store service, as a member of a name that is free."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol
from uuid import uuid4

from broker_shim.service.socket import read_token
from broker_shim.spark_sink.member_names import member_name
from broker_shim.spark_sink.sink_settings import service_address
from broker_shim.store.remote.greeting import MemberIdentity
from broker_shim.store.remote.remote_store import RemoteMessageStore


class ServiceSettings(Protocol):
    """The options by which a write, or a stream that takes, finds its store service."""

    @property
    def path(self) -> str | None:
        """The root, if the service is not named by `socket`."""

    @property
    def socket(self) -> str | None:
        """The address of the service."""

    @property
    def token_file(self) -> str | None:
        """The file with the service's secret."""

    @property
    def wait_s(self) -> float:
        """How long to wait for a service that is away, in seconds."""


def service_token(settings: ServiceSettings) -> str | None:
    """Read the secret of the service; None: it asks for none."""
    path = settings.token_file
    return None if path is None else read_token(Path(path))


@contextmanager
def open_store(settings: ServiceSettings) -> Iterator[RemoteMessageStore]:
    """Connect to the store service, as a member of a name that is free.

    Raises:
        StoreError: No service answers, or it sends this member away.
    """
    address = service_address(settings.path, settings.socket)
    token = service_token(settings)
    with member_name() as name:
        identity = MemberIdentity(name, str(uuid4()), token=token)
        patience_s = settings.wait_s
        store = RemoteMessageStore(address, identity, retry_s=patience_s, recovers_entries=False)
        try:
            yield store
        finally:
            store.close()
