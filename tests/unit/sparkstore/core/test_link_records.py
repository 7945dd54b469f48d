"""The text that names a link: one for each key."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkstore.core.link_records import LinkKey, Role, link_key, link_text

_TEXT = st.text(st.characters(codec="utf-8"), max_size=12)
_KEYS = st.builds(LinkKey, _TEXT, _TEXT, st.sampled_from(["sender", "receiver"]))


@given(_KEYS)
def test_a_key_comes_back_from_its_text(key: LinkKey) -> None:
    assert link_key(link_text(key)) == key


@given(_KEYS)
def test_a_role_and_its_text_are_the_same_link(key: LinkKey) -> None:
    with_role = key._replace(role=Role(key.role))
    assert link_text(with_role) == link_text(key)
    assert {with_role: 1}[key] == 1


@pytest.mark.parametrize("text", ["", "c/l", "[]", '["c","l"]', '["c","l",1]', '{"c": "l"}', "[["])
def test_another_text_names_no_link(text: str) -> None:
    with pytest.raises(ValueError, match=r"names no link|Expecting"):
        link_key(text)
