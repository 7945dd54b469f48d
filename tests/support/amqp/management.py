"""A client of `$management`: requests on one link, answers from a queue of its own."""

from __future__ import annotations

from typing import Any, NamedTuple

import proton

from broker_shim.amqp_1_0.composites import Accepted, Detach, Disposition, Rejected, Source, Target
from broker_shim.amqp_1_0.composites import Transfer as TransferFrame
from broker_shim.store.interface import Queue
from tests.support.amqp.link_clients import Client, House

ANSWERS = "answers"


class Told(NamedTuple):
    """An answer: status, one line for people, body, and the other application properties."""

    status: int
    text: str
    body: Any
    properties: dict[str, Any]


class Manager:
    """Asks as the client; somebody who may do everything reads the answers."""

    def __init__(self, house: House, client: Client) -> None:
        self.client = client
        if ANSWERS not in house.broker.queues:
            house.broker.create_queue(Queue(ANSWERS), lambda _error: None)
            house.run()
        self._reader = Client(house, "reader")
        self._reader.attach("answers", source=Source(ANSWERS), snd_settle_mode=1)
        self._reader.credit(1000)
        client.attach("requests", handle=7, is_receiver=False, target=Target("$management"))
        self._count = 0

    def send(self, body: Any = None, *, reply_to: str | None = ANSWERS, **said: Any) -> Any:
        """Send a request; return the outcome of its delivery, or the error that ended the link."""
        self._count += 1
        request = proton.Message(body, reply_to=reply_to, id=self._count, properties=said)
        return self.send_encoded(bytes(request.encode()))

    def send_encoded(self, encoded: bytes, **fields: Any) -> Any:
        """The same of a message as it is."""
        self.client.deliver_encoded(b"%d" % self._count, encoded, 7, **fields)
        ends = [told.error for told, _payload in self.client.taken(Detach)]
        told = [each.state for each, _payload in self.client.taken(Disposition)]
        return ends[0] if ends else told[-1] if told else None

    def answers(self) -> list[Told]:
        """The answers that have come."""
        found = []
        for _told, payload in self._reader.taken(TransferFrame):
            message = proton.Message()
            message.decode(payload)
            said = {str(name): value for name, value in message.properties.items()}
            assert message.correlation_id is not None
            status, text = said.pop("statusCode"), said.pop("statusDescription")
            found.append(Told(int(status), text, message.body, said))
        return found

    def ask(self, body: Any = None, **said: Any) -> Told:
        """Send a request, and return the answer."""
        outcome = self.send(body, **said)
        assert isinstance(outcome, Accepted), outcome
        (answer,) = self.answers()
        return answer

    def refused(self, body: Any = None, **said: Any) -> str:
        """Send a request that is rejected before anything is done; return the condition."""
        outcome = self.send(body, **said)
        assert isinstance(outcome, Rejected), outcome
        assert self.answers() == []
        return str(outcome.error.condition)
