//! The lexical rules that requests and responses share: tokens, field values, lists (RFC 9110, section 5.6).
//! What a particular field means is decided elsewhere.

use thiserror::Error;

/// Why a header field was not taken. Setting one never changes the message when it fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum InvalidField {
    #[error("the field name is not a token")]
    Name,
    #[error("the field value contains a control character")]
    Value,
    #[error("the field is managed by the server")]
    Managed,
    #[error("the message would hold too many bytes of fields")]
    TooLarge,
}

const TOKEN: [bool; 256] = {
    let mut table = [false; 256];
    let mut byte = 0;
    while byte < 256 {
        let value = byte as u8;
        table[byte] = value.is_ascii_alphanumeric();
        byte += 1;
    }
    let others = b"!#$%&'*+-.^_`|~";
    let mut index = 0;
    while index < others.len() {
        table[others[index] as usize] = true;
        index += 1;
    }
    table
};

#[inline]
pub fn is_token_byte(byte: u8) -> bool {
    TOKEN[byte as usize]
}

/// How many bytes at the beginning are a token.
#[inline]
pub fn token_len(bytes: &[u8]) -> usize {
    bytes.iter().position(|&byte| !is_token_byte(byte)).unwrap_or(bytes.len())
}

pub fn is_token(bytes: &[u8]) -> bool {
    !bytes.is_empty() && token_len(bytes) == bytes.len()
}

/// One of 64 bits for a field's name, whatever its case. A set of names that keeps the bits of its members can
/// say of most others that they are not in it without comparing any.
#[inline]
pub fn name_bit(name: &[u8]) -> u64 {
    name.first().map_or(0, |&first| name_bit_of(name.len(), first))
}

/// `name_bit` from a name's length and first byte, which is all that it depends on.
#[inline]
pub fn name_bit_of(len: usize, first: u8) -> u64 {
    1 << ((len as u64).wrapping_add(u64::from(first | 0x20).wrapping_mul(7)) & 63)
}

/// True for bytes that may stand in a field value as this server writes and accepts it:
/// visible ASCII, space, tab and obs-text (RFC 9110, section 5.5).
pub fn is_field_value(bytes: &[u8]) -> bool {
    let mut at = 0;
    loop {
        at += find_control(&bytes[at..]);
        match bytes.get(at) {
            None => return true,
            Some(b'\t') => at += 1,
            Some(_) => return false,
        }
    }
}

const EACH_BYTE: u64 = 0x0101_0101_0101_0101;

/// Index of the first control character (below 0x20, or DEL), or the length. Eight bytes at a time.
#[inline]
pub fn find_control(bytes: &[u8]) -> usize {
    let mut at = 0;
    while let Some(word) = bytes[at..].first_chunk() {
        let found = control_mask(u64::from_le_bytes(*word));
        if found != 0 {
            return at + found.trailing_zeros() as usize / 8;
        }
        at += 8;
    }
    let tail = &bytes[at..];
    at + tail.iter().position(|&byte| byte < 0x20 || byte == 0x7f).unwrap_or(tail.len())
}

/// The high bit of each byte that is a control character. Borrows can mark bytes above a true one
/// as well, so only the lowest set bit is exact, which is all that is asked.
#[inline]
fn control_mask(word: u64) -> u64 {
    let below_space = word.wrapping_sub(EACH_BYTE * 0x20) & !word;
    let from_delete = word ^ (EACH_BYTE * 0x7f);
    let delete = from_delete.wrapping_sub(EACH_BYTE) & !from_delete;
    (below_space | delete) & (EACH_BYTE * 0x80)
}

/// Removes optional whitespace (space and tab) from both ends.
#[inline]
pub fn trim_ows(mut bytes: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] = bytes {
        bytes = rest;
    }
    while let [rest @ .., b' ' | b'\t'] = bytes {
        bytes = rest;
    }
    bytes
}

/// The elements of a comma-separated list, trimmed, empty ones left out (RFC 9110, section 5.6.1.2).
/// For lists whose elements hold no quoted strings.
pub fn list_elements(value: &[u8]) -> impl DoubleEndedIterator<Item = &[u8]> {
    value.split(|&byte| byte == b',').map(trim_ows).filter(|element| !element.is_empty())
}

/// A decimal number of digits only; None when it is empty, holds anything else, or exceeds u64.
pub fn decimal(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0u64, |value, &byte| {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 { None } else { value.checked_mul(10)?.checked_add(u64::from(digit)) }
    })
}

/// The value of one hexadecimal digit.
#[inline]
pub fn hex_digit(byte: u8) -> Option<u8> {
    match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        b'A'..=b'F' => Some(byte - b'A' + 10),
        _ => None,
    }
}
