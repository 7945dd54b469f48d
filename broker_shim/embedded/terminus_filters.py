"""The filter set of a link's source, between proton and `filters`."""

from __future__ import annotations

from typing import Any

from cproton import (
    pn_data_clear,
    pn_data_decode,
    pn_data_encode,
    pn_data_encoded_size,
    pn_data_rewind,
    pn_link_remote_source,
    pn_link_source,
    pn_terminus_filter,
)

from broker_shim.embedded.filters import Filters, read_filters


def filters_of(link: Any) -> Filters:
    """What the peer's source asks for.

    Raises:
        InvalidSelector: See `read_filters`.
    """
    told = pn_terminus_filter(pn_link_remote_source(link))
    pn_data_rewind(told)
    size = pn_data_encoded_size(told)
    return read_filters(bytes(pn_data_encode(told, size)[1])) if size > 0 else Filters()


def set_filters(link: Any, filters: Filters) -> None:
    """Answer with those that are honoured."""
    answer = pn_terminus_filter(pn_link_source(link))
    pn_data_clear(answer)
    if filters.answer:
        pn_data_decode(answer, filters.answer)
