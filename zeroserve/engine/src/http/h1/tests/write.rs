//! Response heads, byte for byte.

use crate::http::h1::{BodyFraming, write_head};
use crate::http::headers::{HeaderBlock, HeaderList};
use crate::http::request::Version;
use crate::http::response::{Body, Response};

const DATE: &[u8; 29] = b"Tue, 01 Dec 2026 02:52:00 GMT";

fn written(response: &Response, keep_alive: bool, version: Version) -> String {
    let mut out = b"before".to_vec();
    write_head(response, keep_alive, version, DATE, &mut out);
    String::from_utf8(out).unwrap().strip_prefix("before").unwrap().to_owned()
}

#[test]
fn a_file_response_is_written_with_its_shared_fields_and_its_own() {
    let block =
        HeaderBlock::prerender(&[("Content-Type", "text/css; charset=utf-8"), ("ETag", "\"1\"")]).unwrap();
    let mut response = Response {
        status: 200,
        headers: HeaderList::from_shared(&block),
        body: Body::File { offset: 512, len: 18_446_744_073_709_551_615, cached: None },
    };
    response.append_header("X-Frame-Options", "DENY").unwrap();
    assert_eq!(
        written(&response, true, Version::Http11),
        "HTTP/1.1 200 OK\r\nServer: zeroserve\r\nDate: Tue, 01 Dec 2026 02:52:00 GMT\r\n\
         Content-Length: 18446744073709551615\r\n\
         Content-Type: text/css; charset=utf-8\r\nETag: \"1\"\r\nX-Frame-Options: DENY\r\n\r\n"
    );
}

#[test]
fn the_connection_field_appears_where_the_versions_default_misleads() {
    let response = Response::new(200);
    let connection = |keep_alive, version| {
        let head = written(&response, keep_alive, version);
        head.lines().find_map(|line| line.strip_prefix("Connection: ").map(str::to_owned))
    };
    assert_eq!(connection(true, Version::Http11), None);
    assert_eq!(connection(false, Version::Http11).as_deref(), Some("close"));
    assert_eq!(connection(true, Version::Http10).as_deref(), Some("keep-alive"));
    assert_eq!(connection(false, Version::Http10).as_deref(), Some("close"));
}

#[test]
fn lengths_and_status_lines_follow_the_status() {
    // status, status line, Content-Length, whether the body is sent to a GET
    let table = [
        (200, "HTTP/1.1 200 OK", Some("2"), true),
        (204, "HTTP/1.1 204 No Content", None, false),
        (205, "HTTP/1.1 205 Reset Content", Some("0"), false),
        (206, "HTTP/1.1 206 Partial Content", Some("2"), true),
        (304, "HTTP/1.1 304 Not Modified", None, false),
        (404, "HTTP/1.1 404 Not Found", Some("2"), true),
        (299, "HTTP/1.1 299 ", Some("2"), true),
        (599, "HTTP/1.1 599 ", Some("2"), true),
        (600, "HTTP/1.1 500 Internal Server Error", Some("2"), true),
        (100, "HTTP/1.1 500 Internal Server Error", Some("2"), true),
        (0, "HTTP/1.1 500 Internal Server Error", Some("2"), true),
    ];
    for (status, line, length, sends) in table {
        let response = Response { body: Body::Bytes(b"ok".to_vec()), ..Response::new(status) };
        let head = written(&response, true, Version::Http11);
        assert_eq!(head.split("\r\n").next(), Some(line));
        let written_length = head.lines().find_map(|line| line.strip_prefix("Content-Length: "));
        assert_eq!(written_length, length, "{status}");
        assert_eq!(response.sends_body(false), sends, "{status}");
        assert!(!response.sends_body(true), "{status} to a HEAD");
    }
}

#[test]
fn a_response_may_bring_its_own_date_and_server() {
    let mut response = Response::new(200);
    response.set_header("date", "Sun, 06 Nov 1994 08:49:37 GMT").unwrap();
    response.set_header("Server", "other").unwrap();
    let head = written(&response, true, Version::Http11);
    assert_eq!(head.to_ascii_lowercase().matches("date:").count(), 1);
    assert_eq!(head.matches("Server: other\r\n").count(), 1);
    assert!(!head.contains("zeroserve"));
    response.headers.remove("DATE");
    response.headers.remove("server");
    let head = written(&response, true, Version::Http11);
    assert!(head.contains("Server: zeroserve\r\nDate: Tue, 01 Dec 2026"));
}

#[test]
fn a_refusal_has_a_response_that_names_its_status() {
    let reject = crate::http::h1::BodyReader::new(BodyFraming::Length(2), 1).unwrap_err();
    let response = reject.response();
    assert_eq!(response.body.in_memory(), Some(&b"413 Content Too Large\n"[..]));
    assert!(
        written(&response, false, Version::Http11).contains("Content-Length: 22\r\nConnection: close\r\n")
    );
}
