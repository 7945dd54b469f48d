"""The consumer that has each message group. Pure.

Groups are kept by a hash of their name, 65,536 in all. Groups that share one go to the same
consumer, which is allowed, and the memory of a million groups is that of 65,536. A consumer that
left keeps its groups until all that it held is back or gone. Another one would otherwise get a
later message of a group before an earlier one.

After a restart messages may be held by who is not here again yet: a link that is resumed later, or
a consumer at a member. Its name stands for it until it comes, or until all that it held has ended.
"""

from __future__ import annotations

from collections.abc import Collection
from zlib import crc32

_BUCKETS = 1 << 16


def bucket_of(group: str) -> int:
    """Hash the name of a group to the bucket that it is kept by."""
    return crc32(group.encode("utf-8", "surrogatepass")) % _BUCKETS


class Groups:
    """The groups of one queue; an owner is whatever stands for a consumer."""

    def __init__(self) -> None:
        self._owners: dict[int, object] = {}
        self._holders: dict[int, object] = {}
        self._held_counts: dict[object, int] = {}
        self._leaving: set[object] = set()
        self._unplaced: dict[int, str] = {}
        self._by_name: dict[str, object] = {}

    @property
    def unplaced(self) -> Collection[int]:
        """The held messages whose group nobody has told yet."""
        return self._unplaced.keys()

    def held(self, message_id: int, holder: str) -> None:
        """Note a message that is held since before a restart; tell its group by `placed`."""
        self._unplaced[message_id] = holder

    def placed(self, message_id: int, bucket: int | None) -> None:
        """Note the group of a held message; one that has ended meanwhile changes nothing."""
        holder = self._unplaced.pop(message_id, None)
        if holder is not None:
            owner = self._by_name.get(holder, holder)
            self.handed_out(message_id, bucket, owner)
            if owner is holder:
                self._leaving.add(holder)

    def came(self, holder: str, owner: object) -> None:
        """Take up a consumer, whose name has stood for it if it held anything."""
        self._by_name[holder] = owner
        self._leaving -= {holder, owner}
        if holder in self._held_counts:
            held = self._held_counts.pop(holder)
            self._held_counts[owner] = self._held_counts.get(owner, 0) + held
            for owned in (self._owners, self._holders):
                owned |= {key: owner for key, its in owned.items() if its == holder}

    def may_have(self, bucket: int | None, owner: object) -> bool:
        """True if a message of this group (None: of no group) may go to this consumer."""
        return bucket is None or self._owners.get(bucket, owner) is owner

    def handed_out(self, message_id: int, bucket: int | None, owner: object) -> None:
        """Give a message's group to the consumer that the message went to."""
        if bucket is not None:
            self._owners[bucket] = owner
            self._holders[message_id] = owner
            self._held_counts[owner] = self._held_counts.get(owner, 0) + 1

    def ended(self, message_id: int) -> bool:
        """Forget a message that is held no more; True if groups became free."""
        self._unplaced.pop(message_id, None)
        owner = self._holders.pop(message_id, None)
        if owner is None:
            return False
        self._held_counts[owner] -= 1
        if self._held_counts[owner]:
            return False
        del self._held_counts[owner]
        return owner in self._leaving and self._free(owner)

    def left(self, owner: object) -> bool:
        """Let a consumer go; True if groups became free."""
        self._leaving.add(owner)
        for name in [name for name, its in self._by_name.items() if its is owner]:
            del self._by_name[name]
        return owner not in self._held_counts and self._free(owner)

    def _free(self, owner: object) -> bool:
        self._leaving.discard(owner)
        buckets = [bucket for bucket, its in self._owners.items() if its is owner]
        for bucket in buckets:
            del self._owners[bucket]
        return bool(buckets)
