"""Headers of many messages, read on a thread of their own: storage may take its time.

One thread, which the first question starts, answers one after the other in their order; a store
that is closed meanwhile answers `Closed`. It shares nothing with the loop: what is asked and
answered are values, and the store may be called by any thread.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from broker_shim.errors import ENDED, NotNow, StoreError, Unavailable
from broker_shim.store.interface import MessageHeader

_log = logging.getLogger(__name__)

ReadHeaders = Sequence[MessageHeader | None]
Read = Callable[[Sequence[int]], ReadHeaders]
OnRead = Callable[[StoreError | None, ReadHeaders], None]


class HeaderReader:
    """Asks `read` for headers, beside its caller."""

    def __init__(self, read: Read) -> None:
        self._read = read
        self._thread = ThreadPoolExecutor(1, "headers")

    def ask(self, message_ids: Sequence[int], on_read: OnRead) -> None:
        """Read; `on_read` is called on the reader's thread, with an error or all of them."""
        self._thread.submit(self._answer, message_ids, on_read)

    def _answer(self, message_ids: Sequence[int], on_read: OnRead) -> None:
        try:
            headers, error = self._found(message_ids), None
        except StoreError as reason:
            headers, error = [], reason
        except BaseException as reason:  # noqa: BLE001  # the caller waits for an answer
            _log.exception("headers could not be read")
            headers, error = [], Unavailable(f"{type(reason).__name__}: {reason}")
        on_read(error, headers)

    def _found(self, message_ids: Sequence[int]) -> ReadHeaders:
        try:
            return self._read(message_ids)
        except (NotNow, *ENDED):
            raise
        except StoreError as error:
            # One message that cannot be read must not hide the others: nobody is offered it.
            if len(message_ids) == 1:
                _log.error("message %d cannot be looked at: %s", message_ids[0], error)
                return [None]
            return [header for message_id in message_ids for header in self._found([message_id])]
