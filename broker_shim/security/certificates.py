"""Read until when a certificate is valid, by its DER (RFC 5280 section 4.1). Pure.

Certificate    SEQUENCE { TBSCertificate, … }
TBSCertificate SEQUENCE { [0] version (may be absent), serialNumber, signature, issuer,
                          Validity SEQUENCE { notBefore, notAfter }, … }
Time           UTCTime YYMMDDHHMMSSZ, or GeneralizedTime YYYYMMDDHHMMSSZ
"""

from __future__ import annotations

import ssl
from datetime import UTC, datetime
from typing import NamedTuple

_VERSION, _UTC_TIME = 0xA0, 0x17
_BEFORE_VALIDITY = 3
_LONG_LENGTH = 0x80
_BEGIN, _END = "-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----"


class Validity(NamedTuple):
    """The time in which a certificate is valid; both ends are in it."""

    begin: datetime
    end: datetime

    def complaint(self, now: datetime) -> str | None:
        """Return a client's complaint about the certificate now; None if it has none."""
        if now > self.end:
            return f"expired on {self.end:%Y-%m-%d %H:%M} UTC"
        if now < self.begin:
            return f"is not valid before {self.begin:%Y-%m-%d %H:%M} UTC"
        return None


def validity_of(pem: str) -> Validity:
    """Read the validity of the first certificate in a PEM text.

    Raises:
        ValueError: There is none, or it is none that this can read.
    """
    start = pem.index(_BEGIN)
    der = ssl.PEM_cert_to_DER_cert(pem[start : pem.index(_END, start) + len(_END)])
    try:
        fields = _parts(_parts(_parts(der)[0][1])[0][1])
        if fields[0][0] == _VERSION:
            del fields[0]
        begin, end = (_time(*part) for part in _parts(fields[_BEFORE_VALIDITY][1]))
    except (IndexError, UnicodeDecodeError) as reason:
        raise ValueError("no X.509 certificate") from reason
    return Validity(begin, end)


def _parts(content: bytes) -> list[tuple[int, bytes]]:
    """The elements that fill some bytes: tag and content of each."""
    parts, at = [], 0
    while at < len(content):
        tag, length, at = content[at], content[at + 1], at + 2
        if length >= _LONG_LENGTH:
            size = length - _LONG_LENGTH
            length, at = int.from_bytes(content[at : at + size]), at + size
        parts.append((tag, content[at : at + length]))
        at += length
    return parts


def _time(tag: int, content: bytes) -> datetime:
    text = content.decode("ascii")
    if tag == _UTC_TIME:  # two digits of the year: 1950 to 2049
        text = ("19" if text[:2] >= "50" else "20") + text
    return datetime.strptime(text, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC)
