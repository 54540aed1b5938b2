//! The Range field (RFC 9110, section 14): which part of a representation is asked for. One range; whether it
//! applies at all (method, If-Range) is decided in `conditional`.

use super::syntax;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RangeOutcome {
    /// The field is to be ignored: malformed, another unit, or several ranges.
    Whole,
    /// Bytes from `start` up to, not including, `end`; never empty.
    Part { start: u64, end: u64 },
    /// Nothing of the representation is in the range: 416.
    Unsatisfiable,
}

/// Reads a Range field for a representation of `len` bytes. Several ranges are answered with the whole, as
/// section 14.2 permits.
pub fn parse(header: &[u8], len: u64) -> RangeOutcome {
    single(header).map_or(RangeOutcome::Whole, |spec| spec.within(len))
}

enum Spec {
    From { first: u64, last: Option<u64> },
    Suffix(u64),
}

impl Spec {
    fn within(self, len: u64) -> RangeOutcome {
        match self {
            Self::From { first, .. } if first >= len => RangeOutcome::Unsatisfiable,
            Self::From { first, last } => {
                let end = last.map_or(len, |last| last.saturating_add(1).min(len));
                RangeOutcome::Part { start: first, end }
            }
            Self::Suffix(0) => RangeOutcome::Unsatisfiable,
            Self::Suffix(_) if len == 0 => RangeOutcome::Unsatisfiable,
            Self::Suffix(suffix) => RangeOutcome::Part { start: len.saturating_sub(suffix), end: len },
        }
    }
}

fn single(header: &[u8]) -> Option<Spec> {
    let (unit, set) = header.split_at_checked(b"bytes=".len())?;
    if !unit.eq_ignore_ascii_case(b"bytes=") {
        return None;
    }
    let mut specs = syntax::list_elements(set);
    let spec = specs.next()?;
    if specs.next().is_some() {
        return None;
    }
    let dash = memchr::memchr(b'-', spec)?;
    let (first, last) = (&spec[..dash], &spec[dash + 1..]);
    if first.is_empty() {
        return position(last).map(Spec::Suffix);
    }
    let first = position(first)?;
    let last = if last.is_empty() { None } else { Some(position(last)?) };
    // A last position before the first makes the field invalid, not unsatisfiable (section 14.1.1).
    if last.is_some_and(|last| last < first) { None } else { Some(Spec::From { first, last }) }
}

/// A byte position; one beyond u64 is beyond every representation, so it may stand for the largest.
fn position(digits: &[u8]) -> Option<u64> {
    let is_number = !digits.is_empty() && digits.iter().all(u8::is_ascii_digit);
    is_number.then(|| syntax::decimal(digits).unwrap_or(u64::MAX))
}
