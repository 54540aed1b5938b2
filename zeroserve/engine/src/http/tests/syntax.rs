//! The lexical rules.

use crate::http::syntax::{decimal, find_control, is_field_value, is_token, list_elements, trim_ows};

#[test]
fn the_first_control_character_is_found_at_every_place_and_for_every_byte() {
    for len in 0..40 {
        assert_eq!(find_control(&vec![0xff; len]), len);
        for at in 0..len {
            for byte in 0..=255u8 {
                let mut bytes = vec![b'x'; len];
                bytes[at] = byte;
                let is_control = byte < 0x20 || byte == 0x7f;
                assert_eq!(
                    find_control(&bytes),
                    if is_control { at } else { len },
                    "{byte:#x} at {at} of {len}"
                );
            }
        }
    }
}

#[test]
fn the_first_of_several_control_characters_is_found() {
    for (bytes, at) in [
        (&b"ab\x7f\x00\x80\x80\x80\x80"[..], 2),
        (b"\x20\x1f\x20\x20\x20\x20\x20\x20", 1),
        (b"\x80\x80\x0a\x0d\x80\x80\x80\x80", 2),
    ] {
        assert_eq!(find_control(bytes), at);
    }
}

#[test]
fn tokens_and_values_hold_what_the_grammar_allows() {
    assert!(is_token(b"!#$%&'*+-.^_`|~09azAZ"));
    for byte in b"\"(),/:;<=>?@[\\]{} \t\x00\x7f\x80" {
        assert!(!is_token(&[b'a', *byte]), "{byte:#x}");
    }
    assert!(!is_token(b""));
    assert!(is_field_value(b"") && is_field_value(b"a\tb \xff"));
    for byte in [b'\r', b'\n', 0, 0x7f, 0x1b] {
        assert!(!is_field_value(&[b"\tlong enough for a word", &[byte][..], b"!"].concat()), "{byte:#x}");
    }
}

#[test]
fn lists_are_split_and_trimmed() {
    let elements: Vec<_> = list_elements(b" a, ,b\t,,c d ").collect();
    assert_eq!(elements, [&b"a"[..], b"b", b"c d"]);
    assert_eq!(trim_ows(b" \t "), b"");
}

#[test]
fn decimals_are_digits_within_64_bits() {
    for (digits, value) in [
        (&b"0"[..], Some(0)),
        (b"007", Some(7)),
        (b"18446744073709551615", Some(u64::MAX)),
        (b"18446744073709551616", None),
        (b"99999999999999999999", None),
        (b"", None),
        (b"+1", None),
        (b"1 ", None),
        (b"\xb9", None),
    ] {
        assert_eq!(decimal(digits), value, "{digits:?}");
    }
}
