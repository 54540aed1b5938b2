//! What the site answers, as the client will see it.

use super::Folder;
use crate::http::h1::{Limits, Parsed, parse_request, write_head};
use crate::http::request::{Request, Version};
use crate::http::response::{Body, Response};
use crate::site::Site;
use crate::site::respond::respond;

const TAG: &str = "\"84d89877f0d4041efb6bf91a16f0248f\""; // SHA-256("0123456789")
const DATE: &str = "Sun, 06 Nov 1994 08:49:37 GMT";

fn site() -> (Folder, Site) {
    let folder = Folder::with_files(&[
        ("ten.txt", b"0123456789"),
        ("empty.js", b""),
        ("large.bin", &[b'l'; 100_000]),
        ("docs/index.html", b"docs"),
        (".zeroserve/secret", b"s"),
    ]);
    folder.tar(&["--mtime=@784111777"]);
    let site = folder.open().unwrap();
    (folder, site)
}

fn answer(site: &Site, method: &str, target: &str, fields: &str) -> Response {
    let mut request = Request::new();
    let text = format!("{method} {target} HTTP/1.1\r\nHost: a\r\n{fields}\r\n");
    let parsed = parse_request(text.as_bytes(), &Limits::default(), &mut request);
    assert!(matches!(parsed, Ok(Parsed::Head { .. })), "{parsed:?}");
    respond(site, &request)
}

fn field(response: &Response, name: &str) -> String {
    String::from_utf8_lossy(response.headers.get(name).unwrap_or(b"-")).into_owned()
}

/// The value of Content-Length on the wire.
fn length(response: &Response) -> Option<u64> {
    let mut head = Vec::new();
    write_head(response, true, Version::Http11, DATE.as_bytes().try_into().unwrap(), &mut head);
    let head = String::from_utf8(head).unwrap();
    head.lines().find_map(|line| line.strip_prefix("Content-Length: ")).map(|value| value.parse().unwrap())
}

#[test]
fn a_file_is_answered_with_type_tag_date_and_ranges() {
    let (_folder, site) = site();
    for method in ["GET", "HEAD"] {
        let response = answer(&site, method, "/ten.txt?x", "");
        assert_eq!(response.status, 200);
        assert_eq!(field(&response, "content-type"), "text/plain; charset=utf-8");
        assert_eq!(field(&response, "etag"), TAG);
        assert_eq!(field(&response, "last-modified"), DATE);
        assert_eq!(field(&response, "accept-ranges"), "bytes");
        assert_eq!(length(&response), Some(10));
        assert_eq!(response.body.in_memory(), Some(&b"0123456789"[..]));
        assert_eq!(response.sends_body(method == "HEAD"), method == "GET");
    }
    let empty = answer(&site, "GET", "/empty.js", "");
    assert_eq!((empty.status, length(&empty), empty.sends_body(false)), (200, Some(0), false));
    assert_eq!(field(&empty, "content-type"), "text/javascript; charset=utf-8");
}

#[test]
fn a_large_file_is_named_by_its_place_in_the_tarball() {
    let (folder, site) = site();
    let archive = std::fs::read(folder.site()).unwrap();
    let response = answer(&site, "GET", "/large.bin", "");
    let Body::File { offset, len, cached: None } = response.body else { panic!("{:?}", response.body) };
    assert_eq!(&archive[offset as usize..][..len as usize], [b'l'; 100_000]);
    let response = answer(&site, "GET", "/large.bin", "Range: bytes=-3\r\n");
    let Body::File { offset: start, len: 3, cached: None } = response.body else {
        panic!("{:?}", response.body)
    };
    assert_eq!(start, offset + 99_997);
}

#[test]
fn ranges_are_cut_from_the_file() {
    let (_folder, site) = site();
    for (range, body, content_range) in [
        ("bytes=0-0", "0", "bytes 0-0/10"),
        ("bytes=2-4", "234", "bytes 2-4/10"),
        ("bytes=7-", "789", "bytes 7-9/10"),
        ("bytes=-4", "6789", "bytes 6-9/10"),
        ("bytes=5-99", "56789", "bytes 5-9/10"),
        ("bytes=0-9", "0123456789", "bytes 0-9/10"),
    ] {
        let response = answer(&site, "GET", "/ten.txt", &format!("Range: {range}\r\n"));
        assert_eq!(
            (response.status, field(&response, "content-range").as_str()),
            (206, content_range),
            "{range}"
        );
        assert_eq!(response.body.in_memory(), Some(body.as_bytes()), "{range}");
        assert_eq!(length(&response), Some(body.len() as u64), "{range}");
        assert_eq!(field(&response, "etag"), TAG);
        assert_eq!(field(&response, "content-type"), "text/plain; charset=utf-8");
    }
    for fields in [
        "Range: bytes=0-1,3-4\r\n",
        "Range: lines=1-2\r\n",
        "Range: bytes=0-0\r\nIf-Range: \"other\"\r\n",
        "Range: bytes=0-0\r\nIf-Range: Sun, 06 Nov 1994 08:49:36 GMT\r\n",
    ] {
        let response = answer(&site, "GET", "/ten.txt", fields);
        assert_eq!((response.status, length(&response)), (200, Some(10)), "{fields}");
        assert_eq!(field(&response, "content-range"), "-");
    }
    assert_eq!(
        answer(&site, "GET", "/ten.txt", &format!("Range: bytes=0-0\r\nIf-Range: {TAG}\r\n")).status,
        206
    );
    let head = answer(&site, "HEAD", "/ten.txt", "Range: bytes=0-0\r\n");
    assert_eq!((head.status, length(&head)), (200, Some(10)));
}

#[test]
fn a_range_outside_the_file_is_416_with_the_size() {
    let (_folder, site) = site();
    let response = answer(&site, "GET", "/ten.txt", "Range: bytes=10-\r\n");
    assert_eq!((response.status, field(&response, "content-range").as_str()), (416, "bytes */10"));
    assert_eq!(response.body.in_memory(), Some(&b"416 Range Not Satisfiable\n"[..]));
    assert_eq!(answer(&site, "GET", "/empty.js", "Range: bytes=0-\r\n").status, 416);
}

#[test]
fn preconditions_are_answered_without_a_body() {
    let (_folder, site) = site();
    for method in ["GET", "HEAD"] {
        for fields in [
            format!("If-None-Match: {TAG}\r\n"),
            format!("If-None-Match: W/{TAG}\r\n"),
            format!("If-Modified-Since: {DATE}\r\n"),
        ] {
            let response = answer(&site, method, "/ten.txt", &fields);
            assert_eq!(
                (response.status, length(&response), response.sends_body(false)),
                (304, None, false),
                "{fields}"
            );
            assert_eq!(
                (field(&response, "etag").as_str(), field(&response, "last-modified").as_str()),
                (TAG, DATE)
            );
            assert_eq!(field(&response, "content-type"), "-");
        }
        assert_eq!(answer(&site, method, "/ten.txt", "If-Match: \"other\"\r\n").status, 412);
        assert_eq!(answer(&site, method, "/nowhere", "If-None-Match: *\r\n").status, 404);
    }
}

#[test]
fn other_methods_learn_which_are_allowed() {
    let (_folder, site) = site();
    for (method, target) in
        [("POST", "/ten.txt"), ("get", "/ten.txt"), ("OPTIONS", "*"), ("DELETE", "/nowhere")]
    {
        let response = answer(&site, method, target, "");
        assert_eq!((response.status, field(&response, "allow").as_str()), (405, "GET, HEAD"), "{method}");
    }
}

#[test]
fn what_is_not_there_is_404_and_what_makes_no_sense_400() {
    let (_folder, site) = site();
    for (target, status) in [
        ("/nowhere", 404),
        ("/.zeroserve/secret", 404),
        ("/%2ezeroserve/secret", 404),
        ("/docs/..//.zeroserve/./secret", 404),
        ("/../etc/passwd", 400),
        ("/%2e%2e%2fetc/passwd", 400),
        ("/ten.txt%00.html", 400),
        ("/%zz", 400),
        ("*", 400),
        ("/./docs//../ten%2etxt", 200),
    ] {
        assert_eq!(answer(&site, "GET", target, "").status, status, "{target}");
    }
}

#[test]
fn a_directory_redirects_to_itself_with_a_slash_and_to_nowhere_else() {
    let (_folder, site) = site();
    for (target, location) in [
        ("/docs", "/docs/"),
        ("/docs?a=b&c", "/docs/?a=b&c"),
        ("//docs", "/docs/"),
        ("/%2fdocs", "/docs/"),
        ("http://a/docs", "/docs/"),
    ] {
        let response = answer(&site, "GET", target, "");
        assert_eq!((response.status, field(&response, "location").as_str()), (301, location), "{target}");
    }
}
