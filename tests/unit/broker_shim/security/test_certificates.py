"""Until when a certificate is valid, and who is told."""

from __future__ import annotations

import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from broker_shim.security.tls import TlsFiles, Validity, complaints, validity_of
from tests.support.amqp.certificates import Authority

NOON = datetime(2026, 1, 2, 12, tzinfo=UTC)
DAY = timedelta(days=1)


def test_the_validity_of_a_certificate_is_what_openssl_wrote(tmp_path: Path) -> None:
    """The other reader is the library's: it decodes an authority's certificate that it loaded."""
    authority = Authority(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(authority.pair.certificate)
    (told,) = context.get_ca_certs()
    times = [ssl.cert_time_to_seconds(str(told[each])) for each in ("notBefore", "notAfter")]
    found = validity_of("some text before\n" + authority.pair.certificate.read_text())
    assert [each.timestamp() for each in found] == times


@pytest.mark.parametrize("text", ["", "-----BEGIN CERTIFICATE-----\nMAA=\n", "x"])
def test_what_is_no_certificate_has_no_validity(text: str) -> None:
    for end in ("", "-----END CERTIFICATE-----\n"):
        with pytest.raises(ValueError, match=r"\w"):
            validity_of(text + end)


def test_one_that_has_expired_or_is_not_valid_yet_is_told() -> None:
    validity = Validity(NOON - DAY, NOON + DAY)
    assert validity.complaint(NOON) is None
    assert validity.complaint(NOON + DAY) is None
    assert validity.complaint(NOON + 2 * DAY) == "expired on 2026-01-03 12:00 UTC"
    assert validity.complaint(NOON - 2 * DAY) == "is not valid before 2026-01-01 12:00 UTC"


def test_both_our_certificate_and_the_authority_are_looked_at(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    server = authority.issue_server()
    files = TlsFiles(server.certificate, server.key, authority.pair.certificate)
    assert complaints(files, datetime.now(UTC) + timedelta(minutes=5)) == []
    late = complaints(files, datetime.now(UTC) + 3 * DAY)
    assert [each.partition(" expired on ")[0] for each in late] == [
        f"TLS: {server.certificate}",
        f"TLS: {authority.pair.certificate}",
    ]
    assert complaints(TlsFiles(tmp_path / "none", server.key), NOON) == []
