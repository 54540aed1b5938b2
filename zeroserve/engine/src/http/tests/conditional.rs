//! Preconditions in every combination that section 13.2.2 of RFC 9110 orders.

use crate::http::conditional::{Outcome, Validators, evaluate};
use crate::http::request::Request;

const MODIFIED: u64 = 784_111_777;
const SAME: &str = "Sun, 06 Nov 1994 08:49:37 GMT";
const EARLIER: &str = "Sun, 06 Nov 1994 08:49:36 GMT";
const LATER: &str = "Sunday, 06-Nov-94 08:49:38 GMT";

const WHOLE: Outcome = Outcome::Proceed { range: false };
const RANGE: Outcome = Outcome::Proceed { range: true };

fn outcome(method: &str, fields: &[(&str, &str)]) -> Outcome {
    let mut request = Request::new();
    request.set_method(method.as_bytes()).unwrap();
    for (name, value) in fields {
        request.append_header(name.as_bytes(), value.as_bytes()).unwrap();
    }
    evaluate(&request, &Validators { etag: b"\"v1\"", last_modified: MODIFIED })
}

#[test]
fn entity_tags_are_compared_strongly_or_weakly_as_the_field_wants() {
    use Outcome::{NotModified, PreconditionFailed};
    let table: &[(&str, &str, Outcome)] = &[
        ("If-None-Match", "\"v1\"", NotModified),
        ("If-None-Match", "W/\"v1\"", NotModified),
        ("If-None-Match", "*", NotModified),
        ("If-None-Match", "\"v0\", \"v1\"", NotModified),
        ("If-None-Match", "\"v0\" , ,W/\"v1\"", NotModified),
        ("If-None-Match", "\"a,b\", \"v1\"", NotModified),
        ("If-None-Match", "\"v0\"", WHOLE),
        ("If-None-Match", "\"v1", WHOLE),
        ("If-None-Match", "v1", WHOLE),
        ("If-None-Match", "w/\"v1\"", WHOLE),
        ("If-None-Match", "\"x\"\"v1\"", WHOLE),
        ("If-None-Match", "\"x \", \"v1\"", WHOLE),
        ("If-None-Match", "", WHOLE),
        ("If-Match", "\"v1\"", WHOLE),
        ("If-Match", "\"v0\", \"v1\"", WHOLE),
        ("If-Match", "*", WHOLE),
        ("If-Match", "W/\"v1\"", PreconditionFailed),
        ("If-Match", "\"v0\"", PreconditionFailed),
        ("If-Match", "", PreconditionFailed),
    ];
    for (name, value, expected) in table {
        assert_eq!(outcome("GET", &[(name, value)]), *expected, "{name}: {value}");
        assert_eq!(outcome("HEAD", &[(name, value)]), *expected, "{name}: {value} with HEAD");
    }
    assert_eq!(outcome("PUT", &[("If-None-Match", "*")]), PreconditionFailed);
    assert_eq!(outcome("GET", &[("If-None-Match", "\"v0\""), ("If-None-Match", "\"v1\"")]), NotModified);
}

#[test]
fn dates_are_compared_by_the_second() {
    use Outcome::{NotModified, PreconditionFailed};
    let table: &[(&str, &str, Outcome)] = &[
        ("If-Modified-Since", SAME, NotModified),
        ("If-Modified-Since", LATER, NotModified),
        ("If-Modified-Since", EARLIER, WHOLE),
        ("If-Modified-Since", "yesterday", WHOLE),
        ("If-Unmodified-Since", SAME, WHOLE),
        ("If-Unmodified-Since", LATER, WHOLE),
        ("If-Unmodified-Since", EARLIER, PreconditionFailed),
        ("If-Unmodified-Since", "yesterday", WHOLE),
    ];
    for (name, value, expected) in table {
        assert_eq!(outcome("GET", &[(name, value)]), *expected, "{name}: {value}");
    }
    assert_eq!(outcome("POST", &[("If-Modified-Since", SAME)]), WHOLE, "only GET and HEAD have it");
    assert_eq!(
        outcome("GET", &[("If-Modified-Since", SAME), ("If-Modified-Since", SAME)]),
        WHOLE,
        "not a list"
    );
}

#[test]
fn preconditions_take_precedence_in_the_rfcs_order() {
    use Outcome::{NotModified, PreconditionFailed};
    let table: &[(&[(&str, &str)], Outcome)] = &[
        (&[("If-Match", "\"v1\""), ("If-Unmodified-Since", EARLIER)], WHOLE),
        (&[("If-Match", "\"v0\""), ("If-None-Match", "\"v1\"")], PreconditionFailed),
        (&[("If-Unmodified-Since", EARLIER), ("If-None-Match", "\"v1\"")], PreconditionFailed),
        (&[("If-Match", "\"v1\""), ("If-None-Match", "\"v1\"")], NotModified),
        (&[("If-None-Match", "\"v0\""), ("If-Modified-Since", SAME)], WHOLE),
        (&[("If-None-Match", "\"v1\""), ("If-Modified-Since", EARLIER)], NotModified),
        (&[("If-None-Match", "\"v1\""), ("Range", "bytes=0-0")], NotModified),
    ];
    for (fields, expected) in table {
        assert_eq!(outcome("GET", fields), *expected, "{fields:?}");
    }
}

#[test]
fn if_range_decides_whether_the_range_counts() {
    for (value, expected) in [
        ("\"v1\"", RANGE),
        ("W/\"v1\"", WHOLE),
        ("\"v0\"", WHOLE),
        ("\"v1\", \"v1\"", WHOLE),
        ("\"v0\", \"v1\"", WHOLE),
        (SAME, RANGE),
        (EARLIER, WHOLE),
        (LATER, WHOLE),
        ("", WHOLE),
        ("*", WHOLE),
    ] {
        assert_eq!(outcome("GET", &[("Range", "bytes=0-0"), ("If-Range", value)]), expected, "{value}");
    }
    assert_eq!(outcome("GET", &[("Range", "bytes=0-0")]), RANGE);
    assert_eq!(outcome("HEAD", &[("Range", "bytes=0-0")]), WHOLE);
    assert_eq!(outcome("GET", &[("If-Range", "\"v1\"")]), WHOLE);
    assert_eq!(outcome("GET", &[("Range", "bytes=0-0"), ("Range", "bytes=1-1")]), WHOLE);
}
