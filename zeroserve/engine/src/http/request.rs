//! A request as one owned, reusable piece of memory: an arena of bytes and spans into it. How the bytes
//! arrived (HTTP/1.1, HTTP/2, a script's change) is not known here.

use std::borrow::Cow;
use std::fmt;

use memchr::memchr;

use super::syntax::{self, InvalidField};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Version {
    Http10,
    #[default]
    Http11,
    Http2,
}

/// The target is not one of the four forms of RFC 9112, section 3.2, or holds a byte that must be encoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the request target is malformed")]
pub struct InvalidTarget;

/// A place in the arena.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(in crate::http) struct Span {
    pub start: u32,
    pub len: u32,
}

impl Span {
    pub fn new(start: usize, end: usize) -> Self {
        Self { start: start as u32, len: (end - start) as u32 }
    }

    fn shifted(self, by: u32) -> Self {
        Self { start: self.start + by, len: self.len }
    }

    #[inline]
    pub fn of(self, bytes: &[u8]) -> &[u8] {
        &bytes[self.start as usize..][..self.len as usize]
    }
}

#[derive(Debug, Clone, Copy)]
struct Field {
    name: Span,
    value: Span,
}

/// The parts of a request target, as spans relative to its first byte.
#[derive(Debug, Clone, Copy, Default)]
pub(in crate::http) struct Target {
    path: Span,
    query: Option<Span>,
    pub authority: Option<Span>,
}

impl Target {
    /// Takes a target apart. `is_connect` selects authority-form, which only CONNECT may use.
    pub fn parse(target: &[u8], is_connect: bool) -> Result<Self, InvalidTarget> {
        if !target.iter().all(|&byte| is_target_byte(byte)) {
            return Err(InvalidTarget);
        }
        Self::split(target, is_connect)
    }

    /// Like `parse`, for bytes that were already checked with `is_target_byte`.
    #[inline]
    pub fn split(target: &[u8], is_connect: bool) -> Result<Self, InvalidTarget> {
        match target {
            [] => Err(InvalidTarget),
            _ if is_connect => Self::authority_form(target),
            [b'/', ..] => Ok(Self::from_path(target, 0, None)),
            b"*" => Ok(Self { path: Span::new(0, 1), ..Self::default() }),
            _ => Self::absolute_form(target),
        }
    }

    #[inline]
    fn from_path(target: &[u8], start: usize, authority: Option<Span>) -> Self {
        let question = memchr(b'?', &target[start..]).map(|at| start + at);
        let path = Span::new(start, question.unwrap_or(target.len()));
        Self { path, query: question.map(|at| Span::new(at + 1, target.len())), authority }
    }

    fn authority_form(target: &[u8]) -> Result<Self, InvalidTarget> {
        let has_port = memchr::memrchr(b':', target).is_some_and(|at| at + 1 < target.len());
        if !has_port || !is_host(target) || target[0] == b':' {
            return Err(InvalidTarget);
        }
        Ok(Self { authority: Some(Span::new(0, target.len())), ..Self::default() })
    }

    fn absolute_form(target: &[u8]) -> Result<Self, InvalidTarget> {
        let start = [&b"http://"[..], b"https://"]
            .into_iter()
            .find(|scheme| target.get(..scheme.len()).is_some_and(|head| head.eq_ignore_ascii_case(scheme)))
            .map(<[u8]>::len)
            .ok_or(InvalidTarget)?;
        let rest = &target[start..];
        let end = start + memchr::memchr2(b'/', b'?', rest).unwrap_or(rest.len());
        let authority = &target[start..end];
        // User information in a http URI is an attack on whoever reads the log (RFC 9110, section 4.2.4).
        if authority.is_empty() || authority[0] == b':' || !is_host(authority) {
            return Err(InvalidTarget);
        }
        Ok(Self::from_path(target, end, Some(Span::new(start, end))))
    }

    fn shifted(self, by: u32) -> Self {
        Self {
            path: self.path.shifted(by),
            query: self.query.map(|span| span.shifted(by)),
            authority: self.authority.map(|span| span.shifted(by)),
        }
    }
}

/// True for bytes that may stand in a target: visible ASCII without `#`. Characters that RFC 3986 wants
/// encoded but browsers send bare (`|`, `{`, `"`) pass; whitespace, controls and non-ASCII do not.
#[inline]
pub(in crate::http) fn is_target_byte(byte: u8) -> bool {
    matches!(byte, 0x21..=0x7e) && byte != b'#'
}

/// True for `uri-host [ ":" port ]`, restricted to what names a host in practice (no sub-delims, so that
/// a joined `a,b` is refused); the empty value is allowed by RFC 9110, section 7.2.
#[inline]
pub(in crate::http) fn is_host(value: &[u8]) -> bool {
    let name_len = match value {
        [b'[', address @ ..] => match memchr(b']', address) {
            Some(end) if address[..end].iter().all(|&byte| is_address_byte(byte)) => end + 2,
            _ => return false,
        },
        _ => value.iter().position(|&byte| !is_host_byte(byte)).unwrap_or(value.len()),
    };
    match &value[name_len..] {
        [] => true,
        [b':', port @ ..] => port.len() <= 5 && port.iter().all(u8::is_ascii_digit),
        _ => false,
    }
}

fn is_host_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~' | b'%')
}

fn is_address_byte(byte: u8) -> bool {
    byte.is_ascii_hexdigit() || matches!(byte, b':' | b'.')
}

/// One request. `Default` and `new` give an empty one; the memory is kept over `clear`.
#[derive(Clone, Default)]
pub struct Request {
    bytes: Vec<u8>,
    fields: Vec<Field>,
    /// The `name_bit` of every name present: most look-ups end here.
    names: u64,
    method: Span,
    target: Span,
    parts: Target,
    version: Version,
}

impl Request {
    /// Most bytes a request may grow to by changes of its parts (old values stay in the arena until `clear`).
    pub const MAX_BYTES: usize = 1 << 20;

    pub fn new() -> Self {
        Self::default()
    }

    /// Forgets the content and keeps the memory.
    #[inline]
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.fields.clear();
        self.names = 0;
        self.method = Span::default();
        self.target = Span::default();
        self.parts = Target::default();
        self.version = Version::default();
    }

    #[inline]
    pub fn method(&self) -> &[u8] {
        self.method.of(&self.bytes)
    }

    /// The target as received.
    #[inline]
    pub fn target(&self) -> &[u8] {
        self.target.of(&self.bytes)
    }

    /// The path as received, before `?`. `/` for an absolute-form target without one, `*` for asterisk-form,
    /// empty for authority-form (CONNECT).
    #[inline]
    pub fn path(&self) -> &[u8] {
        match self.parts.path.of(&self.bytes) {
            [] if self.parts.authority.is_some() && self.method() != b"CONNECT" => b"/",
            path => path,
        }
    }

    /// What follows the first `?`, as received.
    #[inline]
    pub fn query(&self) -> Option<&[u8]> {
        self.parts.query.map(|span| span.of(&self.bytes))
    }

    /// Host and port that the request is for: from the target where it has them, else from Host.
    pub fn authority(&self) -> Option<&[u8]> {
        self.parts.authority.map(|span| span.of(&self.bytes)).or_else(|| self.header(b"host"))
    }

    #[inline]
    pub fn version(&self) -> Version {
        self.version
    }

    pub fn set_version(&mut self, version: Version) {
        self.version = version;
    }

    /// The first value of a field, whatever the case of its name.
    #[inline]
    pub fn header(&self, name: impl AsRef<[u8]>) -> Option<&[u8]> {
        let name = name.as_ref();
        if self.names & syntax::name_bit(name) == 0 {
            return None;
        }
        let field = self.fields.iter().find(|field| field.name.of(&self.bytes).eq_ignore_ascii_case(name))?;
        Some(field.value.of(&self.bytes))
    }

    /// All values of a field, in order.
    pub fn header_values<'a>(&'a self, name: &'a [u8]) -> impl Iterator<Item = &'a [u8]> {
        let fields: &[Field] = if self.names & syntax::name_bit(name) == 0 { &[] } else { &self.fields };
        fields
            .iter()
            .filter(move |field| field.name.of(&self.bytes).eq_ignore_ascii_case(name))
            .map(|field| field.value.of(&self.bytes))
    }

    /// All fields in order, names in the case they were given in.
    pub fn headers(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.fields.iter().map(|field| (field.name.of(&self.bytes), field.value.of(&self.bytes)))
    }

    /// The path percent-decoded once, with dot segments and empty segments removed; always begins with `/`.
    /// Empty segments go because a script that guards `/admin` must not be passed by `//admin`.
    /// None means that the request is to be refused with 400: a bad or NUL escape, a path that climbs
    /// above the root, or a target that has no path.
    pub fn normalized_path(&self) -> Option<Cow<'_, [u8]>> {
        normalize(self.path())
    }

    /// Replaces the method. Errors when it is not a token.
    pub fn set_method(&mut self, method: &[u8]) -> Result<(), InvalidField> {
        if !syntax::is_token(method) {
            return Err(InvalidField::Name);
        }
        self.method = self.store(method).ok_or(InvalidField::TooLarge)?;
        Ok(())
    }

    /// Replaces the target, and with it path and query. Set the method first: CONNECT has its own form.
    pub fn set_target(&mut self, target: &[u8]) -> Result<(), InvalidTarget> {
        let parts = Target::parse(target, self.method() == b"CONNECT")?;
        self.target = self.store(target).ok_or(InvalidTarget)?;
        self.parts = parts.shifted(self.target.start);
        Ok(())
    }

    /// Adds a field after those present.
    pub fn append_header(&mut self, name: &[u8], value: &[u8]) -> Result<(), InvalidField> {
        if !syntax::is_token(name) {
            return Err(InvalidField::Name);
        }
        if !syntax::is_field_value(value) {
            return Err(InvalidField::Value);
        }
        let name_span = self.store(name).ok_or(InvalidField::TooLarge)?;
        let value_span = self.store(syntax::trim_ows(value)).ok_or(InvalidField::TooLarge)?;
        self.names |= syntax::name_bit(name);
        self.fields.push(Field { name: name_span, value: value_span });
        Ok(())
    }

    /// Replaces all fields of this name by one.
    pub fn set_header(&mut self, name: &[u8], value: &[u8]) -> Result<(), InvalidField> {
        let before = self.fields.len();
        self.append_header(name, value)?;
        let field = self.fields.swap_remove(before);
        self.remove_header(name);
        self.names |= syntax::name_bit(name);
        self.fields.push(field);
        Ok(())
    }

    /// Removes all fields of this name; says how many there were.
    pub fn remove_header(&mut self, name: &[u8]) -> usize {
        self.retain_headers(|other| !other.eq_ignore_ascii_case(name))
    }

    /// Keeps the fields whose name satisfies the predicate; says how many went.
    pub fn retain_headers(&mut self, keep: impl Fn(&[u8]) -> bool) -> usize {
        let before = self.fields.len();
        let bytes = &self.bytes;
        self.fields.retain(|field| keep(field.name.of(bytes)));
        before - self.fields.len()
    }

    fn store(&mut self, bytes: &[u8]) -> Option<Span> {
        let start = self.bytes.len();
        if start + bytes.len() > Self::MAX_BYTES {
            return None;
        }
        self.bytes.extend_from_slice(bytes);
        Some(Span::new(start, self.bytes.len()))
    }

    pub(in crate::http) fn field_count(&self) -> usize {
        self.fields.len()
    }

    /// For a parser: notes a field by its place in the head that `adopt_head` will copy. Not checked again.
    #[inline]
    pub(in crate::http) fn note_field(&mut self, first: u8, name: Span, value: Span) {
        self.names |= syntax::name_bit_of(name.len as usize, first);
        self.fields.push(Field { name, value });
    }

    /// For a parser: copies a checked head, to which all noted spans refer.
    #[inline]
    pub(in crate::http) fn adopt_head(
        &mut self,
        head: &[u8],
        method: Span,
        target: Span,
        parts: Target,
        version: Version,
    ) {
        self.bytes.extend_from_slice(head);
        self.method = method;
        self.target = target;
        self.parts = parts.shifted(target.start);
        self.version = version;
    }
}

impl fmt::Debug for Request {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            formatter,
            "{} {} {:?}",
            self.method().escape_ascii(),
            self.target().escape_ascii(),
            self.version
        )?;
        self.headers().try_for_each(|(name, value)| {
            write!(formatter, " {}={:?}", name.escape_ascii(), value.escape_ascii())
        })
    }
}

/// See `Request::normalized_path`.
pub fn normalize(path: &[u8]) -> Option<Cow<'_, [u8]>> {
    if path.first() != Some(&b'/') {
        return None;
    }
    if is_normal(path) {
        return Some(Cow::Borrowed(path));
    }
    remove_segments(&percent_decode(path)?).map(Cow::Owned)
}

/// True when there is nothing to decode and nothing to remove, as in nearly every request.
#[inline]
fn is_normal(path: &[u8]) -> bool {
    let mut previous = 0;
    for &byte in path {
        if byte == b'%' || (previous == b'/' && matches!(byte, b'/' | b'.')) {
            return false;
        }
        previous = byte;
    }
    true
}

fn percent_decode(path: &[u8]) -> Option<Vec<u8>> {
    let mut decoded = Vec::with_capacity(path.len());
    let mut rest = path;
    while let Some(at) = memchr(b'%', rest) {
        decoded.extend_from_slice(&rest[..at]);
        let [high, low] = *rest.get(at + 1..at + 3)? else { return None };
        let byte = syntax::hex_digit(high)? << 4 | syntax::hex_digit(low)?;
        if byte == 0 {
            return None;
        }
        decoded.push(byte);
        rest = &rest[at + 3..];
    }
    decoded.extend_from_slice(rest);
    Some(decoded)
}

/// RFC 3986, section 5.2.4, but climbing above the root is refused and empty segments are dropped.
fn remove_segments(path: &[u8]) -> Option<Vec<u8>> {
    let mut clean = Vec::with_capacity(path.len());
    let mut ends_in_directory = true;
    for segment in path.split(|&byte| byte == b'/') {
        ends_in_directory = matches!(segment, b"" | b"." | b"..");
        match segment {
            b"" | b"." => {}
            b".." => clean.truncate(memchr::memrchr(b'/', &clean)?),
            _ => {
                clean.push(b'/');
                clean.extend_from_slice(segment);
            }
        }
    }
    if ends_in_directory {
        clean.push(b'/');
    }
    Some(clean)
}
