//! Requests as scripts see and change them, and the normal form of paths.

use crate::http::request::{InvalidTarget, Request, Version, normalize};
use crate::http::syntax::InvalidField;

#[test]
fn paths_have_one_normal_form() {
    let table: &[(&str, Option<&str>)] = &[
        ("/", Some("/")),
        ("/a/b.html", Some("/a/b.html")),
        ("/a/", Some("/a/")),
        ("/.well-known/acme", Some("/.well-known/acme")),
        ("/a..b/...", Some("/a..b/...")),
        ("/a%20b", Some("/a b")),
        ("/%41%4a%4A", Some("/AJJ")),
        ("/a%2Fb", Some("/a/b")),
        ("/a%252e%252e/b", Some("/a%2e%2e/b")),
        ("/%25", Some("/%")),
        ("/a/./b", Some("/a/b")),
        ("/a/../b", Some("/b")),
        ("/a/b/..", Some("/a/")),
        ("/a/b/.", Some("/a/b/")),
        ("/a/..", Some("/")),
        ("/a/%2e%2E/b", Some("/b")),
        ("/a/.%2e/b", Some("/b")),
        ("/a%2f..%2fb", Some("/b")),
        ("//a", Some("/a")),
        ("/a//b///", Some("/a/b/")),
        ("/a//../b", Some("/b")),
        ("/%2e", Some("/")),
        ("/%2f%2fevil", Some("/evil")),
        ("/a\\..\\b", Some("/a\\..\\b")),
        ("/..", None),
        ("/../a", None),
        ("/a/../../b", None),
        ("/%2e%2e/a", None),
        ("/a/%2e%2e%2f%2e%2e", None),
        ("/%", None),
        ("/%4", None),
        ("/%zz", None),
        ("/%4x", None),
        ("/%00", None),
        ("/a%00.html", None),
        ("*", None),
        ("", None),
    ];
    for (path, normal) in table {
        let got = normalize(path.as_bytes());
        assert_eq!(got.as_deref(), normal.map(str::as_bytes), "{path}");
    }
    assert_eq!(normalize(b"/%ff").as_deref(), Some(&b"/\xff"[..]), "names need not be UTF-8");
}

#[test]
fn a_normal_path_is_already_normal() {
    for path in ["/", "/a b/c", "/a/%25/", "/x..y/.z"] {
        let once = normalize(path.as_bytes()).unwrap().into_owned();
        if !once.contains(&b'%') {
            assert_eq!(normalize(&once).as_deref(), Some(&once[..]));
        }
    }
}

#[test]
fn a_request_can_be_built_and_changed() {
    let mut request = Request::new();
    request.set_method(b"POST").unwrap();
    request.set_target(b"/a?b").unwrap();
    request.set_version(Version::Http2);
    request.append_header(b"Cookie", b" a=1 ").unwrap();
    request.append_header(b"X-Keep", b"yes").unwrap();
    request.append_header(b"cookie", b"b=2").unwrap();
    assert_eq!(request.header_values(b"COOKIE").collect::<Vec<_>>(), [&b"a=1"[..], b"b=2"]);

    request.set_header(b"cOOkie", b"c=3").unwrap();
    let fields: Vec<_> = request.headers().collect();
    assert_eq!(fields, [(&b"X-Keep"[..], &b"yes"[..]), (b"cOOkie", b"c=3")]);
    assert_eq!(request.remove_header(b"cookie"), 1);
    assert_eq!(request.remove_header(b"cookie"), 0);
    assert_eq!(request.header("cookie"), None);

    request.set_target(b"http://other:81/x/../y?z=1").unwrap();
    assert_eq!((request.path(), request.query()), (&b"/x/../y"[..], Some(&b"z=1"[..])));
    assert_eq!(request.authority(), Some(&b"other:81"[..]));
    assert_eq!(request.normalized_path().as_deref(), Some(&b"/y"[..]));
    request.set_method(b"GET").unwrap();
    assert_eq!((request.method(), request.version()), (&b"GET"[..], Version::Http2));

    let copy = request.clone();
    request.clear();
    assert_eq!((request.method(), request.path(), request.query()), (&b""[..], &b""[..], None));
    assert_eq!((request.version(), request.headers().count()), (Version::Http11, 0));
    assert_eq!(copy.header("x-keep"), Some(&b"yes"[..]));
}

#[test]
fn what_could_not_have_been_received_can_not_be_set() {
    let mut request = Request::new();
    request.set_method(b"GET").unwrap();
    request.set_target(b"/kept").unwrap();
    assert_eq!(request.set_method(b"GE T"), Err(InvalidField::Name));
    assert_eq!(request.set_method(b""), Err(InvalidField::Name));
    for target in [&b""[..], b"a", b"/a b", b"/a\r\nHost: b", b"/a#b", b"/\xff", b"ftp://a/", b"h:443"] {
        assert_eq!(request.set_target(target), Err(InvalidTarget), "{target:?}");
    }
    assert_eq!(request.append_header(b"a b", b""), Err(InvalidField::Name));
    assert_eq!(request.append_header(b"a", b"b\nc"), Err(InvalidField::Value));
    assert_eq!(request.set_header(b"a", b"b\0"), Err(InvalidField::Value));
    assert_eq!(
        (request.method(), request.target(), request.headers().count()),
        (&b"GET"[..], &b"/kept"[..], 0)
    );
}

#[test]
fn changes_without_end_are_refused() {
    let mut request = Request::new();
    let value = vec![b'v'; 4096];
    let error = (0..1000).find_map(|_| request.set_header(b"X", &value).err());
    assert_eq!(error, Some(InvalidField::TooLarge));
    assert_eq!(request.header("x"), Some(&value[..]), "the last one that fitted stays");
    request.clear();
    request.set_header(b"X", &value).unwrap();
}
