"""The coordinator of local transactions: a link on which a client declares and discharges them.

A command is answered by the outcome of its delivery: `Declared` with the id; accepted once the
discharge is done, durably; rejected with the reason. If the link ends, the transactions declared on
it are rolled back (4.1). That is also how a client is told that the outcome of one is not known,
when the store did not answer.
"""

from __future__ import annotations

from broker_shim.amqp_1_0.composites import (
    Accepted,
    Coordinator,
    Declare,
    Declared,
    Discharge,
    Modified,
    Rejected,
    Released,
)
from broker_shim.amqp_1_0.definitions import AMQP_VALUE_SECTION, AmqpError, TxnCapability
from broker_shim.errors import Full, InvalidRequest, NotAcquired, StoreError
from broker_shim.listener_1_0.conditions import Refusal, refusal_of
from broker_shim.listener_1_0.connections.connection import Connection
from broker_shim.listener_1_0.outcomes import ACCEPTED
from broker_shim.listener_1_0.receiving.command_link import CommandLink
from broker_shim.protocol_1_0.codec.decoder import read
from broker_shim.protocol_1_0.codec.errors import DecodeError
from broker_shim.protocol_1_0.codec.sections import sections_of
from broker_shim.protocol_1_0.links.link import Delivery
from broker_shim.protocol_1_0.links.receiver import ReceiverLink
from broker_shim.transactions.transaction_refusals import (
    TransactionRefused,
    not_served,
    rolled_back,
)

MOST_BYTES = 4096
"""Of a command: an id has 32 bytes at most, and around it a client may write headers."""
_CREDIT = 64
"""Commands that a client may have on their way: it need not wait for the answer to one."""

_CAPABILITIES = (
    TxnCapability.LOCAL_TRANSACTIONS,
    TxnCapability.MULTI_TXNS_PER_SSN,
    TxnCapability.MULTI_SSNS_PER_TXN,
)
_OUTCOMES = tuple(kind.DESCRIPTOR for kind in (Accepted, Rejected, Released, Modified, Declared))


def attach_coordinator(connection: Connection, link: ReceiverLink) -> None:
    """Serve a link to a coordinator, and tell what it can do, whatever was asked for."""
    served = CoordinatorLink(connection, link, _CREDIT)
    served.serve(Coordinator(_CAPABILITIES), _OUTCOMES, MOST_BYTES)


class CoordinatorLink(CommandLink):
    """Our end of a control link, which takes no command over `MOST_BYTES`."""

    def gone(self) -> None:
        """Roll back what was declared on the link and not discharged."""
        super().gone()
        self._connection.transactions.abandon(self.end)

    def end(self, refusal: TransactionRefused) -> None:
        """Terminate the link: what was declared on it is rolled back."""
        self._detach(refusal_of(refusal))
        self._connection.has_output()

    def _take(self, delivery: Delivery, encoded: bytes) -> None:
        try:
            self._act(delivery, read_command(encoded))
        except DecodeError as reason:
            self._detach(refusal_of(reason))
        except TransactionRefused as refusal:
            self._reject(delivery, refusal_of(refusal))
        self._take_more()
        self._connection.has_output()

    def _act(self, delivery: Delivery, command: Declare | Discharge) -> None:
        """Do a command. Raises TransactionRefused if it cannot be done."""
        transactions = self._connection.transactions
        if isinstance(command, Discharge):

            def done(error: StoreError | None) -> None:
                self._discharged(delivery, error)

            transactions.discharge(command.txn_id, done, fail=command.fail is True)
        elif command.global_id is not None:
            raise not_served("distributed transactions")
        elif delivery.is_settled:
            text = "a declare must not be sent settled: its answer is the id"
            self._detach(Refusal(AmqpError.NOT_ALLOWED, text))
        else:
            self._answer(delivery, Declared(transactions.declare(self.end)))

    def _discharged(self, delivery: Delivery, error: StoreError | None) -> None:
        if error is None:
            self._answer(delivery, ACCEPTED)
        elif isinstance(error, TransactionRefused):
            self._reject(delivery, refusal_of(error))
        elif isinstance(error, Full | InvalidRequest | NotAcquired):
            self._reject(delivery, refusal_of(rolled_back(str(error))))
        else:
            self._in_doubt(error)

    def _in_doubt(self, error: StoreError) -> None:
        """The store has not said what became of it: whatever were answered could be wrong."""
        text = f"it is not known whether the transaction is committed: {error}"
        self._detach(Refusal(AmqpError.INTERNAL_ERROR, text))

    def _detach(self, refusal: Refusal) -> None:
        self._connection.transactions.abandon(self.end)
        super()._detach(refusal)


def read_command(encoded: bytes) -> Declare | Discharge:
    """The command in a message to a coordinator, whose only value it is (4.2, 4.3).

    Raises:
        DecodeError: It is no message, or says something else than declare or discharge.
    """
    for code, _start, value, end in sections_of(encoded):
        if code == AMQP_VALUE_SECTION:  # of which a message has one at most
            command, read_to = read(encoded, value)
            if isinstance(command, Declare | Discharge) and read_to == end:
                return command
    raise DecodeError("a message to a coordinator is an amqp-value: a declare or a discharge")
