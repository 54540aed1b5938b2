//! The parser of HTTP/1.1 request heads, strict in everything that intermediaries are known to read
//! differently: line ends, white space, framing, Host. One pass, no allocation into a reused request.

use memchr::memchr;

use super::Reject;
use crate::http::request::{Request, Span, Target, Version, is_host, is_target_byte};
use crate::http::syntax;

/// What a request head may cost. Exceeding them gives 431, 414 and 431.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    pub head_bytes: usize,
    pub target_bytes: usize,
    pub fields: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { head_bytes: 16 << 10, target_bytes: 8 << 10, fields: 100 }
    }
}

/// How the request's body is delimited.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum BodyFraming {
    #[default]
    None,
    Length(u64),
    Chunked,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Parsed {
    /// The buffer ends before the head does; parse again from its beginning when there is more.
    Incomplete,
    /// `consumed` bytes of the buffer were the head; the request holds them.
    Head { consumed: usize, framing: BodyFraming, keep_alive: bool, expect_continue: bool },
}

/// Longest method of the IANA registry is UPDATEREDIRECTREF with 17 letters.
const METHOD_BYTES: usize = 32;

/// Parses the request head at the beginning of `buf` into `into`, which is cleared first and holds nothing
/// useful unless the result is `Parsed::Head`.
///
/// Beyond the grammar of RFC 9112 these are refused: bare CR or LF, line folding, white space before a colon,
/// control characters, Content-Length beside Transfer-Encoding, differing Content-Length fields, a transfer
/// coding other than a single `chunked`, a missing, repeated or malformed Host, and an absolute-form target
/// whose authority is not the Host.
pub fn parse_request(buf: &[u8], limits: &Limits, into: &mut Request) -> Result<Parsed, Reject> {
    into.clear();
    let window = &buf[..buf.len().min(limits.head_bytes)];
    match parse_head(Cursor { buf: window, at: 0 }, limits, into) {
        Ok(parsed) => Ok(parsed),
        Err(Stop::Reject(reject)) => Err(reject),
        Err(Stop::OutOfBytes) if buf.len() >= limits.head_bytes => {
            Err(Reject::new(431, "the request head is too large"))
        }
        Err(Stop::OutOfBytes) => Ok(Parsed::Incomplete),
    }
}

/// Why parsing ended before the head did.
enum Stop {
    OutOfBytes,
    Reject(Reject),
}

impl From<Reject> for Stop {
    fn from(reject: Reject) -> Self {
        Self::Reject(reject)
    }
}

fn refuse<T>(status: u16, reason: &'static str) -> Result<T, Stop> {
    Err(Stop::Reject(Reject::new(status, reason)))
}

fn parse_head(mut cursor: Cursor<'_>, limits: &Limits, into: &mut Request) -> Result<Parsed, Stop> {
    cursor.skip_empty_line()?;
    let method = cursor.method()?;
    let target = cursor.target(limits)?;
    let is_connect = &cursor.buf[method.0..method.1] == b"CONNECT";
    let parts = Target::split(&cursor.buf[target.0..target.1], is_connect)
        .map_err(|_| Reject::new(400, "the request target is malformed"))?;
    let version = cursor.version()?;
    let mut meaning = Meaning::default();
    while cursor.peek()? != b'\r' {
        if into.field_count() == limits.fields {
            return refuse(431, "too many header fields");
        }
        let (name, value) = cursor.field()?;
        into.note_field(cursor.buf[name.0], Span::new(name.0, name.1), Span::new(value.0, value.1));
        meaning.note(&cursor.buf[name.0..name.1], &cursor.buf[value.0..value.1])?;
    }
    cursor.line_end()?;
    let authority = parts.authority.map(|span| span.of(&cursor.buf[target.0..target.1]));
    meaning.check_host(version, authority)?;
    let framing = meaning.framing(version)?;
    let (method, target) = (Span::new(method.0, method.1), Span::new(target.0, target.1));
    into.adopt_head(&cursor.buf[..cursor.at], method, target, parts, version);
    Ok(Parsed::Head {
        consumed: cursor.at,
        framing,
        keep_alive: meaning.keep_alive(version),
        expect_continue: meaning.expect_continue
            && version != Version::Http10
            && framing != BodyFraming::None,
    })
}

/// A place in the buffer, from first byte to one past the last.
type Place = (usize, usize);

/// Reads forward over the bytes that have arrived.
struct Cursor<'a> {
    buf: &'a [u8],
    at: usize,
}

impl Cursor<'_> {
    #[inline]
    fn peek(&self) -> Result<u8, Stop> {
        self.buf.get(self.at).copied().ok_or(Stop::OutOfBytes)
    }

    /// One CRLF; anything else is refused.
    #[inline]
    fn line_end(&mut self) -> Result<(), Stop> {
        match self.buf[self.at..] {
            [b'\r', b'\n', ..] => {
                self.at += 2;
                Ok(())
            }
            [] | [b'\r'] => Err(Stop::OutOfBytes),
            [b'\n', ..] => refuse(400, "a line ends with a bare LF"),
            [b'\r', ..] => refuse(400, "a CR is not followed by LF"),
            _ => refuse(400, "a control character in the request head"),
        }
    }

    /// At most one empty line may precede a request (RFC 9112, section 2.2).
    #[inline]
    fn skip_empty_line(&mut self) -> Result<(), Stop> {
        if self.peek()? == b'\r' { self.line_end() } else { Ok(()) }
    }

    #[inline]
    fn method(&mut self) -> Result<Place, Stop> {
        let start = self.at;
        let len = syntax::token_len(&self.buf[start..]);
        match self.buf.get(start + len) {
            _ if len > METHOD_BYTES => refuse(501, "the method is not implemented"),
            None => Err(Stop::OutOfBytes),
            Some(b' ') if len > 0 => {
                self.at += len + 1;
                Ok((start, start + len))
            }
            Some(_) => refuse(400, "the request line does not begin with a method and a space"),
        }
    }

    #[inline]
    fn target(&mut self, limits: &Limits) -> Result<Place, Stop> {
        let start = self.at;
        let rest = &self.buf[start..];
        let len = rest.iter().position(|&byte| !is_target_byte(byte)).unwrap_or(rest.len());
        if len > limits.target_bytes {
            return refuse(414, "the request target is too long");
        }
        match rest.get(len) {
            None => Err(Stop::OutOfBytes),
            Some(b' ') if len > 0 => {
                self.at += len + 1;
                Ok((start, start + len))
            }
            Some(b'\r' | b'\n') => refuse(400, "the request line has no version"),
            Some(_) => refuse(400, "a byte in the request target must be encoded"),
        }
    }

    #[inline]
    fn version(&mut self) -> Result<Version, Stop> {
        const LEN: usize = b"HTTP/1.1".len();
        let rest = &self.buf[self.at..];
        let Some(word) = rest.first_chunk::<LEN>() else {
            // A line that has already ended can't become a version.
            return match memchr(b'\n', rest) {
                Some(_) => refuse(400, "the request line has no version"),
                None => Err(Stop::OutOfBytes),
            };
        };
        let version = match word {
            b"HTTP/1.1" => Version::Http11,
            b"HTTP/1.0" => Version::Http10,
            [b'H', b'T', b'T', b'P', b'/', major, b'.', minor]
                if major.is_ascii_digit() && minor.is_ascii_digit() =>
            {
                return refuse(505, "this version of HTTP is not supported here");
            }
            _ => return refuse(400, "the request line's version is malformed"),
        };
        self.at += LEN;
        match self.peek()? {
            b'\r' | b'\n' => self.line_end().map(|()| version),
            _ => refuse(400, "the request line does not end after the version"),
        }
    }

    /// One field line with its CRLF. The value's place is without surrounding white space.
    #[inline]
    fn field(&mut self) -> Result<(Place, Place), Stop> {
        let name = (self.at, self.at + syntax::token_len(&self.buf[self.at..]));
        self.at = name.1;
        if self.peek()? != b':' || name.0 == name.1 {
            return self.bad_name(name);
        }
        self.at += 1;
        while matches!(self.peek()?, b' ' | b'\t') {
            self.at += 1;
        }
        let value_start = self.at;
        self.skip_value();
        let mut value_end = self.at;
        self.line_end()?;
        while value_end > value_start && matches!(self.buf[value_end - 1], b' ' | b'\t') {
            value_end -= 1;
        }
        Ok((name, (value_start, value_end)))
    }

    /// To the first control character other than tab, or to the end.
    #[inline]
    fn skip_value(&mut self) {
        loop {
            self.at += syntax::find_control(&self.buf[self.at..]);
            if self.buf.get(self.at) != Some(&b'\t') {
                return;
            }
            self.at += 1;
        }
    }

    #[cold]
    fn bad_name<T>(&self, name: Place) -> Result<T, Stop> {
        match self.buf[self.at] {
            b' ' | b'\t' if name.0 == name.1 => refuse(400, "a header line is folded"),
            b' ' | b'\t' => refuse(400, "white space before the colon of a header field"),
            b'\n' => refuse(400, "a line ends with a bare LF"),
            b'\r' => refuse(400, "a header line has no colon"),
            _ => refuse(400, "a header field's name is not a token"),
        }
    }
}

/// What the fields that govern the connection and the framing say.
#[derive(Default)]
struct Meaning<'a> {
    host: Option<&'a [u8]>,
    content_length: Option<u64>,
    transfer_encoding: Option<&'a [u8]>,
    close: bool,
    keep_alive: bool,
    expect_continue: bool,
}

impl<'a> Meaning<'a> {
    #[inline]
    fn note(&mut self, name: &[u8], value: &'a [u8]) -> Result<(), Reject> {
        match name.len() {
            4 if name.eq_ignore_ascii_case(b"host") => self.note_host(value),
            6 if name.eq_ignore_ascii_case(b"expect") => self.note_expect(value),
            10 if name.eq_ignore_ascii_case(b"connection") => {
                self.note_connection(value);
                Ok(())
            }
            14 if name.eq_ignore_ascii_case(b"content-length") => self.note_content_length(value),
            17 if name.eq_ignore_ascii_case(b"transfer-encoding") => self.note_transfer_encoding(value),
            _ => Ok(()),
        }
    }

    fn note_host(&mut self, value: &'a [u8]) -> Result<(), Reject> {
        if self.host.replace(value).is_some() {
            return Err(Reject::new(400, "more than one Host field"));
        }
        if is_host(value) { Ok(()) } else { Err(Reject::new(400, "the Host field is malformed")) }
    }

    fn note_expect(&mut self, value: &[u8]) -> Result<(), Reject> {
        self.expect_continue = value.eq_ignore_ascii_case(b"100-continue");
        if self.expect_continue { Ok(()) } else { Err(Reject::new(417, "the expectation is not known here")) }
    }

    fn note_connection(&mut self, value: &[u8]) {
        for option in syntax::list_elements(value) {
            self.close |= option.eq_ignore_ascii_case(b"close");
            self.keep_alive |= option.eq_ignore_ascii_case(b"keep-alive");
        }
    }

    fn note_content_length(&mut self, value: &[u8]) -> Result<(), Reject> {
        let length = syntax::decimal(value).ok_or(Reject::new(400, "Content-Length is not a number"))?;
        match self.content_length.replace(length) {
            Some(other) if other != length => Err(Reject::new(400, "Content-Length fields differ")),
            _ => Ok(()),
        }
    }

    fn note_transfer_encoding(&mut self, value: &'a [u8]) -> Result<(), Reject> {
        match self.transfer_encoding.replace(value) {
            Some(_) => Err(Reject::new(400, "more than one Transfer-Encoding field")),
            None => Ok(()),
        }
    }

    /// RFC 9112, section 3.2: Host is required in 1.1; a target's authority must be the same.
    fn check_host(&self, version: Version, authority: Option<&[u8]>) -> Result<(), Reject> {
        match (self.host, authority) {
            (None, _) if version == Version::Http11 => Err(Reject::new(400, "the Host field is missing")),
            (Some(host), Some(authority)) if !host.eq_ignore_ascii_case(authority) => {
                Err(Reject::new(400, "the target's authority and the Host field differ"))
            }
            _ => Ok(()),
        }
    }

    /// RFC 9112, sections 6.1 and 6.3, without the leniencies that request smuggling lives on.
    fn framing(&self, version: Version) -> Result<BodyFraming, Reject> {
        let Some(coding) = self.transfer_encoding else {
            return Ok(match self.content_length {
                None | Some(0) => BodyFraming::None,
                Some(length) => BodyFraming::Length(length),
            });
        };
        if self.content_length.is_some() {
            return Err(Reject::new(400, "Content-Length beside Transfer-Encoding"));
        }
        if version == Version::Http10 {
            return Err(Reject::new(400, "Transfer-Encoding in HTTP/1.0"));
        }
        if coding.eq_ignore_ascii_case(b"chunked") {
            return Ok(BodyFraming::Chunked);
        }
        let mut codings = syntax::list_elements(coding);
        let last = codings.next_back();
        if last.is_none() || codings.any(|other| other.eq_ignore_ascii_case(b"chunked")) {
            return Err(Reject::new(400, "the transfer coding is malformed"));
        }
        Err(Reject::new(501, "the transfer coding is not implemented"))
    }

    fn keep_alive(&self, version: Version) -> bool {
        !self.close && (version != Version::Http10 || self.keep_alive)
    }
}
