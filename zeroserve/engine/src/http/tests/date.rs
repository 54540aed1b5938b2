//! Dates, against the examples of RFC 9110 and the calendar itself.

use crate::http::date::{format, parse, parse_at};

const EXAMPLE: u64 = 784_111_777;

fn text(seconds: u64) -> String {
    String::from_utf8(format(seconds).to_vec()).unwrap()
}

#[test]
fn dates_are_written_as_imf_fixdate() {
    for (seconds, written) in [
        (0, "Thu, 01 Jan 1970 00:00:00 GMT"),
        (EXAMPLE, "Sun, 06 Nov 1994 08:49:37 GMT"),
        (951_782_400, "Tue, 29 Feb 2000 00:00:00 GMT"),
        (951_868_799, "Tue, 29 Feb 2000 23:59:59 GMT"),
        (951_868_800, "Wed, 01 Mar 2000 00:00:00 GMT"),
        (1_709_164_800, "Thu, 29 Feb 2024 00:00:00 GMT"),
        (1_798_761_599, "Thu, 31 Dec 2026 23:59:59 GMT"),
        (4_107_542_400, "Mon, 01 Mar 2100 00:00:00 GMT"),
        (253_402_300_799, "Fri, 31 Dec 9999 23:59:59 GMT"),
        (u64::MAX, "Fri, 31 Dec 9999 23:59:59 GMT"),
    ] {
        assert_eq!(text(seconds), written);
    }
}

#[test]
fn what_is_written_is_read_back_on_every_day() {
    for day in (0..2_932_896).step_by(7).chain(10_950..12_000) {
        let seconds = day * 86_400 + day % 86_400;
        assert_eq!(parse(&format(seconds)), Some(seconds), "{}", text(seconds));
    }
}

#[test]
fn all_three_formats_are_read() {
    for date in
        ["Sun, 06 Nov 1994 08:49:37 GMT", "Sunday, 06-Nov-94 08:49:37 GMT", "Sun Nov  6 08:49:37 1994"]
    {
        assert_eq!(parse(date.as_bytes()), Some(EXAMPLE), "{date}");
    }
    assert_eq!(parse(b"Wed Nov 16 08:49:37 1994"), Some(EXAMPLE + 10 * 86_400));
    assert_eq!(parse(b"Sat, 31 Dec 2016 23:59:60 GMT"), Some(1_483_228_800), "a leap second");
}

#[test]
fn a_two_digit_year_is_at_most_fifty_years_ahead() {
    let in_2026 = 1_780_000_000;
    for (date, year_begins) in [
        ("Thursday, 01-Jan-26 00:00:00 GMT", 1_767_225_600u64),
        ("Wednesday, 01-Jan-76 00:00:00 GMT", 3_345_062_400),
        ("Saturday, 01-Jan-77 00:00:00 GMT", 220_924_800),
        ("Friday, 01-Jan-99 00:00:00 GMT", 915_148_800),
    ] {
        assert_eq!(parse_at(date.as_bytes(), in_2026), Some(year_begins), "{date}");
    }
}

#[test]
fn anything_else_is_no_date() {
    for text in [
        "",
        "0",
        "Sun, 06 Nov 1994 08:49:37",
        "Sun, 06 Nov 1994 08:49:37 UTC",
        "Sun, 06 Nov 1994 08:49:37 GMT ",
        "sun, 06 Nov 1994 08:49:37 GMT",
        "Mon, 06 Nov 1994 08:49:37 GMT",
        "Sun, 6 Nov 1994 08:49:37 GMT",
        "Sun, 06 nov 1994 08:49:37 GMT",
        "Sun, 06 Nov 1994 24:00:00 GMT",
        "Sun, 06 Nov 1994 08:60:37 GMT",
        "Sun, 06 Nov 1994 08:49:61 GMT",
        "Sun, 06 Nov 1994 +8:49:37 GMT",
        "Tue, 29 Feb 2023 00:00:00 GMT",
        "Mon, 29 Feb 2100 00:00:00 GMT",
        "Sun, 00 Nov 1994 08:49:37 GMT",
        "Thu, 31 Nov 1994 08:49:37 GMT",
        "Wed, 31 Dec 1969 23:59:59 GMT",
        "Sunday, 06-Nov-1994 08:49:37 GMT",
        "Sun, 06-Nov-94 08:49:37 GMT",
        "Sunday, 32-Nov-94 08:49:37 GMT",
        "Sun Nov 6 08:49:37 1994",
        "Sun Nov 06 08:49:37 19 4",
        "Mon Nov  6 08:49:37 1994",
        "Sün, 06 Nov 1994 08:49:37 GM",
    ] {
        assert_eq!(parse(text.as_bytes()), None, "{text:?}");
    }
}
