"""A witness behind a network that is late or fails: for models of who may serve."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from sparkstore.errors import Unavailable
from sparkstore.storage.storage import StoredContent


@dataclass
class World:
    """What all machines share: real time, and what happens to the requests of one of them.

    Attributes:
        now: Seconds.
        fault: What becomes of a request.
        delay_s: How long it is on its way, and as long its answer.
        meanwhile: What another machine does after the next request's work, before its answer.
    """

    now: float = 0.0
    fault: str = ""
    delay_s: float = 0.0
    meanwhile: Callable[[], None] | None = None


class Network:
    """The witness, behind a network that is late or fails as the world says.

    It is in memory, and conditional as every place is (`tests/contract/test_witness_places.py`): so
    some hundred lives are tried in a second.
    """

    location = "the witness"

    def __init__(self, world: World) -> None:
        self._world = world
        self._content: bytes | None = None

    def read(self) -> StoredContent | None:
        return StoredContent(self._content, str(self._content)) if self._content else None

    def put_if_absent(self, content: bytes) -> bool:
        return self._put(content, None)

    def replace_if_unchanged(self, content: bytes, tag: str) -> bool:
        return self._put(content, tag)

    def delete(self) -> None:
        self._content = None

    def _put(self, content: bytes, tag: str | None) -> bool:
        world = self._world
        world.now += world.delay_s
        if world.fault == "not sent":
            raise Unavailable("cut off")
        if (None if self._content is None else str(self._content)) == tag:
            self._content = content
        stands, fault = self._content == content, world.fault
        world.now += world.delay_s
        if world.meanwhile is not None:
            then, world.meanwhile = world.meanwhile, None
            then()
        if fault == "not answered":
            raise Unavailable("the answer was lost")
        return stands
