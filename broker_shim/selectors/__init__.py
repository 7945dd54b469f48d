"""JMS message selectors: a condition on a message's header (JMS 2.0 section 3.8.1). Pure.

    grammar.py      text → nodes, by an LALR grammar; limits of length and depth
    nodes.py        what the grammar's rules build: closures, and what is known of their values
    matching.py     LIKE

Decision: the parser is Lark's (LALR, no dependencies of its own, released every year since 2017),
because it keeps its own stack. Ten thousand parentheses cost memory in proportion and never a
recursion of ours. Rejected: `pyparsing` and `parsimonious` recurse, `antlr4` needs a generator.

The text of a client comes in, a condition that a queue can ask of a header goes out; what is wrong
with the text is `InvalidSelector`. Listeners parse, and the broker's queues ask.
"""

from __future__ import annotations

from broker_shim.selectors.grammar import MAX_CHARACTERS, MAX_DEPTH, Selector, compiling, parse
from broker_shim.selectors.nodes import InvalidSelector, Lookup, Value

__all__ = [
    "MAX_CHARACTERS",
    "MAX_DEPTH",
    "InvalidSelector",
    "Lookup",
    "Selector",
    "Value",
    "compiling",
    "parse",
]
