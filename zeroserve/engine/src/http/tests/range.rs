//! Ranges, with the examples of RFC 9110, section 14.1.2 (a representation of 10000 bytes) and its edges.

use crate::http::range::{RangeOutcome, parse};

#[test]
fn ranges_select_what_the_rfc_says() {
    use RangeOutcome::{Part, Unsatisfiable, Whole};
    let part = |start, end| Part { start, end };
    let table: &[(&str, u64, RangeOutcome)] = &[
        ("bytes=0-499", 10_000, part(0, 500)),
        ("bytes=500-999", 10_000, part(500, 1000)),
        ("bytes=-500", 10_000, part(9500, 10_000)),
        ("bytes=9500-", 10_000, part(9500, 10_000)),
        ("bytes=0-0", 10_000, part(0, 1)),
        ("bytes=9999-9999", 10_000, part(9999, 10_000)),
        ("bytes=0-", 10_000, part(0, 10_000)),
        ("bytes=0-9999", 10_000, part(0, 10_000)),
        ("bytes=0-10000", 10_000, part(0, 10_000)),
        ("bytes=9999-20000", 10_000, part(9999, 10_000)),
        ("bytes=-1", 10_000, part(9999, 10_000)),
        ("bytes=-10001", 10_000, part(0, 10_000)),
        ("bytes=0-18446744073709551615", 10_000, part(0, 10_000)),
        ("bytes=0-99999999999999999999999", 10_000, part(0, 10_000)),
        ("bytes=-99999999999999999999999", 10_000, part(0, 10_000)),
        ("Bytes=1-2", 10_000, part(1, 3)),
        ("bytes= 1-2 ,", 10_000, part(1, 3)),
        ("bytes=10000-", 10_000, Unsatisfiable),
        ("bytes=10000-10001", 10_000, Unsatisfiable),
        ("bytes=99999999999999999999999-", 10_000, Unsatisfiable),
        ("bytes=-0", 10_000, Unsatisfiable),
        ("bytes=0-", 0, Unsatisfiable),
        ("bytes=0-0", 0, Unsatisfiable),
        ("bytes=-5", 0, Unsatisfiable),
        ("bytes=0-0", 1, part(0, 1)),
        ("bytes=2-1", 10_000, Whole),
        ("bytes=0-0,-1", 10_000, Whole),
        ("bytes=0-1,5-6", 10_000, Whole),
        ("bytes=", 10_000, Whole),
        ("bytes=-", 10_000, Whole),
        ("bytes=,", 10_000, Whole),
        ("bytes=a-b", 10_000, Whole),
        ("bytes=1", 10_000, Whole),
        ("bytes=1--2", 10_000, Whole),
        ("bytes=+1-2", 10_000, Whole),
        ("bytes=1 -2", 10_000, Whole),
        ("bytes=0x1-2", 10_000, Whole),
        ("bytes =1-2", 10_000, Whole),
        ("items=0-1", 10_000, Whole),
        ("byte", 10_000, Whole),
        ("", 10_000, Whole),
    ];
    for (header, len, outcome) in table {
        assert_eq!(parse(header.as_bytes(), *len), *outcome, "{header:?} of {len}");
    }
}
