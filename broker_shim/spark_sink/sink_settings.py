"""The options of a write, read from the texts that Spark hands over."""

from __future__ import annotations

import difflib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple
from uuid import UUID, uuid4, uuid5

from broker_shim.errors import InvalidRequest
from broker_shim.service.socket import default_socket
from sparkstore.core.queue_names import shown
from sparkstore.spark_source.options import STREAM_ONLY

OPTIONS: Mapping[str, str] = {
    "target": "the queue or the exchange that gets the messages",
    "targetType": "`queue` or `exchange`, where both have the name",
    "routingKey": "of messages to an exchange, where a row has no `routing_key`",
    "path": "the root; the store is asked at `service.sock` in it",
    "socket": "the socket of the store service, instead: a path, `unix:PATH` or `tcp:HOST:PORT`",
    "tokenFile": "the file with the service's token, for `tcp:`",
    "waitSeconds": "how long a write waits for room on a queue, and for a service that is away",
    "txnAppId": "with `txnVersion`: a batch write of that version is there once",
    "txnVersion": "a number that rises from write to write of one `txnAppId`",
}
"""Options of a write, with their meaning; any case."""
WAIT_S = 60.0
_BY_KEY = {name.lower(): name for name in OPTIONS}
_NEAR = 0.8
_TYPES = ("queue", "exchange")
_APPLICATIONS = UUID("6b0f4ac1-7d0c-4d0e-9d55-5b1f0e2f5a53")
"""Turns a name of any length into that of a stream."""


class SinkSettings(NamedTuple):
    """The settings of one write; picklable, since every task gets them.

    Attributes:
        target: Name of the queue or exchange.
        target_type: `queue` or `exchange`; None: whichever is there.
        routing_key: Of rows that have none; None: their subject.
        path: The root, if the service is not named by `socket`.
        socket: Address of the service.
        token_file: The file with the service's secret.
        wait_s: How long to wait for room, and for a service that is away, in seconds.
        stream: Name of the publication: a new one, or that of `txnAppId`.
        version: The number of this write of that stream; None: it has none.
    """

    target: str
    target_type: str | None
    routing_key: str | None
    path: str | None
    socket: str | None
    token_file: str | None
    wait_s: float
    stream: str
    version: int | None


def read_settings(options: Mapping[str, str]) -> SinkSettings:
    """Read and check the options of a write.

    Options that this does not know are Spark's, or a reader's; one that is nearly of ours is a
    mistake.

    Raises:
        InvalidRequest: An option is missing, misspelt or has no meaning.
    """
    given = {key.lower(): value for key, value in options.items()}
    for key in given:
        if key in STREAM_ONLY:
            message = f"option {STREAM_ONLY[key]} is one of readStream: leave it out of a write"
            raise InvalidRequest(message)
        near = difflib.get_close_matches(key, _BY_KEY, 1, _NEAR)
        if key not in _BY_KEY and key not in _OTHERS and near:
            message = f"option {key!r} is not one of a write: is {_BY_KEY[near[0]]!r} meant?"
            raise InvalidRequest(message)
    target = given.get("target")
    if not target:
        raise InvalidRequest("give the option target: the name of a queue or of an exchange")
    if not (given.get("path") or given.get("socket")):
        raise InvalidRequest("give the option path (the root) or socket (of the store service)")
    kind = given.get("targettype")
    if kind is not None and kind.lower() not in _TYPES:
        message = f"option targetType cannot be {kind!r}: give queue or exchange"
        raise InvalidRequest(message)
    stream, version = _transaction(given)
    return SinkSettings(
        target,
        None if kind is None else kind.lower(),
        given.get("routingkey"),
        given.get("path"),
        given.get("socket"),
        given.get("tokenfile"),
        read_seconds("waitSeconds", given.get("waitseconds") or str(WAIT_S)),
        stream,
        version,
    )


def service_address(root_path: str | None, socket: str | None) -> str:
    """Find the address of the store service that a write, or a stream that takes, is for.

    Args:
        root_path: The root, if the service is not named by `socket`.
        socket: Address of the service.

    Raises:
        InvalidRequest: None serves that root, or this user may not ask it.
    """
    if socket is not None:
        address = socket
        path = Path(address.removeprefix("unix:"))
        is_path = not address.startswith("tcp:")
    else:
        root = Path(root_path or "")
        if not root.is_dir():
            message = (
                f"{shown(str(root))} is no folder of a root on this machine: give the option"
                " socket, the address of its store service"
            )
            raise InvalidRequest(message)
        path, is_path = default_socket(root), True
        address = f"unix:{path}"
        if not path.exists():
            message = (
                f"no store service of {root} is running, and this goes through the running store:"
                f" start `sparkstore serve {root} --store-socket {path}`, or give the option"
                " socket if it listens elsewhere"
            )
            raise InvalidRequest(message)
    if is_path and path.exists() and not os.access(path, os.R_OK | os.W_OK):
        message = (
            f"this user (uid {os.getuid()}) may not use the store service at {path}: only its own"
            " user may; run Spark as that user, or serve --store-listen with a --token-file"
        )
        raise InvalidRequest(message)
    return address


_OTHERS = frozenset({"checkpointlocation", "queryname", "view", "queue", "kind", "schema"})
"""Options of Spark or of a reader that are beside those of a write in a table's definition."""


def read_seconds(name: str, text: str) -> float:
    """Read the value of an option that is a time in seconds.

    Raises:
        InvalidRequest: It is none.
    """
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds < float("inf"):
        message = f"option {name} cannot be {text!r}: give seconds, from 0"
        raise InvalidRequest(message)
    return seconds


def _transaction(given: Mapping[str, str]) -> tuple[str, int | None]:
    """Name the stream of a write, and number it."""
    application, version = given.get("txnappid"), given.get("txnversion")
    if (application is None) != (version is None):
        raise InvalidRequest("the options txnAppId and txnVersion go together: give both, or none")
    if application is None or version is None:
        return str(uuid4()), None
    if not version.isdecimal() or int(version) >= 1 << 63:
        message = f"option txnVersion cannot be {version!r}: give a number from 0"
        raise InvalidRequest(message)
    return str(uuid5(_APPLICATIONS, application)), int(version)
