"""How a process shows what it counts: a file for a collector, a port for a monitor, or neither.

What neither is asked for costs nothing: the library is imported with the first of them.
"""

from __future__ import annotations

import argparse
import json
import logging
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from broker_shim.serve.probes import Families, Post, Probes, Trouble
from broker_shim.serve.stores import trouble_of
from broker_shim.serve.systemd import READY, notify

if TYPE_CHECKING:
    from prometheus_client.core import Metric

    from broker_shim.broker.storage.loop import Loop
    from broker_shim.broker.virtual_host import Broker
    from broker_shim.service.service import Service
    from broker_shim.sockets.listener import Listener
    from broker_shim.store.interface import MessageStore

_log = logging.getLogger(__name__)

_REPORT_S = 5.0


class Reporter:
    """Writes the file when told to, and answers at the port, if there is one.

    Attributes:
        url: Of the port; empty without one.
        probes: The process as monitors see it.
    """

    def __init__(self, file: Path | None) -> None:
        self._file, self.probes = file, Probes()
        self._families: Families = lambda: ()
        self.url = ""

    @property
    def writes_file(self) -> bool:
        """True if the figures are wanted every so often, and not only by who asks."""
        return self._file is not None

    def serving(self, families: Families, trouble: Trouble, post: Post | None = None) -> None:
        """Report these figures from now on; `post` if both may be asked on one thread only."""
        self._families, self.probes.is_serving = families, True
        self.probes.now(families, trouble, post)

    def stopping(self) -> None:
        """Write a last time; the owner is asked for nothing any more: it does not come round."""
        self.probes.is_serving = False
        self.write()
        self.probes.now(lambda: (), lambda: "stopping", None)

    def write(self) -> None:
        """Replace the file. Counting is not worth an outage: a failure is a warning."""
        if self._file is None:
            return
        from sparkstore.metrics.exposition import encoded, replace_textfile  # noqa: PLC0415

        try:
            replace_textfile(self._file, encoded(self._families(), of_process=True))
        except OSError as reason:
            _log.warning("counters were not written: %s", reason)


def show_service(
    reporter: Reporter, service: Service, decider: Callable[[], Broker | None]
) -> None:
    """Show what a store service counts to whoever may ask."""

    def families() -> Iterable[Metric]:
        from broker_shim.serve.metric_families import service_families  # noqa: PLC0415

        return service_families(service, decider())

    reporter.serving(families, lambda: trouble_of(service.store))


def show_broker(
    reporter: Reporter,
    loop: Loop,
    listener: Listener,
    broker: Broker,
    store: MessageStore,
    options: argparse.Namespace,
) -> None:
    """Show what the broker counts to whoever may ask, and write it every so often."""

    def families() -> Iterable[Metric]:
        from broker_shim.serve.metric_families import ProcessRole, broker_families  # noqa: PLC0415

        role = ProcessRole.BROKER
        if options.store is not None:
            role = ProcessRole.MEMBER
        elif options.store_socket is not None or options.store_listen is not None:
            role = ProcessRole.SERVICE
        count = listener.connection_count
        return broker_families(broker, store, count, role, options.member or "")

    def trouble() -> str | None:
        return "stopping" if broker.is_stopping else trouble_of(store)

    def write() -> None:
        reporter.write()
        loop.later(_REPORT_S, write)

    reporter.serving(families, trouble, loop.post)
    if reporter.writes_file:
        write()


def announce(
    urls: Sequence[str],
    in_force: Mapping[str, str],
    options: argparse.Namespace,
    metrics_url: str = "",
) -> None:
    """Say that it serves, where, and what is in force: a broker open by mistake shows it."""
    if metrics_url:
        in_force = {**in_force, "metrics": metrics_url}
    if options.store is not None:
        in_force = {**in_force, "service": options.store, "member": options.member}
    if options.json:
        content = {"ready": urls[0], "root": options.root, "store": [*urls[1:]], **in_force}
        line = json.dumps(content)
    else:
        where = "(of the service)" if options.store else options.root or "(memory)"
        line = f"READY {urls[0]} root={where}"
        line += "".join(f" store={url}" for url in urls[1:])
        line += "".join(f" {name}={value}" for name, value in in_force.items())
    sys.stdout.write(line + "\n")
    sys.stdout.flush()
    notify(READY, f"STATUS=serving {' '.join(urls)}")
