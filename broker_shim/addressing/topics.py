"""Patterns of words with dots between: `*` is one word, `#` any number of words, none too. Pure.

They are kept as a tree of words, so a look-up costs the words of its key times the patterns that
still fit, not the number of patterns. Topic exchanges, settings of addresses and permissions are
said in them. A client's text is looked up only if it is not `too_long`: a look-up is on the loop's
thread, and a message may have a megabyte of dots for its address or subject.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from sparkstore.core.queue_names import WordPattern, words_of

MOST_CHARACTERS = 10_000
"""Of an address or a routing key: no name in a store is longer."""
MOST_WORDS = 256
"""As many as a routing key of AMQP 0-9-1 or 0-10 can have, which is 255 bytes long."""

MOST_HASHES = 8
"""In the pattern of a client's subscription."""
_MOST_AFTER_HASH = 4
"""Words after its first `#` of a pattern that is kept in the tree."""

_WHAT = "an address or a routing key"


def too_long(text: str) -> str | None:
    """Return why a client's address or routing key is not looked up; None if it may be."""
    if len(text) > MOST_CHARACTERS:
        return f"{_WHAT} has at most {MOST_CHARACTERS} characters, not {len(text)}"
    words = text.count(".") + 1
    if words > MOST_WORDS:
        return f"{_WHAT} has at most {MOST_WORDS} words, not {words}"
    return None


def too_wild(pattern: str) -> str | None:
    """Return the reason why a client may not subscribe by a pattern; None if it may."""
    count = pattern.split(".").count("#")
    if count > MOST_HASHES:
        return f"a pattern has at most {MOST_HASHES} words that are #, not {count}"
    return None


@dataclass(slots=True)
class _TopicNode:
    """A word of some patterns: the words that follow it, and the names whose pattern ends here.

    A name is there once for each of its patterns that mean the same.
    """

    is_hash: bool = False
    children: dict[str, _TopicNode] = field(default_factory=dict)
    names: dict[str, set[str]] = field(default_factory=dict)


class TopicBindings:
    """Bindings by patterns of words, as topic exchanges have them.

    Patterns that mean the same are one: of a run of `*` and `#` the `#` goes to its end, once. Most
    are in the tree. One with much behind a `#` would have as many places in the tree under way as
    it has words, and is a row of bits of its own (`_Row`).
    """

    def __init__(self) -> None:
        self._root = _TopicNode()
        self._rows: dict[tuple[str, ...], _Row] = {}

    def bind(self, binding_key: str, queue: str) -> None:
        """Add a pattern for a name; again changes nothing."""
        words = words_of(binding_key)
        if _is_wild(words):
            names = self._rows.setdefault(words, _Row(words)).names
        else:
            node = self._root
            for word in words:
                node = node.children.setdefault(word, _TopicNode(is_hash=word == "#"))
            names = node.names
        names.setdefault(queue, set()).add(binding_key)

    def unbind(self, binding_key: str, queue: str) -> None:
        """Remove a pattern; one that does not exist changes nothing.

        Branches that end in nothing are cut.
        """
        words = words_of(binding_key)
        if _is_wild(words):
            row = self._rows.get(words)
            if row is not None and _taken(row.names, binding_key, queue) and not row.names:
                del self._rows[words]
            return
        path = [self._root]
        for word in words:
            child = path[-1].children.get(word)
            if child is None:
                return
            path.append(child)
        _taken(path[-1].names, binding_key, queue)
        for word, parent in zip(reversed(words), reversed(path[:-1]), strict=True):
            child = parent.children[word]
            if child.children or child.names:
                return
            del parent.children[word]

    def route(self, routing_key: str) -> set[str]:
        """The names whose patterns fit a key, each once.

        All patterns of the tree are followed at once, word by word, as the set of nodes they have
        come to. A node is followed once a word, and of one pattern only a few are (`_is_wild`), so
        the cost is at most words × patterns, whatever they are.
        """
        words = routing_key.split(".")
        here = _with_nothing_for_hashes([self._root])
        for word in words:
            following = []
            for node in here:
                if node.is_hash:
                    following.append(node)
                following += [
                    node.children[step] for step in {word, "*"} - {"#"} if step in node.children
                ]
            here = _with_nothing_for_hashes(following)
        fitting = set().union(*(node.names for node in here))
        for row in self._rows.values():
            if row.fits(words):
                fitting.update(row.names)
        return fitting


class _Row(WordPattern):
    """A pattern that is not in the tree, with the names that are bound by it."""

    def __init__(self, words: tuple[str, ...]) -> None:
        super().__init__(words)
        self.names: dict[str, set[str]] = {}


def _is_wild(words: Sequence[str]) -> bool:
    """True if many places of a pattern can be under way at once: many words follow its first `#`.

    Before it there is one place a word.
    """
    return "#" in words and len(words) - 1 - words.index("#") > _MOST_AFTER_HASH


def _taken(names: dict[str, set[str]], binding_key: str, queue: str) -> bool:
    """Take a pattern from a name, and the name if it has no other; False if it has none of it."""
    patterns = names.get(queue)
    if patterns is None:
        return False
    patterns.discard(binding_key)
    if not patterns:
        del names[queue]
    return True


def _with_nothing_for_hashes(nodes: list[_TopicNode]) -> list[_TopicNode]:
    """The nodes, and what comes after each `#` that takes no word; each once."""
    by_id = {id(node): node for node in nodes}
    unseen = list(by_id.values())
    while unseen:
        child = unseen.pop().children.get("#")
        if child is not None and id(child) not in by_id:
            by_id[id(child)] = child
            unseen.append(child)
    return list(by_id.values())
