"""How a process shows what it counts: a file for a collector, a port for a monitor, or neither.

What neither is asked for costs nothing: the library is imported with the first of them.
"""

from __future__ import annotations

import argparse
import logging
from pathlib import Path
from typing import TYPE_CHECKING

from broker_shim.errors import InvalidRequest
from broker_shim.serve.bind_address import parse_listen
from broker_shim.serve.stores import trouble_of

if TYPE_CHECKING:
    from broker_shim.broker.storage.loop import Loop
    from broker_shim.broker.virtual_host import Broker
    from broker_shim.serve.monitor import Families, Monitor, Post, Subject, Trouble
    from broker_shim.sockets.listener import Listener
    from broker_shim.store.interface import MessageStore

_log = logging.getLogger(__name__)

_REPORT_S = 5.0


class Reporter:
    """Writes the file when told to, and answers at the port, if there is one.

    Attributes:
        url: Of the port; empty without one.
        subject: The process as monitors see it; None: nobody asks over HTTP.
    """

    def __init__(
        self, file: Path | None, monitor: Monitor | None, subject: Subject | None = None
    ) -> None:
        self._file, self._monitor, self.subject = file, monitor, subject
        self._families: Families = lambda: ()
        self.url = "" if monitor is None else monitor.url

    @property
    def is_asked_for(self) -> bool:
        """True if anybody may want the metrics."""
        return self._file is not None or self.subject is not None

    def serving(self, families: Families, trouble: Trouble, post: Post | None = None) -> None:
        """Report these figures from now on; `post` if both may be asked on one thread only."""
        self._families = families
        if self.subject is not None:
            self.subject.now(families, trouble, post)

    def stopping(self) -> None:
        """Write a last time; the owner is asked for nothing any more: it does not come round."""
        self.write()
        if self.subject is not None:
            self.subject.now(lambda: (), lambda: "stopping", None)

    def write(self) -> None:
        """Replace the file. Counting is not worth an outage: a failure is a warning."""
        if self._file is None:
            return
        from sparkstore.metrics.exposition import encoded, replace_textfile  # noqa: PLC0415

        try:
            replace_textfile(self._file, encoded(self._families(), of_process=True))
        except OSError as reason:
            _log.warning("counters were not written: %s", reason)

    def close(self) -> None:
        """Close the port of metrics, if there is one."""
        if self._monitor is not None:
            self._monitor.close()


def reporter_of(options: argparse.Namespace) -> Reporter:
    """Make the reporter of `--metrics-file` and `--metrics-listen`; its port answers at once.

    Raises:
        InvalidRequest: The address is none, or its port is taken.
    """
    monitor = subject = None
    if options.metrics_listen is not None or options.http is not None:
        from broker_shim.serve.monitor import Monitor, Subject  # noqa: PLC0415

        subject = Subject()
    if subject is not None and options.metrics_listen is not None:
        address = parse_listen(options.metrics_listen, "--metrics-listen")
        try:
            monitor = Monitor(address, subject)
        except OSError as reason:
            message = f"--metrics-listen {reason.strerror}"
            raise InvalidRequest(message) from reason
        if not address.is_loopback:
            text = "INSECURE: whoever reaches %s may read the names and figures of all queues"
            _log.warning(text, monitor.url)
    return Reporter(options.metrics_file, monitor, subject)


def show_broker(
    reporter: Reporter,
    loop: Loop,
    listener: Listener,
    broker: Broker,
    store: MessageStore,
    options: argparse.Namespace,
) -> None:
    """Show what the broker counts to whoever may ask, and write it every so often."""
    if not reporter.is_asked_for:
        return
    from broker_shim.serve.metric_families import ProcessRole, broker_families  # noqa: PLC0415

    role = ProcessRole.BROKER
    if options.store is not None:
        role = ProcessRole.MEMBER
    elif options.store_socket is not None or options.store_listen is not None:
        role = ProcessRole.SERVICE
    member = options.member or ""

    def trouble() -> str | None:
        return "stopping" if broker.is_stopping else trouble_of(store)

    def write() -> None:
        reporter.write()
        loop.later(_REPORT_S, write)

    reporter.serving(
        lambda: broker_families(broker, store, listener.connection_count, role, member),
        trouble,
        loop.post,
    )
    write()
