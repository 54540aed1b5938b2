//! Request heads: what is taken, what is refused, and that neither depends on how the bytes arrive.

use super::Numbers;
use crate::http::h1::{BodyFraming, Limits, Parsed, Reject, parse_request};
use crate::http::request::{Request, Version};

const BROWSER: &[u8] = b"GET /assets/app.js?v=3&lang=de HTTP/1.1\r\n\
    Host: example.org:8443\r\n\
    User-Agent: Mozilla/5.0 (X11; Linux aarch64; rv:140.0) Gecko/20100101 Firefox/140.0\r\n\
    Accept: text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8\r\n\
    Accept-Language: de,en-US;q=0.7,en;q=0.3\r\n\
    Accept-Encoding: gzip, deflate, br, zstd\r\n\
    Referer: https://example.org/start\r\n\
    Cookie: session=Zm9vYmFy; theme=dark\r\n\
    X-Empty:\r\n\
    X-Padded: \t inner\tand  spaces \t \r\n\
    X-Latin: \xfcber\r\n\
    Connection: keep-alive\r\n\r\n";

fn parse(bytes: &[u8]) -> (Result<Parsed, Reject>, Request) {
    let mut request = Request::new();
    let result = parse_request(bytes, &Limits::default(), &mut request);
    (result, request)
}

fn head(bytes: &[u8]) -> (usize, BodyFraming, bool, bool, Request) {
    match parse(bytes) {
        (Ok(Parsed::Head { consumed, framing, keep_alive, expect_continue }), request) => {
            (consumed, framing, keep_alive, expect_continue, request)
        }
        (other, _) => panic!("{other:?} for {:?}", bytes.escape_ascii().to_string()),
    }
}

#[test]
fn a_browsers_head_is_taken_apart() {
    let (consumed, framing, keep_alive, expect_continue, request) = head(BROWSER);
    assert_eq!(
        (consumed, framing, keep_alive, expect_continue),
        (BROWSER.len(), BodyFraming::None, true, false)
    );
    assert_eq!(request.method(), b"GET");
    assert_eq!(request.target(), b"/assets/app.js?v=3&lang=de");
    assert_eq!(request.path(), b"/assets/app.js");
    assert_eq!(request.query(), Some(&b"v=3&lang=de"[..]));
    assert_eq!(request.version(), Version::Http11);
    assert_eq!(request.authority(), Some(&b"example.org:8443"[..]));
    assert_eq!(request.headers().count(), 11);
    assert_eq!(request.header("ACCEPT-encoding"), Some(&b"gzip, deflate, br, zstd"[..]));
    assert_eq!(request.header("x-empty"), Some(&b""[..]));
    assert_eq!(request.header("x-padded"), Some(&b"inner\tand  spaces"[..]));
    assert_eq!(request.header("x-latin"), Some(&b"\xfcber"[..]));
    assert_eq!(request.header("range"), None);
}

#[test]
fn accepted_requests_have_the_right_framing() {
    use BodyFraming::{Chunked, Length, None as NoBody};
    // head after the request line, with Host where it says so; framing, keep-alive, expect-continue
    let table: &[(&str, BodyFraming, bool, bool)] = &[
        ("GET / HTTP/1.1\r\nHost: a\r\n\r\n", NoBody, true, false),
        ("GET / HTTP/1.1\r\nhOST:a\r\n\r\n", NoBody, true, false),
        ("GET / HTTP/1.1\r\nHost:\r\n\r\n", NoBody, true, false),
        ("GET / HTTP/1.1\r\nHost: [::1]:8080\r\n\r\n", NoBody, true, false),
        ("GET / HTTP/1.1\r\nHost: a:\r\n\r\n", NoBody, true, false),
        ("\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n", NoBody, true, false),
        ("GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", NoBody, false, false),
        ("GET / HTTP/1.1\r\nHost: a\r\nConnection: TE, Close\r\n\r\n", NoBody, false, false),
        ("GET / HTTP/1.1\r\nHost: a\r\nConnection: x\r\nConnection: close\r\n\r\n", NoBody, false, false),
        ("GET / HTTP/1.1\r\nHost: a\r\nConnection: closed\r\n\r\n", NoBody, true, false),
        ("GET / HTTP/1.0\r\n\r\n", NoBody, false, false),
        ("GET / HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n", NoBody, true, false),
        ("GET / HTTP/1.0\r\nConnection: keep-alive, close\r\n\r\n", NoBody, false, false),
        ("POST / HTTP/1.0\r\nContent-Length: 3\r\n\r\n", Length(3), false, false),
        ("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n", NoBody, true, false),
        ("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 007\r\n\r\n", Length(7), true, false),
        (
            "POST / HTTP/1.1\r\nHost: a\r\ncontent-length: 5\r\nContent-Length: 5\r\n\r\n",
            Length(5),
            true,
            false,
        ),
        (
            "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 18446744073709551615\r\n\r\n",
            Length(u64::MAX),
            true,
            false,
        ),
        ("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n", Chunked, true, false),
        ("POST / HTTP/1.1\r\nHost: a\r\ntransfer-encoding:\tCHUNKED \r\n\r\n", Chunked, true, false),
        (
            "PUT / HTTP/1.1\r\nHost: a\r\nExpect: 100-Continue\r\nContent-Length: 1\r\n\r\n",
            Length(1),
            true,
            true,
        ),
        ("PUT / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\n\r\n", NoBody, true, false),
        ("PUT / HTTP/1.0\r\nExpect: 100-continue\r\nContent-Length: 1\r\n\r\n", Length(1), false, false),
    ];
    for (bytes, framing, keep_alive, expect_continue) in table {
        let (consumed, got_framing, got_keep_alive, got_expect, _) = head(bytes.as_bytes());
        assert_eq!(
            (consumed, got_framing, got_keep_alive, got_expect),
            (bytes.len(), *framing, *keep_alive, *expect_continue),
            "{bytes:?}"
        );
    }
}

#[test]
fn every_form_of_target_has_its_parts() {
    type Row<'a> = (&'a str, &'a str, &'a str, Option<&'a str>, &'a str);
    // method, target, path, query, authority
    let table: &[Row] = &[
        ("GET", "/", "/", None, "h"),
        ("GET", "/?", "/", Some(""), "h"),
        ("GET", "/a?b?c", "/a", Some("b?c"), "h"),
        ("GET", "/a|b{c}\"d", "/a|b{c}\"d", None, "h"),
        ("OPTIONS", "*", "*", None, "h"),
        ("GET", "http://h", "/", None, "h"),
        ("GET", "HTTPS://h/x/y?z", "/x/y", Some("z"), "h"),
        ("GET", "http://h?z", "/", Some("z"), "h"),
        ("CONNECT", "h:443", "", None, "h:443"),
    ];
    for (method, target, path, query, authority) in table {
        let (.., request) =
            head(format!("{method} {target} HTTP/1.1\r\nHost: {authority}\r\n\r\n").as_bytes());
        assert_eq!(request.target(), target.as_bytes());
        assert_eq!(request.path(), path.as_bytes(), "{target}");
        assert_eq!(request.query(), query.map(str::as_bytes), "{target}");
        assert_eq!(request.authority(), Some(authority.as_bytes()), "{target}");
    }
}

/// Requests that must be refused, with the status. Many are from published request smuggling research; each is
/// read differently by some pair of servers.
const REFUSED: &[(u16, &[u8])] = &[
    // Line ends
    (400, b"GET / HTTP/1.1\nHost: a\r\n\r\n"),
    (400, b"GET / HTTP/1.1\r\nHost: a\n\r\n"),
    (400, b"GET / HTTP/1.1\r\nHost: a\r\n\n"),
    (400, b"GET / HTTP/1.1\r\nHost: a\n\n"),
    (400, b"GET / HTTP/1.1\r\nHost: a\rX: b\r\n\r\n"),
    (400, b"GET / HTTP/1.1\r\nHost: a\r\r\n\r\n"),
    (400, b"GET / HTTP/1.1\rHost: a\r\n\r\n"),
    (400, b"\nGET / HTTP/1.1\r\nHost: a\r\n\r\n"),
    (400, b"\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n"),
    (400, b"\rGET / HTTP/1.1\r\nHost: a\r\n\r\n"),
    (400, b"GET / HTTP/1.1\r\nHost: a\r\nX: 1\nContent-Length: 5\r\n\r\n"),
    // Request line
    (400, b" GET / HTTP/1.1\r\nHost: a\r\n\r\n"),
    (400, b"GET  / HTTP/1.1\r\nHost: a\r\n\r\n"),
    (400, b"GET /  HTTP/1.1\r\nHost: a\r\n\r\n"),
    (400, b"GET / HTTP/1.1 \r\nHost: a\r\n\r\n"),
    (400, b"GET\t/ HTTP/1.1\r\nHost: a\r\n\r\n"),
    (400, b"GET /\tHTTP/1.1\r\nHost: a\r\n\r\n"),
    (400, b"GET /\r\n\r\n"),
    (400, b"GET\r\n\r\n"),
    (400, b"GET /a b HTTP/1.1\r\nHost: a\r\n\r\n"),
    (400, b"G(T / HTTP/1.1\r\nHost: a\r\n\r\n"),
    (400, b"GET / HTTP/1.1, HTTP/1.1\r\nHost: a\r\n\r\n"),
    (400, b"GET / http/1.1\r\nHost: a\r\n\r\n"),
    (400, b"GET / HTTP/11\r\nHost: a\r\n\r\n\r\n"),
    (400, b"GET / HTTP/1.\r\nHost: a\r\n\r\n"),
    (400, b"GET / HTTP/1.1x\r\nHost: a\r\n\r\n"),
    (400, b"GET / HTTP/1.10\r\nHost: a\r\n\r\n"),
    (400, b"GET / HTTP/1\r\n\r\n"),
    (400, b"GET / ICE/1.0\r\nHost: a\r\n\r\n"),
    (505, b"GET / HTTP/2.0\r\nHost: a\r\n\r\n"),
    (505, b"GET / HTTP/1.2\r\nHost: a\r\n\r\n"),
    (505, b"GET / HTTP/0.9\r\nHost: a\r\n\r\n"),
    (505, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
    (501, b"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA / HTTP/1.1\r\nHost: a\r\n\r\n"),
    // Target
    (400, b"GET /a#b HTTP/1.1\r\nHost: a\r\n\r\n"),
    (400, b"GET /\xc3\xa4 HTTP/1.1\r\nHost: a\r\n\r\n"),
    (400, b"GET /\x00 HTTP/1.1\r\nHost: a\r\n\r\n"),
    (400, b"GET /\x7f HTTP/1.1\r\nHost: a\r\n\r\n"),
    (400, b"GET a HTTP/1.1\r\nHost: a\r\n\r\n"),
    (400, b"GET ?a HTTP/1.1\r\nHost: a\r\n\r\n"),
    (400, b"GET ** HTTP/1.1\r\nHost: a\r\n\r\n"),
    (400, b"GET ftp://a/ HTTP/1.1\r\nHost: a\r\n\r\n"),
    (400, b"GET http:///a HTTP/1.1\r\nHost: a\r\n\r\n"),
    (400, b"GET http://user@a/ HTTP/1.1\r\nHost: a\r\n\r\n"),
    (400, b"GET http://b/ HTTP/1.1\r\nHost: a\r\n\r\n"),
    (400, b"GET a:443 HTTP/1.1\r\nHost: a\r\n\r\n"),
    (400, b"CONNECT /a HTTP/1.1\r\nHost: a\r\n\r\n"),
    (400, b"CONNECT a HTTP/1.1\r\nHost: a\r\n\r\n"),
    (400, b"CONNECT a: HTTP/1.1\r\nHost: a:\r\n\r\n"),
    (400, b"CONNECT :443 HTTP/1.1\r\nHost: :443\r\n\r\n"),
    // Host
    (400, b"GET / HTTP/1.1\r\n\r\n"),
    (400, b"GET / HTTP/1.1\r\nX: a\r\n\r\n"),
    (400, b"GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n"),
    (400, b"GET / HTTP/1.1\r\nHost: a\r\nHOST: b\r\n\r\n"),
    (400, b"GET / HTTP/1.0\r\nHost: a\r\nHost: b\r\n\r\n"),
    (400, b"GET / HTTP/1.1\r\nHost: a b\r\n\r\n"),
    (400, b"GET / HTTP/1.1\r\nHost: a,b\r\n\r\n"),
    (400, b"GET / HTTP/1.1\r\nHost: a/b\r\n\r\n"),
    (400, b"GET / HTTP/1.1\r\nHost: u@a\r\n\r\n"),
    (400, b"GET / HTTP/1.1\r\nHost: http://a\r\n\r\n"),
    (400, b"GET / HTTP/1.1\r\nHost: a:8x\r\n\r\n"),
    (400, b"GET / HTTP/1.1\r\nHost: a:1:2\r\n\r\n"),
    (400, b"GET / HTTP/1.1\r\nHost: a:123456\r\n\r\n"),
    (400, b"GET / HTTP/1.1\r\nHost: [::1\r\n\r\n"),
    (400, b"GET / HTTP/1.1\r\nHost: [::1]x\r\n\r\n"),
    (400, b"GET / HTTP/1.1\r\nHost: [g]\r\n\r\n"),
    (400, b"GET / HTTP/1.1\r\nHost: \xe4\r\n\r\n"),
    // Field lines
    (400, b"GET / HTTP/1.1\r\nHost : a\r\n\r\n"),
    (400, b"GET / HTTP/1.1\r\nHost\t: a\r\n\r\n"),
    (400, b"GET / HTTP/1.1\r\n Host: a\r\n\r\n"),
    (400, b"GET / HTTP/1.1\r\nHost: a\r\nX: b\r\n c\r\n\r\n"),
    (400, b"GET / HTTP/1.1\r\nHost: a\r\nX: b\r\n\tc\r\n\r\n"),
    (400, b"GET / HTTP/1.1\r\nHost: a\r\n: b\r\n\r\n"),
    (400, b"GET / HTTP/1.1\r\nHost: a\r\nX\r\n\r\n"),
    (400, b"GET / HTTP/1.1\r\nHost: a\r\nX b: c\r\n\r\n"),
    (400, b"GET / HTTP/1.1\r\nHost: a\r\nX(: c\r\n\r\n"),
    (400, b"GET / HTTP/1.1\r\nHost: a\r\nX\xe4: c\r\n\r\n"),
    (400, b"GET / HTTP/1.1\r\nHost: a\r\nX\x00: c\r\n\r\n"),
    (400, b"GET / HTTP/1.1\r\nHost: a\r\nX: b\x00c\r\n\r\n"),
    (400, b"GET / HTTP/1.1\r\nHost: a\r\nX: b\x0bc\r\n\r\n"),
    (400, b"GET / HTTP/1.1\r\nHost: a\r\nX: bbbbbbbbbbbbbbbbb\x1b\r\n\r\n"),
    (400, b"GET / HTTP/1.1\r\nHost: a\r\nX: b\x7f\r\n\r\n"),
    (400, b"GET / HTTP/1.1\r\nHost: a\r\nContent-Length\x00: 5\r\n\r\n"),
    (400, b"GET / HTTP/1.1\r\nHost: a\r\n\x0bTransfer-Encoding: chunked\r\n\r\n"),
    // Framing
    (400, b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n"),
    (400, b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n"),
    (400, b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: x\r\nContent-Length: 5\r\n\r\n"),
    (400, b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n"),
    (400, b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nX: y\r\ncontent-length: 0\r\n\r\n"),
    (400, b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5, 5\r\n\r\n"),
    (400, b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: +5\r\n\r\n"),
    (400, b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: -5\r\n\r\n"),
    (400, b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0x5\r\n\r\n"),
    (400, b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5 5\r\n\r\n"),
    (400, b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5.0\r\n\r\n"),
    (400, b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1e2\r\n\r\n"),
    (400, b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length:\r\n\r\n"),
    (400, b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: \"5\"\r\n\r\n"),
    (400, b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 18446744073709551616\r\n\r\n"),
    (400, b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n"),
    (400, b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n"),
    (400, b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked, chunked\r\n\r\n"),
    (400, b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked, gzip\r\n\r\n"),
    (400, b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding:\r\n\r\n"),
    (400, b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: \x0bchunked\r\n\r\n"),
    (400, b"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n"),
    (501, b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip, chunked\r\n\r\n"),
    (501, b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: identity\r\n\r\n"),
    (501, b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: xchunked\r\n\r\n"),
    (501, b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: \"chunked\"\r\n\r\n"),
    (501, b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked;q=1\r\n\r\n"),
    (501, b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\xa0\r\n\r\n"),
    (417, b"POST / HTTP/1.1\r\nHost: a\r\nExpect: 200-ok\r\n\r\n"),
    // Not HTTP
    (400, b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"),
    (400, b"SSH-2.0-OpenSSH_9.2\r\n"),
    (400, b"\x00\x00\x00\x00"),
];

#[test]
fn malformed_and_ambiguous_requests_are_refused() {
    for (status, bytes) in REFUSED {
        let (result, _) = parse(bytes);
        assert_eq!(
            result.map_err(|reject| reject.status),
            Err(*status),
            "{:?}",
            bytes.escape_ascii().to_string()
        );
    }
}

/// Feeds a buffer that grows by steps, as a worker does, until there is an answer.
fn parse_growing(bytes: &[u8], steps: &[usize]) -> (Result<Parsed, Reject>, Request) {
    let mut request = Request::new();
    let ends = steps.iter().copied().chain([bytes.len()]);
    let mut result = Ok(Parsed::Incomplete);
    for end in ends {
        result = parse_request(&bytes[..end], &Limits::default(), &mut request);
        if result != Ok(Parsed::Incomplete) {
            break;
        }
    }
    (result, request)
}

#[test]
fn a_request_parses_the_same_wherever_it_is_split() {
    let whole = head(BROWSER);
    for split in 0..BROWSER.len() {
        assert_eq!(parse(&BROWSER[..split]).0, Ok(Parsed::Incomplete), "the first {split} bytes");
        let (result, request) = parse_growing(BROWSER, &[split]);
        assert_eq!(
            result,
            Ok(Parsed::Head {
                consumed: whole.0,
                framing: whole.1,
                keep_alive: whole.2,
                expect_continue: whole.3
            })
        );
        assert!(request.headers().eq(whole.4.headers()));
        assert_eq!((request.method(), request.target()), (whole.4.method(), whole.4.target()));
    }
}

#[test]
fn a_refusal_is_the_same_wherever_the_request_is_split() {
    for (status, bytes) in REFUSED {
        for split in 0..bytes.len() {
            let (result, _) = parse_growing(bytes, &[split]);
            let shown = bytes.escape_ascii().to_string();
            assert_eq!(result.map_err(|reject| reject.status), Err(*status), "{shown:?} split at {split}");
        }
    }
}

#[test]
fn pipelined_requests_are_taken_one_by_one_into_the_same_memory() {
    let pipeline = b"GET /1 HTTP/1.1\r\nHost: a\r\nX-One: 1\r\n\r\n\
        POST /2?q HTTP/1.1\r\nHost: b\r\nContent-Length: 4\r\n\r\nbody\
        HEAD /3 HTTP/1.0\r\n\r\nGET /4 HT";
    let mut request = Request::new();
    let mut at = 0;
    let mut seen = Vec::new();
    while let Ok(Parsed::Head { consumed, framing, .. }) =
        parse_request(&pipeline[at..], &Limits::default(), &mut request)
    {
        at += consumed;
        if let BodyFraming::Length(length) = framing {
            at += length as usize;
        }
        seen.push((
            String::from_utf8_lossy(request.method()).into_owned(),
            String::from_utf8_lossy(request.target()).into_owned(),
            request.header("x-one").is_some(),
            request.headers().count(),
        ));
    }
    let expected = [("GET", "/1", true, 2), ("POST", "/2?q", false, 2), ("HEAD", "/3", false, 0)];
    assert_eq!(seen.len(), expected.len());
    for (got, want) in seen.iter().zip(expected) {
        assert_eq!((got.0.as_str(), got.1.as_str(), got.2, got.3), want);
    }
    assert_eq!(&pipeline[at..], b"GET /4 HT");
}

#[test]
fn limits_hold_to_the_byte() {
    let limits = Limits { head_bytes: 256, target_bytes: 32, fields: 3 };
    let status = |bytes: &[u8]| {
        let mut request = Request::new();
        match parse_request(bytes, &limits, &mut request) {
            Ok(Parsed::Head { .. }) => 200,
            Ok(Parsed::Incomplete) => 100,
            Err(reject) => reject.status,
        }
    };
    let with_target =
        |len: usize| format!("GET /{} HTTP/1.1\r\nHost: a\r\n\r\n", "a".repeat(len - 1)).into_bytes();
    assert_eq!(status(&with_target(32)), 200);
    assert_eq!(status(&with_target(33)), 414);
    assert_eq!(status(&with_target(33)[..38]), 414, "refused before the target ends");

    let with_head = |len: usize| {
        let start = "GET / HTTP/1.1\r\nHost: a\r\nX: ";
        format!("{start}{}\r\n\r\n", "x".repeat(len - start.len() - 4)).into_bytes()
    };
    assert_eq!(status(&with_head(256)), 200);
    assert_eq!(status(&with_head(257)), 431);
    assert_eq!(status(&with_head(1000)[..255]), 100);
    assert_eq!(status(&with_head(1000)[..256]), 431, "no head can end within the limit any more");

    assert_eq!(status(b"GET / HTTP/1.1\r\nHost: a\r\nB: b\r\nC: c\r\n\r\n"), 200);
    assert_eq!(status(b"GET / HTTP/1.1\r\nHost: a\r\nB: b\r\nC: c\r\nD: d\r\n\r\n"), 431);
}

#[test]
fn a_reused_request_needs_no_new_memory() {
    let mut request = Request::new();
    parse_request(BROWSER, &Limits::default(), &mut request).unwrap();
    let place = request.target().as_ptr();
    for _ in 0..3 {
        parse_request(BROWSER, &Limits::default(), &mut request).unwrap();
        assert_eq!(request.target().as_ptr(), place);
    }
}

#[test]
fn mutated_requests_never_panic_and_what_is_accepted_is_clean() {
    let mut numbers = Numbers(0x5eed);
    let seeds: Vec<&[u8]> = REFUSED.iter().map(|(_, bytes)| *bytes).chain([BROWSER]).collect();
    let interesting = b"\r\n\0 \t:;,%?#/\x7f\xff[]@HTTP/1.0";
    let mut request = Request::new();
    let mut accepted = 0;
    for _ in 0..60_000 {
        let mut bytes = seeds[numbers.below(seeds.len())].to_vec();
        for _ in 0..=numbers.below(4) {
            let at = numbers.below(bytes.len() + 1);
            match numbers.below(4) {
                0 => bytes.insert(at, interesting[numbers.below(interesting.len())]),
                1 if at < bytes.len() => drop(bytes.remove(at)),
                2 if at < bytes.len() => bytes[at] = numbers.next() as u8,
                _ => bytes.truncate(at),
            }
        }
        if let Ok(Parsed::Head { consumed, .. }) = parse_request(&bytes, &Limits::default(), &mut request) {
            accepted += 1;
            assert!(consumed <= bytes.len() && bytes[..consumed].ends_with(b"\r\n\r\n"));
            let is_clean = |value: &[u8]| !value.iter().any(|byte| matches!(byte, b'\r' | b'\n' | 0));
            assert!(request.headers().all(|(name, value)| is_clean(name) && is_clean(value)));
            assert!(is_clean(request.target()));
            if let Some(path) = request.normalized_path() {
                assert!(
                    path.starts_with(b"/") && !path.split(|&byte| byte == b'/').any(|part| part == b"..")
                );
            }
        }
    }
    assert!(accepted > 1_000, "only {accepted} mutants were accepted: the test has lost its aim");
}
