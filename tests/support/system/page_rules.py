"""Rules that a page keeps for whoever has no mouse, or does not see it: what breaks them."""

from __future__ import annotations

from pathlib import Path

from tests.support.system.chromium import Page
from tests.support.system.client_programs import BUILT, install_node_packages

AXE = BUILT / "node" / "node_modules" / "axe-core" / "axe.min.js"
_BROKEN = Path(__file__).with_suffix(".js").read_text()
_CONTROLS = """[...document.querySelectorAll(
    "a[href], button, input, select, textarea, [tabindex='0']"
)].filter((each) => !each.disabled && each.checkVisibility()).length"""
_FOCUSED = """(() => {
    const each = document.activeElement;
    if (each === document.body) return null;
    const isSeen = getComputedStyle(each).outlineStyle !== "none";
    globalThis.stops ??= new Map();
    if (!stops.has(each)) stops.set(each, `${stops.size}`);
    return [stops.get(each), isSeen, each.outerHTML.slice(0, 80)];
})()"""


def broken_rules(page: Page) -> list[str]:
    """Tell each rule that the page breaks, and where."""
    found: list[str] = page.evaluate(_BROKEN)
    return found


def axe_violations(page: Page) -> list[str]:
    """Tell what axe-core finds wrong with the page: the rule, and where."""
    install_node_packages()
    if not page.evaluate("'axe' in globalThis"):
        page.evaluate(AXE.read_text() + "; true")
    found: list[str] = page.evaluate(
        "axe.run().then(({ violations }) => violations.flatMap(({ id, nodes }) =>"
        " nodes.map(({ target }) => `${id}: ${target.join(' ')}`)))"
    )
    return found


def unreached_or_unseen(page: Page) -> list[str]:
    """Press Tab through the page; tell which controls it missed, and whose focus is not seen."""
    page.key("Tab")  # the browser shows what has the focus once a key has moved it
    page.evaluate("globalThis.stops = new Map(); document.querySelector('a').focus()")
    wanted: int = page.evaluate(_CONTROLS)
    reached: dict[str, str] = {}
    troubles: list[str] = []
    for _ in range(wanted):
        if (focused := page.evaluate(_FOCUSED)) is not None:
            number, is_seen, told = focused
            reached[number] = told
            troubles += [] if is_seen else [f"focus is not seen: {told}"]
        page.key("Tab")
    if len(reached) != wanted:
        troubles.append(f"{len(reached)} of {wanted} controls: {[*reached.values()]}")
    return troubles
