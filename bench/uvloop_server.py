"""An HTTPS server in pure Python, uvloop and ssl, that answers every request with one file held in memory.

It is the least such a server can do per request: no routing, no conditional requests, a head written once. What it
costs is therefore a lower bound for any server that answers in Python; docs/decisions/0001 is about that.
"""

import argparse
import asyncio
import ssl
from pathlib import Path
from typing import cast

import uvloop

END_OF_HEAD = b"\r\n\r\n"


class FixedResponse(asyncio.Protocol):
    """One connection: counts the heads that are complete and answers each; requests have no body here."""

    def __init__(self, response: bytes) -> None:
        self._response = response
        self._pending = b""
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's TLS transport has asyncio's methods without being derived from its classes.
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        assert self._transport is not None
        *heads, self._pending = (self._pending + data).split(END_OF_HEAD)
        if heads:
            self._transport.write(self._response * len(heads))


def response_for(body: bytes) -> bytes:
    """Return the whole response, with the headers that a static file server sends too."""
    head = (
        "HTTP/1.1 200 OK\r\n"
        "Date: Mon, 01 Jan 2024 00:00:00 GMT\r\n"
        "Content-Type: text/html; charset=utf-8\r\n"
        f"Content-Length: {len(body)}\r\n"
        "Last-Modified: Mon, 01 Jan 2024 00:00:00 GMT\r\n"
        'ETag: "6592a680-ae"\r\n'
        "Accept-Ranges: bytes\r\n"
        "\r\n"
    )
    return head.encode("ascii") + body


async def serve(arguments: argparse.Namespace) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.load_cert_chain(arguments.cert, arguments.key)
    response = response_for(arguments.file.read_bytes())
    server = await asyncio.get_running_loop().create_server(
        lambda: FixedResponse(response), "127.0.0.1", arguments.port, ssl=context, backlog=512
    )
    await server.serve_forever()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--cert", type=Path, required=True)
    parser.add_argument("--key", type=Path, required=True)
    parser.add_argument("--file", type=Path, required=True)
    uvloop.run(serve(parser.parse_args()))


if __name__ == "__main__":
    main()
