"""Messages that a consumer took from its queue, held by name while they are on their way."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate, groupby
from typing import Protocol, TypeVar

from broker_shim.broker.storage.store_puts import STAGED_BYTES
from broker_shim.messages.hold import Hold, Messages
from broker_shim.store.interface import Content, Entry, MessageHeader
from sparkstore.core.entries import EntryFacts, facts_of
from sparkstore.core.packed_integers import as_range

_Mark = TypeVar("_Mark")


class Decision(Protocol):
    """A decision of a client about messages that is not carried out yet."""

    def cut(self, rest: TakenRun) -> Decision:
        """Hear that its messages were cut, and return the decision about the rest."""


class TakenRun:
    """A consumer's messages that follow each other, one at least, until something parts them.

    Attributes:
        hold: The consumer's hold on them.
        facts: What their entries on the queue say of each, as columns.
        is_large: The content is not brought into memory whole, but read as it is sent: a run of
            one.
        is_again: Its client was sent it before, and waits for it: a run of one.
        contents: The content of each, as far as it is here; of a large one there is none.
        header: Of a large one, once it was read.
        decision: What has them since their client decided about them, and is cut with them; None:
            it has not.
        within: The transaction in which they were acquired; None: in none.
        charge: The number of the grant of credit that paid for them (`Outlet.took`).
    """

    __slots__ = (
        "charge",
        "contents",
        "decision",
        "facts",
        "header",
        "hold",
        "is_again",
        "is_large",
        "within",
    )

    def __init__(
        self, hold: Hold, facts: EntryFacts, *, is_large: bool = False, is_again: bool = False
    ) -> None:
        """Begin with no content."""
        self.hold, self.facts, self.is_large, self.is_again = hold, facts, is_large, is_again
        self.contents: list[Content | None] = []
        self.header: MessageHeader | None = None
        self.decision: Decision | None = None
        self.within: object = None
        self.charge = 0

    def __len__(self) -> int:
        """The number of messages."""
        return len(self.hold.message_ids)

    @property
    def message_ids(self) -> Sequence[int]:
        """The ids of the messages."""
        return self.hold.message_ids

    @property
    def held_bytes(self) -> int:
        """How much of them is in memory on its way."""
        return 0 if self.is_large else sum(self.facts.message_bytes)

    @property
    def headers(self) -> list[MessageHeader]:
        """The header of each, when it is here."""
        if self.header is not None:
            return [self.header]
        return [content[0] for content in self.contents if content is not None]

    @property
    def bodies(self) -> list[bytes]:
        """The content of each, when it is here."""
        return [content[1] for content in self.contents if content is not None]

    def has_expired(self, now_us: int) -> list[bool]:
        """Tell of each whether it is too old to be delivered now, UTC µs."""
        ends = self.facts.expires_at
        if ends.count(None) == len(ends):  # as most
            return [False] * len(ends)
        return [end is not None and end <= now_us for end in ends]

    def cut(self, count: int) -> TakenRun:
        """Keep the first `count` messages, some but not all, and return the rest."""
        facts = self.facts.part(slice(count, None))
        rest = TakenRun(self.hold.cut(count), facts, is_large=self.is_large, is_again=self.is_again)
        rest.contents, rest.within, rest.charge = self.contents[count:], self.within, self.charge
        rest.decision = None if self.decision is None else self.decision.cut(rest)
        self.facts, self.contents = self.facts.part(slice(count)), self.contents[:count]
        return rest

    def parts(self, marks: Sequence[_Mark]) -> Iterator[tuple[_Mark, TakenRun]]:
        """Cut it where what is said of neighbours differs; `marks` has an item for each message."""
        run = self
        for mark, alike in groupby(marks):
            count = len([*alike])
            part, run = run, run.cut(count) if count < len(run) else run
            yield mark, part

    def singles(self) -> Iterator[TakenRun]:
        """Cut it into runs of one."""
        return (part for _mark, part in self.parts(range(len(self))))

    def went(self) -> None:
        """Let go of all but the hold, as the consumer has the content."""
        self.contents, self.facts = [], EntryFacts()

    def release(self) -> None:
        """Let go of the messages: the consumer has them no longer."""
        self.hold.release()


def taken(
    messages: Messages,
    entries: Mapping[int, Entry],
    message_ids: Sequence[int],
    holder: str,
    *,
    whole: bool,
    most_bytes: int,
    is_again: bool = False,
) -> list[TakenRun]:
    """Take messages up, to bring their content into memory, but for large ones.

    Args:
        messages: Of the broker.
        entries: Those of the queue that they are on.
        message_ids: One at least, none twice.
        holder: Who takes them.
        whole: The content is needed in memory at once, however large.
        most_bytes: So much comes into memory, and one message more; the others are left.
        is_again: Of a run of one: its client was sent it before.
    """
    message_ids = as_range(message_ids)
    facts = facts_of(entries, message_ids)
    are_large = [not whole and size > STAGED_BYTES for size in facts.message_bytes]
    runs, at, left = list[TakenRun](), 0, most_bytes
    for is_large, alike in groupby(are_large):
        end = at + len([*alike])
        while at < end and left >= 0:
            sizes = [0] if is_large else facts.message_bytes[at:end]
            fitting = 1 + bisect_right([*accumulate(sizes)], left)  # of these, and one more
            part = slice(at, at + min(fitting, len(sizes)))
            hold = Hold(messages, message_ids[part], holder)
            run = TakenRun(hold, facts.part(part), is_large=is_large, is_again=is_again)
            runs.append(run)
            left -= run.held_bytes
            at = part.stop
    return runs
