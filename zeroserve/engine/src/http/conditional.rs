//! Preconditions (RFC 9110, section 13) of a request on a representation that exists: whether to go on, and
//! whether Range counts. Which representation it is, and what is sent, is decided elsewhere.

use super::date;
use super::request::Request;
use super::syntax;

/// What identifies the representation at hand.
#[derive(Debug, Clone, Copy)]
pub struct Validators<'a> {
    /// A strong entity tag with its quotes.
    pub etag: &'a [u8],
    /// Seconds since the Unix epoch.
    pub last_modified: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// Perform the method; a Range field counts only if `range` is true.
    Proceed { range: bool },
    /// 304
    NotModified,
    /// 412
    PreconditionFailed,
}

/// Evaluates the preconditions in the order of section 13.2.2.
pub fn evaluate(request: &Request, validators: &Validators<'_>) -> Outcome {
    let reads = matches!(request.method(), b"GET" | b"HEAD");
    if !may_begin(request, validators) {
        return Outcome::PreconditionFailed;
    }
    if request.header(b"if-none-match").is_some() {
        let mut fields = request.header_values(b"if-none-match");
        if fields.any(|field| field == b"*" || tags(field).any(|tag| tag.opaque == validators.etag)) {
            return if reads { Outcome::NotModified } else { Outcome::PreconditionFailed };
        }
    } else if reads
        && since(request, b"if-modified-since").is_some_and(|date| validators.last_modified <= date)
    {
        return Outcome::NotModified;
    }
    Outcome::Proceed { range: request.method() == b"GET" && range_counts(request, validators) }
}

/// If-Match, or If-Unmodified-Since where there is none.
fn may_begin(request: &Request, validators: &Validators<'_>) -> bool {
    if request.header(b"if-match").is_some() {
        let mut fields = request.header_values(b"if-match");
        return fields
            .any(|field| field == b"*" || tags(field).any(|tag| tag.matches_strongly(validators.etag)));
    }
    since(request, b"if-unmodified-since").is_none_or(|date| validators.last_modified <= date)
}

/// True when there is one Range field and If-Range, if present, names this very representation
/// (section 13.1.5: strong comparison, or the exact date).
fn range_counts(request: &Request, validators: &Validators<'_>) -> bool {
    if request.header_values(b"range").count() != 1 {
        return false;
    }
    match request.header(b"if-range") {
        None => true,
        Some(field) if field.contains(&b'"') => {
            let mut tags = tags(field);
            tags.next().is_some_and(|tag| tag.matches_strongly(validators.etag)) && tags.next().is_none()
        }
        Some(field) => date::parse(field) == Some(validators.last_modified),
    }
}

/// A date field that occurs once and is a date; any other is ignored (sections 13.1.3 and 13.1.4).
fn since(request: &Request, name: &[u8]) -> Option<u64> {
    let field = request.header(name)?;
    if request.header_values(name).count() == 1 { date::parse(field) } else { None }
}

/// An entity tag: its quoted part, quotes included, and whether `W/` stood before it.
struct Tag<'a> {
    opaque: &'a [u8],
    is_weak: bool,
}

impl Tag<'_> {
    fn matches_strongly(&self, etag: &[u8]) -> bool {
        !self.is_weak && self.opaque == etag
    }
}

/// The entity tags of a list, up to its end or to the first thing that is none.
fn tags(field: &[u8]) -> impl Iterator<Item = Tag<'_>> {
    let mut rest = field;
    std::iter::from_fn(move || {
        while let [b' ' | b'\t' | b',', tail @ ..] = rest {
            rest = tail;
        }
        let is_weak = rest.starts_with(b"W/");
        let quoted = if is_weak { &rest[2..] } else { rest };
        if quoted.first() != Some(&b'"') {
            return None;
        }
        let end = 2 + memchr::memchr(b'"', &quoted[1..])?;
        let (opaque, tail) = quoted.split_at(end);
        if !opaque[1..end - 1].iter().all(|&byte| byte == 0x21 || byte >= 0x23 && byte != 0x7f) {
            return None;
        }
        // Two tags need a comma between them.
        if !matches!(syntax::trim_ows(tail).first(), None | Some(b',')) {
            return None;
        }
        rest = tail;
        Some(Tag { opaque, is_weak })
    })
}
