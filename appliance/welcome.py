"""What the appliance serves when it is given no site and no certificate: the built-in welcome site, and a self-signed
pair made once and kept. How a site is packed or a certificate made is zeroserve's business.
"""

from __future__ import annotations

import datetime
import os
import socket
import ssl
from collections.abc import Iterable
from pathlib import Path

from cryptography import x509

from appliance.settings import ApplianceError
from zeroserve.certificates import self_signed
from zeroserve.settings import ZeroserveError

SOURCES = Path(__file__).parent / "site"
# Packed at build time, as the flashed board has no clang to compile the site's script.
PREBUILT = Path(__file__).parent / "site.tar"
RENEW_BEFORE = datetime.timedelta(days=14)


def welcome_site(state_directory: Path) -> Path:
    """The welcome site's tarball: the one from the build, or else packed now from its sources and kept.

    Errors: ApplianceError when it has to be packed and cannot be (no clang, full disk).
    """
    if PREBUILT.exists():
        return PREBUILT
    # Imported here: an installed appliance never needs it.
    from zeroserve.pack import pack_directory

    packed = state_directory / "welcome.tar"
    unfinished = packed.with_suffix(".tmp")
    try:
        with unfinished.open("wb") as output:
            pack_directory(SOURCES, output)
        unfinished.replace(packed)
    except ZeroserveError as error:
        raise ApplianceError(f"cannot pack the welcome site: {error.message}", error.hint) from error
    except OSError as error:
        raise ApplianceError(f"cannot write {packed}: {error.strerror}", "free some disk space") from error
    return packed


def kept_certificate(state_directory: Path, names: Iterable[str] = ()) -> tuple[Path, Path]:
    """Paths of a certificate and its key, self-signed for this host, its loopback and `names` (DNS names or IPs).

    Made when there is none, or the one there expires within `RENEW_BEFORE` or is damaged; otherwise the same one each
    time, so that a browser's exception for it survives restarts.
    """
    directory = state_directory / "tls"
    certificate, key = directory / "self-signed.pem", directory / "self-signed.key"
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        if certificate.exists() and key.exists() and _is_usable(certificate, key):
            return certificate, key
        pair = self_signed([socket.gethostname(), "localhost", "127.0.0.1", "::1", *names])
        # A crash between the two leaves a pair that does not match, which the next start finds out and replaces.
        _write_private(key, pair.key_pem)
        _write_private(certificate, pair.cert_pem)
    except OSError as error:
        message = f"cannot keep a certificate in {directory}: {error.strerror}"
        raise ApplianceError(message, "give --cert and --key, or free some disk space") from error
    return certificate, key


def _is_usable(certificate: Path, key: Path) -> bool:
    """Whether the two belong together and the certificate is valid for some days yet."""
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, key)
        expires = x509.load_pem_x509_certificate(certificate.read_bytes()).not_valid_after_utc
    except (ssl.SSLError, ValueError):
        return False
    return expires - datetime.datetime.now(datetime.UTC) > RENEW_BEFORE


def _write_private(path: Path, content: bytes) -> None:
    unfinished = path.with_name(path.name + ".tmp")
    unfinished.unlink(missing_ok=True)
    descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    unfinished.replace(path)
