"""Asks one URL once over TLS 1.3 and prints what came as JSON; run as a child, so that OPENSSL_CONF decides the cipher.

Usage: probe.py PORT PATH CERTIFICATE. Measures nothing.
"""

import hashlib
import http.client
import json
import ssl
import sys


def fetch(port: int, path: str, certificate: str) -> dict[str, str | int]:
    """Return status, length and SHA-256 of the body, and the TLS version and cipher that carried it.

    Raises OSError when nothing answers, or answers with another certificate.
    """
    context = ssl.create_default_context(cafile=certificate)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    connection = http.client.HTTPSConnection("127.0.0.1", port, context=context, timeout=5)
    connection.connect()
    assert isinstance(connection.sock, ssl.SSLSocket)  # what HTTPSConnection makes; typeshed knows only the base
    agreed = connection.sock.cipher()
    connection.request("GET", path)
    response = connection.getresponse()
    body = response.read()
    return {
        "status": response.status,
        "length": len(body),
        "sha256": hashlib.sha256(body).hexdigest(),
        "version": connection.sock.version() or "none",
        "cipher": agreed[0] if agreed else "none",
    }


if __name__ == "__main__":
    try:
        print(json.dumps(fetch(int(sys.argv[1]), sys.argv[2], sys.argv[3])))
    except OSError as error:
        sys.exit(str(error))
