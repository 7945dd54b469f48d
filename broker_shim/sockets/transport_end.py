"""The end of a transport: without cycles, so that nothing waits for Python's collector."""

from __future__ import annotations

import asyncio


def let_go(transport: asyncio.BaseTransport) -> None:
    """Break the cycles of a transport whose connection is lost: its own methods, kept in itself.

    Some versions of asyncio leave these in a transport that is over. It is called by nobody any
    more then but to close its socket, which needs none of them.
    """
    attributes = getattr(transport, "__dict__", {})
    for name in [
        name for name, value in attributes.items() if getattr(value, "__self__", None) is transport
    ]:
        del attributes[name]
