//! The serializer of HTTP/1.1 response heads. Appends to the caller's buffer and allocates nothing itself.

use crate::http::request::Version;
use crate::http::response::{Response, status_line};

/// Longest decimal form of a u64.
const DECIMAL_MAX: usize = 20;

/// Appends status line, Server and Date (unless the response has its own), Content-Length, Connection where
/// the version's default would mislead, and the response's fields. Content-Length is that of `response.body`,
/// also when the answer is to a HEAD and the body stays unsent.
pub fn write_head(
    response: &Response,
    keep_alive: bool,
    version: Version,
    date: &[u8; 29],
    out: &mut Vec<u8>,
) {
    let [shared, own] = response.headers.wire();
    out.reserve(shared.len() + own.len() + 256);
    let status = response.final_status();
    write_status(status, out);
    if !response.headers.has_server {
        out.extend_from_slice(b"Server: zeroserve\r\n");
    }
    if !response.headers.has_date {
        out.extend_from_slice(b"Date: ");
        out.extend_from_slice(date);
        out.extend_from_slice(b"\r\n");
    }
    let length = match status {
        204 | 304 => None,
        // Its framing is like that of any other, so the client has to be told that nothing follows.
        205 => Some(0),
        _ => Some(response.body.len()),
    };
    if let Some(length) = length {
        out.extend_from_slice(b"Content-Length: ");
        write_decimal(length, out);
        out.extend_from_slice(b"\r\n");
    }
    if !keep_alive {
        out.extend_from_slice(b"Connection: close\r\n");
    } else if version == Version::Http10 {
        out.extend_from_slice(b"Connection: keep-alive\r\n");
    }
    out.extend_from_slice(shared);
    out.extend_from_slice(own);
    out.extend_from_slice(b"\r\n");
}

fn write_status(status: u16, out: &mut Vec<u8>) {
    if let Some(line) = status_line(status) {
        out.extend_from_slice(line);
    } else {
        // The space stays when there is no phrase (RFC 9112, section 4).
        out.extend_from_slice(b"HTTP/1.1 ");
        write_decimal(u64::from(status), out);
        out.extend_from_slice(b" \r\n");
    }
}

fn write_decimal(mut value: u64, out: &mut Vec<u8>) {
    let mut digits = [0; DECIMAL_MAX];
    let mut at = DECIMAL_MAX;
    loop {
        at -= 1;
        digits[at] = b'0' + (value % 10) as u8;
        value /= 10;
        if value == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[at..]);
}
