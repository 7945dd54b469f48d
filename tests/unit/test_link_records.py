"""The text that names a link: one for each key, the same on the broker's side."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_shim.links import LinkKey, holder_of
from sparkstore.core.link_records import RecordedLinkKey, link_key, link_text

_TEXT = st.text(st.characters(codec="utf-8"), max_size=12)
_KEYS = st.builds(RecordedLinkKey, _TEXT, _TEXT, st.sampled_from(["sender", "receiver"]))


@given(_KEYS)
def test_a_key_comes_back_from_its_text(key: RecordedLinkKey) -> None:
    assert link_key(link_text(key)) == key


@given(_KEYS)
def test_the_broker_calls_a_link_as_the_store_does(key: RecordedLinkKey) -> None:
    assert holder_of(LinkKey(*key)) == link_text(key)


@pytest.mark.parametrize("text", ["", "c/l", "[]", '["c","l"]', '["c","l",1]', '{"c": "l"}', "[["])
def test_another_text_names_no_link(text: str) -> None:
    with pytest.raises(ValueError, match=r"names no link|Expecting"):
        link_key(text)
