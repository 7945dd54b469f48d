"""An add-on that sends messages elsewhere by what their headers say: it puts the header together.

It shows why header and body are put together where they are needed. This handler needs the header
early, attaches it to the command, and forwards the frames of the body, which it has no use for.
"""

from __future__ import annotations

from broker_shim.amqp_0_10.commands import MessageTransfer
from broker_shim.amqp_0_10.structs import MessageDeliveryProperties
from broker_shim.errors import InvalidRequest
from broker_shim.framing.assembly import Assembly
from broker_shim.framing.frames import Frame
from broker_shim.framing.segments import HeaderSegment
from broker_shim.handlers.content import ContentCollector
from broker_shim.handlers.handler import AssemblyHandler
from broker_shim.handlers.handler_chain import HandlerContext

_MOST_NAME_BYTES = 255


class HeaderRouter:
    """Route transfers with a certain application header to another exchange and routing key."""

    def __init__(
        self,
        then: AssemblyHandler,
        _context: HandlerContext,
        *,
        header: str,
        value: str | float | bool | None = None,
        exchange: str = "",
        routing_key: str,
    ) -> None:
        """Check the names and the value that the settings give.

        Args:
            then: The next handler.
            header: The name of an application header.
            value: What it has to be; None: whatever it is.
            exchange: Where such messages go; the default exchange if it is empty.
            routing_key: The routing key that they get; with the default exchange, their queue.

        Raises:
            InvalidRequest: A name is no text, or too long for a message.
        """
        names = {"header": header, "exchange": exchange, "routing_key": routing_key}
        for name, text in names.items():
            if not isinstance(text, str) or len(text.encode()) > _MOST_NAME_BYTES:
                message = f"header-router: {name} is text of at most {_MOST_NAME_BYTES} bytes"
                raise InvalidRequest(message)
        if not isinstance(value, str | int | float | None):
            raise InvalidRequest("header-router: value is text, a number, true or false")
        self._then = then
        self._header, self._value = header, value
        self._exchange, self._routing_key = exchange, routing_key
        self._content = ContentCollector(wants_body=False)

    def handle_assembly(self, assembly: Assembly) -> None:
        """Collect a transfer until its header is known, and forward other assemblies at once."""
        if not isinstance(assembly.method, MessageTransfer):
            self._then.handle_assembly(assembly)
        elif self._content.begin(assembly):
            self._forward(assembly)

    def handle_frame(self, frame: Frame) -> None:
        """Add a frame to the transfer that is collected, or forward it."""
        if not self._content.is_open:
            self._then.handle_frame(frame)
            return
        assembly, after = self._content.add(frame)
        if assembly is not None:
            self._forward(assembly)
        if after is not None:
            self._then.handle_frame(after)

    def _forward(self, assembly: Assembly) -> None:
        if assembly.header is not None and self._is_meant(assembly.header):
            transfer = assembly.method
            assert isinstance(transfer, MessageTransfer)
            transfer.destination = self._exchange
            delivery = assembly.header.delivery
            delivery.routing_key = self._routing_key
            rest = [
                struct
                for struct in assembly.header.structs
                if not isinstance(struct, MessageDeliveryProperties)
            ]
            assembly.header = HeaderSegment.of(delivery, *rest)
        self._then.handle_assembly(assembly)

    def _is_meant(self, header: HeaderSegment) -> bool:
        headers = header.message.application_headers or {}
        if self._header not in headers:
            return False
        return self._value is None or headers[self._header] == self._value
