"""Certificates of one test: an authority, a server's and clients', made by the openssl command."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import NamedTuple

import pytest


class Pair(NamedTuple):
    """A certificate and its key, PEM."""

    certificate: Path
    key: Path


class Authority:
    """Vouches for certificates; skips the test where there is no openssl."""

    def __init__(self, folder: Path, name: str = "authority") -> None:
        if shutil.which("openssl") is None:
            pytest.skip("no openssl on this machine")
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self.pair = Pair(folder / f"{name}.pem", folder / f"{name}.key")
        self._openssl(
            *("req", "-x509", *_NEW_KEY, "-days", "2", "-subj", f"/CN={name}"),
            *("-keyout", self.pair.key, "-out", self.pair.certificate),
        )

    def issue(self, file: str, subject: str, *, names: str = "", days: int = 2) -> Pair:
        """A certificate that this authority vouches for.

        Args:
            file: What its files are called.
            subject: As openssl takes it: `/CN=ann`.
            names: Its subjectAltName: `DNS:localhost,IP:127.0.0.1`; empty: none.
            days: For how long it is valid; negative: it has expired so long ago.
        """
        pair = Pair(self._folder / f"{file}.pem", self._folder / f"{file}.key")
        request, extensions = self._folder / f"{file}.csr", self._folder / f"{file}.ext"
        extensions.write_text(f"subjectAltName={names}\n" if names else "")
        self._openssl(
            *("req", *_NEW_KEY, "-subj", subject, "-keyout", pair.key, "-out", request),
        )
        self._openssl(
            *("x509", "-req", "-in", request, "-days", str(days), "-extfile", extensions),
            *("-CA", self.pair.certificate, "-CAkey", self.pair.key, "-CAcreateserial"),
            *("-out", pair.certificate),
        )
        return pair

    def issue_server(self) -> Pair:
        """For a broker on 127.0.0.1."""
        return self.issue("server", "/CN=localhost", names="DNS:localhost,IP:127.0.0.1")

    def _openssl(self, *arguments: object) -> None:
        subprocess.run(
            ["openssl", *map(str, arguments)], check=True, capture_output=True, cwd=self._folder
        )


_NEW_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
