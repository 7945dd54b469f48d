"""Which consumer has a message group. Pure.

Groups are kept by a hash of their name, 65,536 in all: groups that share one go to the same
consumer, which is allowed, and the memory of a million groups is that of 65,536. A consumer that
left keeps its groups until all that it held is back or gone: another one would otherwise get a
later message of a group before an earlier one.
"""

from __future__ import annotations

from zlib import crc32

_BUCKETS = 1 << 16


def bucket_of(group: str) -> int:
    """What stands for a group."""
    return crc32(group.encode("utf-8", "surrogatepass")) % _BUCKETS


class Groups:
    """The groups of one queue; an owner is whatever stands for a consumer."""

    def __init__(self) -> None:
        self._owners: dict[int, object] = {}
        self._holders: dict[int, object] = {}
        self._held_counts: dict[object, int] = {}
        self._leaving: set[object] = set()

    def may_have(self, bucket: int | None, owner: object) -> bool:
        """True if a message of this group (None: of no group) may go to this consumer."""
        return bucket is None or self._owners.get(bucket, owner) is owner

    def handed_out(self, message_id: int, bucket: int | None, owner: object) -> None:
        """A message went to a consumer, who has its group from now on."""
        if bucket is not None:
            self._owners[bucket] = owner
            self._holders[message_id] = owner
            self._held_counts[owner] = self._held_counts.get(owner, 0) + 1

    def ended(self, message_id: int) -> bool:
        """A message is held no more; True if groups became free."""
        owner = self._holders.pop(message_id, None)
        if owner is None:
            return False
        self._held_counts[owner] -= 1
        if self._held_counts[owner]:
            return False
        del self._held_counts[owner]
        return owner in self._leaving and self._free(owner)

    def left(self, owner: object) -> bool:
        """A consumer is gone; True if groups became free."""
        self._leaving.add(owner)
        return owner not in self._held_counts and self._free(owner)

    def _free(self, owner: object) -> bool:
        self._leaving.discard(owner)
        buckets = [bucket for bucket, each in self._owners.items() if each is owner]
        for bucket in buckets:
            del self._owners[bucket]
        return bool(buckets)
