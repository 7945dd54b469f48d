"""Certificates → an SSL context for a server; a peer's certificate → its name.

Until when a certificate is valid is read from its DER (RFC 5280 section 4.1):

Certificate    SEQUENCE { TBSCertificate, … }
TBSCertificate SEQUENCE { [0] version (may be absent), serialNumber, signature, issuer,
                          Validity SEQUENCE { notBefore, notAfter }, … }
Time           UTCTime YYMMDDHHMMSSZ, or GeneralizedTime YYYYMMDDHHMMSSZ
"""

from __future__ import annotations

import ssl
import stat
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from broker_shim.errors import InvalidRequest
from broker_shim.security.rules.users import check_name

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


_SAN_KINDS = ("URI", "email", "DNS")


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """Paths of certificates and keys, in PEM.

    Attributes:
        certificate: Ours, with those between it and its authority.
        key: Its key, without a password; may be in the same file.
        client_ca: Authorities that vouch for clients; None: no client's certificate is asked for.
    """

    certificate: Path
    key: Path
    client_ca: Path | None = None


def server_context(files: TlsFiles) -> ssl.SSLContext:
    """TLS 1.2 or newer, as a server; a fresh one each time, so that a renewed certificate counts.

    A client may come without a certificate and log in by a password. One that shows a certificate
    which no authority of `client_ca` vouches for is refused by the handshake.

    Raises:
        InvalidRequest: One line that names the file and what is wrong with it.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION
    _check_key(files.key)
    try:
        context.load_cert_chain(files.certificate, files.key, password=_no_password)
    except ssl.SSLError as reason:
        why = reason.reason or str(reason)
        message = f"TLS: {files.certificate} and {files.key} do not make a server: {why}"
        raise InvalidRequest(message) from reason
    except (OSError, ValueError) as reason:
        message = f"TLS: {files.certificate} with {files.key}: {reason}"
        raise InvalidRequest(message) from reason
    if files.client_ca is not None:
        _trust(context, files.client_ca)
    return context


def complaints(files: TlsFiles, now: datetime) -> list[str]:
    """Describe faults of certificates that can be used all the same, as that they have expired.

    A file that cannot be read any more has none: `server_context` tells.
    """
    lines = []
    for path in (files.certificate, files.client_ca):
        with suppress(OSError, ValueError):
            complaint = path and validity_of(path.read_text()).complaint(now)
            if complaint:
                lines.append(f"TLS: {path} {complaint}")
    return lines


def _trust(context: ssl.SSLContext, client_ca: Path) -> None:
    try:
        context.load_verify_locations(client_ca)
    except (OSError, ssl.SSLError) as reason:
        message = f"TLS: {client_ca}, authorities of clients: {reason}"
        raise InvalidRequest(message) from reason
    context.verify_mode = ssl.CERT_OPTIONAL


def _check_key(key: Path) -> None:
    """Group may be let in, as Debian's `ssl-cert` is; the world may not."""
    try:
        mode = key.stat().st_mode
    except OSError as reason:
        message = f"TLS: key {key}: {reason.strerror}"
        raise InvalidRequest(message) from reason
    if mode & (stat.S_IROTH | stat.S_IWOTH):
        message = f"TLS: key {key} can be read or written by everybody: chmod 600 it"
        raise InvalidRequest(message)


def _no_password() -> str:
    """Refuse to ask for a password: OpenSSL would ask on the terminal of a server."""
    raise ValueError("the key is encrypted: store it without a password, mode 0600")


def certificate_name(certificate: Mapping[str, Any] | None) -> str | None:
    """Return a client's name by its certificate, as `SSLSocket.getpeercert` gives it.

    The last common name of its subject; without one, the first URI, email or DNS name of its
    subjectAltName, in this order of kinds. None if it has neither, or one that no user may have.
    """
    if not certificate:
        return None
    subject = [pair for rdn in certificate.get("subject", ()) for pair in rdn]
    names = [value for key, value in subject if key == "commonName"][-1:]
    others = certificate.get("subjectAltName", ())
    names += [value for kind in _SAN_KINDS for key, value in others if key == kind]
    try:
        check_name(names[0] if names else "")
    except InvalidRequest:
        return None
    return str(names[0])
