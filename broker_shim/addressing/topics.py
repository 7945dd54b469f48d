"""Patterns of words with dots between: `*` is one word, `#` any number of words, none too. Pure.

They are kept as a tree of words, so a look-up costs the words of its key times the patterns that
still fit, not the number of patterns. Topic exchanges, settings of addresses and permissions are
said in them. A client's text is looked up only if it is not `too_long`: a look-up is on the loop's
thread, and a message may have a megabyte of dots for its address or subject.
"""

from __future__ import annotations

from dataclasses import dataclass, field

MOST_CHARACTERS = 10_000
"""Of an address or a routing key: no name in a store is longer."""
MOST_WORDS = 256
"""As many as a routing key of AMQP 0-9-1 or 0-10 can have, which is 255 bytes long."""

_WHAT = "an address or a routing key"


def too_long(text: str) -> str | None:
    """Why an address or a routing key of a client is not looked up; None if it may be."""
    if len(text) > MOST_CHARACTERS:
        return f"{_WHAT} has at most {MOST_CHARACTERS} characters, not {len(text)}"
    words = text.count(".") + 1
    if words > MOST_WORDS:
        return f"{_WHAT} has at most {MOST_WORDS} words, not {words}"
    return None


@dataclass(slots=True)
class _Node:
    """One word of some patterns: what follows it, and the queues of a pattern that ends here."""

    is_hash: bool = False
    children: dict[str, _Node] = field(default_factory=dict)
    queues: set[str] = field(default_factory=set)


class TopicBindings:
    """Patterns of words."""

    def __init__(self) -> None:
        self._root = _Node()

    def bind(self, binding_key: str, queue: str) -> None:
        """Add a pattern for a name; again changes nothing."""
        node = self._root
        for word in binding_key.split("."):
            node = node.children.setdefault(word, _Node(is_hash=word == "#"))
        node.queues.add(queue)

    def unbind(self, binding_key: str, queue: str) -> None:
        """Take a pattern away; one that is not there changes nothing.

        Branches that end in nothing are cut.
        """
        path = [self._root]
        words = binding_key.split(".")
        for word in words:
            child = path[-1].children.get(word)
            if child is None:
                return
            path.append(child)
        path[-1].queues.discard(queue)
        for word, parent in zip(reversed(words), reversed(path[:-1]), strict=True):
            child = parent.children[word]
            if child.children or child.queues:
                return
            del parent.children[word]

    def route(self, routing_key: str) -> set[str]:
        """The names whose patterns fit a key, each once.

        All patterns are followed at once, word by word, as the set of nodes they have come to. A
        node is followed once a word, so the cost is at most words × nodes: no pattern such as
        `#.#.#` makes it grow faster.
        """
        here = _with_nothing_for_hashes([self._root])
        for word in routing_key.split("."):
            following = []
            for node in here:
                if node.is_hash:
                    following.append(node)
                following += [
                    node.children[step] for step in {word, "*"} - {"#"} if step in node.children
                ]
            here = _with_nothing_for_hashes(following)
        return set().union(*(node.queues for node in here))


def _with_nothing_for_hashes(nodes: list[_Node]) -> list[_Node]:
    """The nodes, and what comes after each `#` that takes no word; each once."""
    found = {id(node): node for node in nodes}
    unseen = list(found.values())
    while unseen:
        child = unseen.pop().children.get("#")
        if child is not None and id(child) not in found:
            found[id(child)] = child
            unseen.append(child)
    return list(found.values())
