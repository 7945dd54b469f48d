"""Content of one member that comes in pieces. Pure."""

from __future__ import annotations

from broker_shim.errors import InvalidRequest
from broker_shim.service.decisions.arrivals import Fields, check_record, message_of, record_of
from sparkstore.core import records
from sparkstore.core.records import Kind, Record
from sparkstore.core.state_machine.arguments import PIECE_BYTES, check_size
from sparkstore.core.state_machine.call_values import RecordStep, StoredMessage
from sparkstore.core.state_machine.state_machine import StoreStateMachine

_BODY = Record._fields.index("body")


class StagedContents:
    """The content of one member that has not come whole.

    Attributes:
        bytes_of: How much came, by message. It is of this run of the service: to another one the
            member sends all pieces again, or the log has them with their header.
    """

    def __init__(self, machine: StoreStateMachine, max_message_bytes: int) -> None:
        self._machine, self._max_message_bytes = machine, max_message_bytes
        self.bytes_of: dict[int, int] = {}

    def piece(self, fields: Fields) -> list[RecordStep]:
        """A piece of content, in order; one that came before is taken as done.

        Raises:
            InvalidRequest: It is no piece, one before it is missing, or the content is too large.
        """
        record = record_of(check_record(fields))
        message_id, start, body = (
            record.message_id or 0,
            record.body_offset or 0,
            record.body or b"",
        )
        if record.kind is not Kind.CONTENT or len(body) > PIECE_BYTES:
            message = f"PIECE takes one content record of at most {PIECE_BYTES} bytes"
            raise InvalidRequest(message)
        check_id(self._machine, message_id)
        self._machine.check_free(message_id)
        if message_id in self._machine.state.messages:
            message = f"message {message_id} has its content already: make a new message"
            raise InvalidRequest(message)
        check_size(start + len(body), self._max_message_bytes)
        size = self.bytes_of.get(message_id, 0)
        if message_id in self.bytes_of and start + len(body) <= size:
            return []
        if start != size:
            message = f"message {message_id}: a piece at {start} came, the next is that at {size}"
            raise InvalidRequest(message)
        self.bytes_of[message_id] = start + len(body)
        header = None if record.message is None else message_of((*fields[:_BODY], None)).header
        made = records.content_staged(self._machine.now_us(), message_id, start, body)
        return [RecordStep(made._replace(message=header), is_kept=True)]

    def check_whole(self, message: StoredMessage) -> None:
        """Check that no pieces of a message are missing. Raises InvalidRequest if so."""
        if (
            message.message_id in self._machine.state.staged
            and message.message_id not in self.bytes_of
        ):
            return  # it came to another run of the service, with its header
        size = self.bytes_of.get(message.message_id, 0)
        if size != message.header.body_bytes:
            refusal = (
                f"of message {message.message_id} came {size} bytes in pieces, its header says"
                f" {message.header.body_bytes}: send its pieces first"
            )
            raise InvalidRequest(refusal)

    def abort(self, message_id: int) -> list[RecordStep]:
        """A message that was staged with its header will not be enqueued.

        Raises:
            InvalidRequest: It is not staged.
        """
        steps = self._machine.abort_staging(message_id)
        self.bytes_of.pop(message_id, None)
        return steps


def check_id(machine: StoreStateMachine, message_id: int) -> None:
    """Check an id of a message. Raises InvalidRequest if it was never given out."""
    if not machine.is_reserved(message_id):
        message = f"message id {message_id} was never given out: ask for ids by IDS"
        raise InvalidRequest(message)
