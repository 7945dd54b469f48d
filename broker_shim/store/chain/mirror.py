"""A member of a chain that is a store itself: the same queues, the same messages, the same numbers.

It can take the first store's place: what it has completed survives as its own tiers promise.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import islice
from typing import Any, Protocol
from uuid import uuid4

from broker_shim.completion import OnComplete, wait_for
from broker_shim.errors import InvalidRequest, StoreError
from broker_shim.store.chain.calls import StoreCall
from broker_shim.store.chain.difference import CATEGORY, Missing, difference
from broker_shim.store.interface import (
    LinkKey,
    MessageStore,
    StoredMessage,
    TransactionContext,
)
from sparkstore.core.state_machine.branches import PREPARED
from sparkstore.core.xids import xid_text

_log = logging.getLogger(__name__)

_SELF, _FIRST = "self", "first"
_PIECE_BYTES = 1 << 20
_AT_ONCE = 256
"""Calls under way while it catches up."""
MAX_DISTANCE = 100_000


class MirrorStore(MessageStore, Protocol):
    """A store that takes messages with the numbers that another one gave them."""

    def adopt(self, message: StoredMessage) -> bool:
        """Let a message be enqueued that another store made; False if it is here already.

        Raises:
            InvalidRequest: A value of a wrong type.
            StoreError: The store takes no records now.
        """


class Mirror:
    """See `ChainMember`."""

    def __init__(self, name: str, store: MirrorStore, first: MessageStore) -> None:
        """Follow `first`; `catch_up` before the chain takes calls.

        Args:
            name: What logs, metrics and errors call it.
            store: Gets what `first` accepts; it is the mirror's from now on, which closes it.
            first: Where content is read that came in pieces.
        """
        self._name, self._store, self._first = name, store, first
        self._known: Mapping[str, Any] = {}  # what the first store is called
        self._gone: set[int] = set()
        self._links: set[LinkKey] = set()
        self._staged: dict[int, StoredMessage] = {}  # by the calls that are being applied

    @property
    def name(self) -> str:
        """What logs, metrics and errors call it."""
        return self._name

    def catch_up(self, max_distance: int = MAX_DISTANCE) -> int:
        """Make it alike to the first store, as it is before the first call of the chain.

        Returns:
            How many calls it was behind.

        Raises:
            InvalidRequest: It follows another store, is more than `max_distance` calls behind, or
                one of both has a branch in doubt; nothing was done to its messages.
            StoreError: A store failed.
        """
        self._check_decided()
        self._known = self._known_first()
        ours, theirs = self._first.recover(), self._store.recover()
        self._links = set(theirs.links)
        lacking = list(islice(difference(ours, theirs), max_distance + 1))
        if len(lacking) > max_distance:
            message = f"{self._name} is more than {max_distance} calls behind: copy the first root"
            message += ", or allow a larger distance"
            raise InvalidRequest(message)
        if lacking:
            _log.info("%s catches up: it is %d calls behind", self._name, len(lacking))
        wait_for([partial(self._note, is_alike=not lacking)])
        calls = self._loaded(lacking)
        while some := list(islice(calls, _AT_ONCE)):
            wait_for(partial(self.apply, [call]) for call in some)
        wait_for([partial(self._note, is_alike=True)])
        return len(lacking)

    def apply(self, calls: Sequence[StoreCall], on_complete: OnComplete) -> None:
        """See `ChainMember.apply`."""
        self._staged.clear()
        try:
            calls = [ours for call in calls if (ours := self._translated(call)) is not None]
            if len(calls) == 1:
                self._make(calls[0], on_complete, None)
            else:
                transaction = self._store.begin()
                for call in calls:
                    self._make(call, _ignore, transaction)
                self._store.commit(transaction, on_complete)
        except StoreError as error:
            on_complete(error)

    def flush(self, on_complete: OnComplete) -> None:
        """See `ChainMember.flush`."""
        self._store.flush(on_complete)

    def drop(self) -> None:
        """See `ChainMember.drop`: if it still can, it says that it is not alike any more."""
        with suppress(StoreError):
            self._note(_ignore, is_alike=False)

    def close(self) -> None:
        """See `ChainMember.close`."""
        self._store.close()

    def _check_decided(self) -> None:
        """Raises InvalidRequest if a branch is in doubt: no call would tell a mirror of it."""
        for store, whose in ((self._first, "the first store"), (self._store, self._name)):
            branches: Any = getattr(store, "prepared", list)()
            found = [xid_text(each.xid) for each in branches if each.state == PREPARED]
            if found:
                message = f"{self._name} cannot follow the first store: {whose} has {len(found)}"
                message += f" branches in doubt, such as {found[0]}: decide them first"
                raise InvalidRequest(f"{message} (sparkstore transactions)")

    def _known_first(self) -> Mapping[str, Any]:
        """How the first store is called by those that follow it.

        Raises:
            InvalidRequest: The mirror has followed another one, or is no mirror and not empty.
        """
        known = self._first.recover().configured.get((CATEGORY, _SELF))
        if known is None:
            known = {"id": str(uuid4())}
            wait_for([partial(self._first.configure, CATEGORY, _SELF, known)])
        theirs = self._store.recover()
        followed = theirs.configured.get((CATEGORY, _FIRST))
        if followed is None and (theirs.queues or theirs.exchanges or theirs.configured):
            raise InvalidRequest(f"{self._name} is not empty, and has followed no store yet")
        if followed is not None and followed["id"] != known["id"]:
            raise InvalidRequest(f"{self._name} follows another store: give it an empty root")
        return known

    def _note(self, on_complete: OnComplete, *, is_alike: bool) -> None:
        """Keep whom it follows, and whether it has all that was told there."""
        detail = {**self._known, "is_alike": is_alike}
        self._store.configure(CATEGORY, _FIRST, detail, on_complete)

    def _loaded(self, lacking: Sequence[StoreCall | Missing]) -> Iterator[StoreCall]:
        for each in lacking:
            if isinstance(each, Missing):
                message = self._first.load(each.message_id)
                yield StoreCall("enqueue", (message, each.queue), {})
            else:
                yield each

    def _translated(self, call: StoreCall) -> StoreCall | None:
        """What is to be called here; None if it is about what was gone before we heard of it.

        That may be a message whose content nobody has any more: it is never enqueued. Or it is a
        link that was closed before the commit, which the first store left out, too.
        """
        about: Any = call.arguments[0]
        if call.operation == "enqueue":
            message = self._taken_over(about)
            return message and call._replace(arguments=(message, *call.arguments[1:]))
        if call.operation in {"acquire", "release", "dequeue"}:
            return None if about in self._gone else call
        if call.operation == "attach":
            self._links.add(about)
        elif call.operation == "detach" and call.options["closed"]:
            self._links.discard(about)
        is_of_link = call.operation in {"unsettled", "settle"}
        return None if is_of_link and about not in self._links else call

    def _taken_over(self, message: StoredMessage) -> StoredMessage | None:
        """The message to enqueue here, content and all; None if nobody has its content any more."""
        message_id = message.message_id
        is_new = self._store.adopt(message)
        if not message.is_staged:
            return message
        if not is_new:  # as it is here: on another queue, or about to be
            return self._staged.get(message_id) or self._store.load(message_id)
        writer = self._store.content(message._replace(is_staged=False))
        at = 0
        try:
            while piece := self._first.read(message_id, at, _PIECE_BYTES):
                writer.add(piece, _ignore)
                at += len(piece)
        except InvalidRequest:  # it left its last queue while its enqueue was on its way to us
            self._gone.add(message_id)
            return None
        self._staged[message_id] = writer.end(_ignore)
        return self._staged[message_id]

    def _make(
        self, call: StoreCall, on_complete: OnComplete, transaction: TransactionContext | None
    ) -> None:
        make: Any = partial(getattr(self._store, call.operation), *call.arguments, **call.options)
        if transaction is None:
            make(on_complete=on_complete)
        else:
            make(on_complete=on_complete, transaction=transaction)


def take_place(store: MessageStore, *, accept_loss: bool = False) -> bool:
    """Make a mirror a store of its own, before it takes calls in the first store's place.

    It follows nobody from then on: a chain that would make it like its old first store is refused.

    Returns:
        False if it was no mirror; then nothing was done.

    Raises:
        InvalidRequest: It was catching up, or was dropped, when its chain ended: acknowledged
            messages may be missing.
    """
    followed = store.recover().configured.get((CATEGORY, _FIRST))
    if followed is None:
        return False
    if not (followed["is_alike"] or accept_loss):
        raise InvalidRequest(
            "this root mirrors another one, and was behind when that ended: serve the other, or"
            " accept the loss of what it lacks (--accept-loss)"
        )
    wait_for([partial(store.configure, CATEGORY, _FIRST, None)])
    _log.warning("this root was a mirror of another one; it is a store of its own from now on")
    return True


def _ignore(_error: StoreError | None) -> None:
    """What matters is told by the call that follows it."""
