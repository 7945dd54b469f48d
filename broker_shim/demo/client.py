"""Share one connection, which is not remade, and a ledger on disk between both kinds of clients."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from proton.handlers import MessagingHandler
from proton.reactor import Container

PROGRESS_EVERY = 250


class Client(MessagingHandler):
    """An AMQP client until its work is done or its connection is lost: it does not come back.

    A client that reconnects would send again what it was not told about, and a duplicate would
    hide a loss. Here what was not told stays in doubt.
    """

    def __init__(self, url: str, ledger: Path) -> None:
        super().__init__(prefetch=0, auto_accept=False)
        self._url = url
        self._ledger = ledger
        self._told_count = 0
        self.connection: Any = None

    def on_start(self, event: Any) -> None:
        """Connect once, and open the links."""
        self.connection = event.container.connect(self._url, reconnect=False)
        self.open_links(event.container)

    def open_links(self, container: Container) -> None:
        """Make the links that this client works with."""
        raise NotImplementedError

    def content(self) -> Mapping[str, Any]:
        """Return the content to write into the ledger."""
        raise NotImplementedError

    def report(self) -> None:
        """Say now and then what the broker confirmed, for the one who watches."""
        self._told_count += 1
        if self._told_count % PROGRESS_EVERY == 0:
            self.say()

    def say(self) -> None:
        """Tell the parent how much was confirmed."""
        print(f"told {self._told_count}", flush=True)

    def write(self, word: str) -> None:
        """Write the ledger, then tell the parent."""
        self._ledger.write_text(json.dumps(self.content()))
        self.say()
        print(word, flush=True)

    def on_transport_error(self, event: Any) -> None:
        """Do nothing: `on_disconnected` follows a lost connection, and the container ends."""

    def on_link_error(self, event: Any) -> None:
        """Fail, as the broker refused the link."""
        print(f"link refused: {event.link.remote_condition}", file=sys.stderr)
        event.connection.close()


def run(client: Client) -> None:
    """Work until there is nothing more to do, then write the ledger, whatever happened."""
    try:
        Container(client).run()
    finally:
        client.write("ended")
