"""The certificate that is kept is the same one until it is no good any more."""

from __future__ import annotations

import ssl
from pathlib import Path

from cryptography import x509

from appliance.welcome import SOURCES, kept_certificate
from zeroserve.certificates import self_signed


def test_same_pair_each_time(tmp_path: Path) -> None:
    certificate, key = kept_certificate(tmp_path)
    before = certificate.read_bytes(), key.read_bytes()
    assert kept_certificate(tmp_path) == (certificate, key)
    assert (certificate.read_bytes(), key.read_bytes()) == before


def test_pair_is_good_for_the_names_asked_and_for_loopback(tmp_path: Path) -> None:
    certificate, key = kept_certificate(tmp_path, ["site.example", "10.77.0.2"])
    ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, key)
    loaded = x509.load_pem_x509_certificate(certificate.read_bytes())
    names = loaded.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert {"site.example", "localhost"} <= set(names.get_values_for_type(x509.DNSName))
    assert {"10.77.0.2", "127.0.0.1", "::1"} <= {str(ip) for ip in names.get_values_for_type(x509.IPAddress)}


def test_only_the_owner_may_read_the_key(tmp_path: Path) -> None:
    _, key = kept_certificate(tmp_path)
    assert key.stat().st_mode & 0o777 == 0o600


def test_pair_that_does_not_match_is_replaced(tmp_path: Path) -> None:
    certificate, key = kept_certificate(tmp_path)
    key.write_bytes(self_signed(["localhost"]).key_pem)
    kept_certificate(tmp_path)
    ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, key)


def test_damaged_and_half_written_pairs_are_replaced(tmp_path: Path) -> None:
    certificate, key = kept_certificate(tmp_path)
    for damage in (certificate, key):
        damage.write_bytes(b"")
        kept_certificate(tmp_path)
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, key)
    key.unlink()
    kept_certificate(tmp_path)
    ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, key)


def test_pair_that_soon_expires_is_replaced(tmp_path: Path) -> None:
    certificate, key = kept_certificate(tmp_path)
    soon = self_signed(["localhost"], days=5)
    certificate.write_bytes(soon.cert_pem)
    key.write_bytes(soon.key_pem)
    kept_certificate(tmp_path)
    assert certificate.read_bytes() != soon.cert_pem


def test_sources_of_the_welcome_site_are_whole() -> None:
    assert (SOURCES / "index.html").read_text().startswith("<!doctype html>")
    assert '{\\"status\\":\\"ok\\"}' in (SOURCES / ".zeroserve/scripts/10-ping.c").read_text()
