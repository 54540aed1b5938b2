"""Certificates from files of PEM, and self-signed ones for where no authority is at hand. What TLS does with them is
the engine's business."""

from __future__ import annotations

import datetime
import ipaddress
import stat
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from zeroserve.settings import ZeroserveError

if TYPE_CHECKING:
    from cryptography import x509


@dataclass(frozen=True, slots=True)
class CertificatePair:
    """A certificate chain (leaf first) and the leaf's private key, both PEM."""

    cert_pem: bytes
    key_pem: bytes


def load_pair(cert: Path, key: Path) -> CertificatePair:
    """Read both files. Whether they fit together is found out by the engine when it loads them.

    Raises ZeroserveError when a file cannot be read.
    """
    return CertificatePair(_read(cert, "--cert"), _read(key, "--key"))


def _read(path: Path, flag: str) -> bytes:
    hint = "name a readable PEM file"
    try:
        # Asked before it is opened: a pipe would be waited for, and could not be read again for a reload.
        if not stat.S_ISREG(path.stat().st_mode):
            raise ZeroserveError(f"{flag} {path}: not a regular file", hint)
        return path.read_bytes()
    except OSError as error:
        raise ZeroserveError(f"{flag} {path}: {error.strerror}", hint) from None


def self_signed(names: Sequence[str], *, days: int = 365) -> CertificatePair:
    """Make an ECDSA P-256 certificate for DNS names and IP addresses, signed by its own key.

    Valid from an hour ago (boards without a clock battery boot in the past) for `days` days.
    """
    # Imported here: a running server has no use for it, and it costs memory.
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, names[0])])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(days=days))
        .add_extension(x509.SubjectAlternativeName([_general_name(name) for name in names]), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .sign(key, hashes.SHA256())
    )
    return CertificatePair(
        certificate.public_bytes(serialization.Encoding.PEM),
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()),
    )


def _general_name(name: str) -> x509.GeneralName:
    from cryptography import x509

    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)
