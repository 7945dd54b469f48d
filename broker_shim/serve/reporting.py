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

if TYPE_CHECKING:
    from broker_shim.serve.monitor import Families, Monitor, Post, Trouble

_log = logging.getLogger(__name__)


class Reporter:
    """Writes the file when told to, and answers at the port, if there is one.

    Attributes:
        url: Of the port; empty without one.
    """

    def __init__(self, file: Path | None, monitor: Monitor | None) -> None:
        self._file, self._monitor = file, monitor
        self._families: Families = lambda: ()
        self.url = "" if monitor is None else monitor.url

    @property
    def is_asked_for(self) -> bool:
        """True if anybody may want the metrics."""
        return self._file is not None or self._monitor is not None

    def serving(self, families: Families, trouble: Trouble, post: Post | None = None) -> None:
        """From now on tell this; `post` if both may be asked on one thread only."""
        self._families = families
        if self._monitor is not None:
            self._monitor.subject.now(families, trouble, post)

    def stopping(self) -> None:
        """Write a last time; the owner is asked for nothing any more: it does not come round."""
        self.write()
        if self._monitor is not None:
            self._monitor.subject.now(lambda: (), lambda: "stopping", None)

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
        """Answer no more."""
        if self._monitor is not None:
            self._monitor.close()


def reporter_of(options: argparse.Namespace) -> Reporter:
    """What `--metrics-file` and `--metrics-listen` ask for; the port answers at once.

    Raises:
        InvalidRequest: The address is none, or its port is taken.
    """
    monitor = None
    if options.metrics_listen is not None:
        from broker_shim.serve.monitor import Monitor, Subject  # noqa: PLC0415

        address = parse_listen(options.metrics_listen, "--metrics-listen")
        try:
            monitor = Monitor(address, Subject())
        except OSError as reason:
            message = f"--metrics-listen {reason.strerror}"
            raise InvalidRequest(message) from reason
        if not address.is_loopback:
            text = "INSECURE: whoever reaches %s may read the names and figures of all queues"
            _log.warning(text, monitor.url)
    return Reporter(options.metrics_file, monitor)
