//! Helpers that read the request.

use std::borrow::Cow;
use std::io::Write;

use async_ebpf::helpers::Helper;
use async_ebpf::program::HelperScope;

use super::Exchange;
use super::guest::{FAILED, bytes, give_text, name, with_exchange};
use crate::http::request::Version;
use crate::http::syntax::hex_digit;

/// Longest text of an IP address (RFC 4291 2.2: an IPv6 address with an embedded IPv4 one).
const IP_TEXT_BYTES: usize = 45;

pub(super) const HELPERS: &[(&str, Helper)] = &[
    ("zs_req_method", |scope, out, cap, _, _, _| give(scope, out, cap, |exchange| exchange.request.method())),
    ("zs_req_path", |scope, out, cap, _, _, _| give(scope, out, cap, |exchange| exchange.request.path())),
    ("zs_req_uri", |scope, out, cap, _, _, _| give(scope, out, cap, |exchange| exchange.request.target())),
    ("zs_req_query", |scope, out, cap, _, _, _| give(scope, out, cap, query)),
    ("zs_req_scheme", |scope, out, cap, _, _, _| give(scope, out, cap, scheme)),
    ("zs_req_normalized_path", normalized_path),
    ("zs_req_peer", peer),
    ("zs_req_header", header),
    ("zs_req_query_param", query_param),
    ("zs_req_query_param_matches", query_param_matches),
    ("zs_req_proto_major", |scope, _, _, _, _, _| version(scope, |(major, _)| major)),
    ("zs_req_proto_minor", |scope, _, _, _, _, _| version(scope, |(_, minor)| minor)),
    ("zs_req_is_tls", |scope, _, _, _, _, _| {
        with_exchange(scope, |exchange| Ok(exchange.connection.is_tls.into()))
    }),
];

fn give(scope: &HelperScope, out: u64, cap: u64, text: fn(&Exchange) -> &[u8]) -> Result<u64, ()> {
    with_exchange(scope, |exchange| give_text(scope, text(exchange), out, cap))
}

fn query(exchange: &Exchange) -> &[u8] {
    exchange.request.query().unwrap_or_default()
}

fn scheme(exchange: &Exchange) -> &[u8] {
    if exchange.connection.is_tls { b"https" } else { b"http" }
}

fn normalized_path(scope: &HelperScope, out: u64, cap: u64, _: u64, _: u64, _: u64) -> Result<u64, ()> {
    with_exchange(scope, |exchange| match exchange.request.normalized_path() {
        Some(path) => give_text(scope, &path, out, cap),
        None => Ok(FAILED),
    })
}

fn peer(scope: &HelperScope, out: u64, cap: u64, _: u64, _: u64, _: u64) -> Result<u64, ()> {
    with_exchange(scope, |exchange| {
        let mut room = [0; IP_TEXT_BYTES];
        let mut rest = &mut room[..];
        // Cannot fail: the room is for the longest address.
        let _ = write!(rest, "{}", exchange.connection.peer_ip());
        let len = IP_TEXT_BYTES - rest.len();
        give_text(scope, &room[..len], out, cap)
    })
}

fn header(scope: &HelperScope, field: u64, field_len: u64, out: u64, cap: u64, _: u64) -> Result<u64, ()> {
    with_exchange(scope, |exchange| {
        let value = exchange.request.header(name(scope, field, field_len)?);
        give_text(scope, value.unwrap_or_default(), out, cap)
    })
}

fn query_param(scope: &HelperScope, key: u64, key_len: u64, out: u64, cap: u64, _: u64) -> Result<u64, ()> {
    with_exchange(scope, |exchange| {
        let value = values(query(exchange), name(scope, key, key_len)?).next();
        give_text(scope, &value.unwrap_or_default(), out, cap)
    })
}

fn query_param_matches(
    scope: &HelperScope,
    key: u64,
    key_len: u64,
    value: u64,
    value_len: u64,
    _: u64,
) -> Result<u64, ()> {
    with_exchange(scope, |exchange| {
        let (key, wanted) = (name(scope, key, key_len)?, bytes(scope, value, value_len)?);
        Ok(values(query(exchange), key).any(|value| wanted == b"*" || *value == *wanted).into())
    })
}

fn version(scope: &HelperScope, part: fn((u64, u64)) -> u64) -> Result<u64, ()> {
    with_exchange(scope, |exchange| {
        Ok(part(match exchange.request.version() {
            Version::Http10 => (1, 0),
            Version::Http11 => (1, 1),
            Version::Http2 => (2, 0),
        }))
    })
}

/// The values of a parameter, decoded as HTML forms encode them (WHATWG URL, application/x-www-form-urlencoded).
fn values<'a>(query: &'a [u8], name: &[u8]) -> impl Iterator<Item = Cow<'a, [u8]>> {
    query.split(|&byte| byte == b'&').filter(|pair| !pair.is_empty()).filter_map(move |pair| {
        let mut parts = pair.splitn(2, |&byte| byte == b'=');
        let key = decode(parts.next().unwrap_or_default());
        (*key == *name).then(|| decode(parts.next().unwrap_or_default()))
    })
}

fn decode(text: &[u8]) -> Cow<'_, [u8]> {
    if !text.iter().any(|&byte| matches!(byte, b'%' | b'+')) {
        return Cow::Borrowed(text);
    }
    let mut decoded = Vec::with_capacity(text.len());
    let mut rest = text;
    while let [first, tail @ ..] = rest {
        rest = tail;
        let byte = match (first, tail) {
            (b'+', _) => b' ',
            (b'%', [high, low, behind @ ..]) => match (hex_digit(*high), hex_digit(*low)) {
                (Some(high), Some(low)) => {
                    rest = behind;
                    high << 4 | low
                }
                // Not an escape, so it stands for itself.
                _ => b'%',
            },
            (byte, _) => *byte,
        };
        decoded.push(byte);
    }
    Cow::Owned(decoded)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_decode_as_forms_encode_them() {
        for (query, name, value) in [
            (&b"a=1&b=2"[..], &b"b"[..], Some(&b"2"[..])),
            (b"a=1&a=2", b"a", Some(b"1")),
            (b"a", b"a", Some(b"")),
            (b"a=", b"a", Some(b"")),
            (b"a=b=c", b"a", Some(b"b=c")),
            (b"a+b=c%20d%2B", b"a b", Some(b"c d+")),
            (b"a=%4&b=%zz&c=%", b"a", Some(b"%4")),
            (b"a=%4&b=%zz&c=%", b"b", Some(b"%zz")),
            (b"a=%4&b=%zz&c=%", b"c", Some(b"%")),
            (b"", b"", None),
            (b"&&", b"", None),
            (b"=x", b"", Some(b"x")),
            (b"ab=1", b"a", None),
        ] {
            assert_eq!(values(query, name).next().as_deref(), value, "{query:?} {name:?}");
        }
    }
}
