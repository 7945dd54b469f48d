"""The service's part of the command line of `sparkstore serve`."""

from __future__ import annotations

import argparse
import socket
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from broker_shim.errors import InvalidRequest
from broker_shim.service.socket import (
    ServiceSocket,
    check_path,
    default_socket,
    listen_on_path,
    read_token,
)
from sparkstore.secret_file import refuse_secret


@dataclass(frozen=True, slots=True)
class ServiceAddresses:
    """Where the service is to listen; checked, nothing is open yet.

    Attributes:
        path: Of the unix socket, if there is to be one.
        listen: `HOST:PORT`, if there is to be one; loopback only.
        token: What TCP peers must know.
    """

    path: Path | None
    listen: str | None
    token: str | None

    def open(self, listen_on: Callable[[str], socket.socket]) -> list[ServiceSocket]:
        """Open the listening sockets that the options ask for.

        Args:
            listen_on: Makes a listening socket of a loopback `HOST:PORT`.

        Raises:
            InvalidRequest: The path cannot be that of a socket.
            OSError: It cannot be bound.
        """
        addresses = []
        if self.listen is not None:
            addresses.append(ServiceSocket(listen_on(self.listen), self.token))
        try:
            if self.path is not None:
                addresses.append(ServiceSocket(listen_on_path(self.path)))
        except (InvalidRequest, OSError):
            for address in addresses:
                address.listening.close()
            raise
        return addresses


def add_options(add: Callable[..., object]) -> None:
    """The options, told to an argparse parser."""
    add(
        "--store-socket",
        type=Path,
        metavar="PATH",
        help="serve the store to members (brokers with --store, RemoteMessageStore; with --no-amqp"
        " Broker-J, too) on this unix socket",
    )
    add(
        "--store-listen",
        metavar="HOST:PORT",
        help="serve the store to members on this loopback address; needs --token-file",
    )
    add(
        "--token-file",
        type=Path,
        metavar="FILE",
        help="what members must know over TCP: a file of mode 0600 with 16 or more characters",
    )
    refuse_secret(add, "--token", "--token-file")
    add(
        "--no-amqp",
        action="store_true",
        help="the store service alone (default: on ROOT/service.sock)",
    )


def service_addresses_of(options: argparse.Namespace) -> ServiceAddresses | None:
    """Read where the service is to listen; None if the options ask for nothing.

    Raises:
        InvalidRequest: They contradict one another, or the token file cannot be used.
    """
    path, listen = options.store_socket, options.store_listen
    if options.no_amqp and path is None and listen is None and options.root:
        path = default_socket(Path(options.root))
    if not options.no_amqp and path is None and listen is None:
        if options.token_file is not None and not _has_use_of_token(options):
            text = (
                "--token-file is for --store-listen HOST:PORT, --store URL or a standby: give one"
            )
            raise InvalidRequest(text)
        return None
    if not options.root:
        raise InvalidRequest("the store service needs a root: give its folder")
    if listen is not None and options.token_file is None:
        message = f"--store-listen {listen} needs --token-file FILE: any user can reach a TCP port"
        raise InvalidRequest(message)
    if path is not None:
        check_path(path)
    token = None if options.token_file is None else read_token(options.token_file)
    return ServiceAddresses(path, listen, token)


def _has_use_of_token(options: argparse.Namespace) -> bool:
    is_pair = options.standby_of or options.standby_listen or options.config is not None
    return options.store is not None or bool(is_pair)
