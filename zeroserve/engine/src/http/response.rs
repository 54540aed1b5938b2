//! A response as data: status, fields, and where its body's bytes are. Framing and wire form are the
//! business of the protocol's serializer; reading a file's bytes is the worker's.

use std::ops::{Deref, Range};
use std::sync::Arc;

use super::headers::{HeaderList, PLAIN_TEXT};
use super::syntax::InvalidField;

/// Bytes in memory that many responses share.
#[derive(Debug, Clone)]
pub enum SharedBytes {
    Static(&'static [u8]),
    Slice { bytes: Arc<[u8]>, range: Range<usize> },
}

impl SharedBytes {
    /// The part of these bytes that the range, relative to their beginning, names. Panics when out of bounds.
    pub fn slice(&self, part: Range<usize>) -> Self {
        match self {
            Self::Static(bytes) => Self::Static(&bytes[part]),
            Self::Slice { bytes, range } => {
                let range = range.start + part.start..range.start + part.end;
                assert!(range.start <= range.end && range.end <= bytes.len());
                Self::Slice { bytes: Arc::clone(bytes), range }
            }
        }
    }
}

impl Deref for SharedBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Static(bytes) => bytes,
            Self::Slice { bytes, range } => &bytes[range.clone()],
        }
    }
}

impl From<Arc<[u8]>> for SharedBytes {
    fn from(bytes: Arc<[u8]>) -> Self {
        let range = 0..bytes.len();
        Self::Slice { bytes, range }
    }
}

/// Where the body is.
#[derive(Debug, Clone, Default)]
pub enum Body {
    #[default]
    Empty,
    Bytes(Vec<u8>),
    Shared(SharedBytes),
    /// `len` bytes at `offset` of the site's tarball; the same bytes in memory where the site keeps them.
    File {
        offset: u64,
        len: u64,
        cached: Option<SharedBytes>,
    },
}

impl Body {
    #[inline]
    pub fn len(&self) -> u64 {
        match self {
            Self::Empty => 0,
            Self::Bytes(bytes) => bytes.len() as u64,
            Self::Shared(bytes) => bytes.len() as u64,
            Self::File { len, .. } => *len,
        }
    }

    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The whole body where it is in memory; None means that it has to be read from the tarball.
    #[inline]
    pub fn in_memory(&self) -> Option<&[u8]> {
        match self {
            Self::Empty => Some(&[]),
            Self::Bytes(bytes) => Some(bytes),
            Self::Shared(bytes) => Some(bytes),
            Self::File { cached, .. } => cached.as_deref(),
        }
    }
}

#[derive(Debug, Clone, Default)]
pub struct Response {
    pub status: u16,
    pub headers: HeaderList,
    pub body: Body,
}

impl Response {
    pub fn new(status: u16) -> Self {
        Self { status, ..Self::default() }
    }

    /// A short text that names the status, for everything the server itself has to say.
    pub fn text(status: u16) -> Self {
        let text = match plain_text(status) {
            Some(text) => Body::Shared(SharedBytes::Static(text.as_bytes())),
            None => Body::Bytes(format!("{status}\n").into_bytes()),
        };
        Self { status, headers: HeaderList::from_shared(&PLAIN_TEXT), body: text }
    }

    /// Replaces a field. Values with control characters, names that are no token, and fields that the
    /// serializer manages (framing, connection) are refused.
    pub fn set_header(
        &mut self,
        name: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
    ) -> Result<(), InvalidField> {
        self.headers.set(name, value)
    }

    /// Adds a field; refuses what `set_header` refuses.
    pub fn append_header(
        &mut self,
        name: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
    ) -> Result<(), InvalidField> {
        self.headers.append(name, value)
    }

    /// The status as it is sent: one that can't end an exchange (below 200, above 599) becomes 500.
    #[inline]
    pub fn final_status(&self) -> u16 {
        if (200..=599).contains(&self.status) { self.status } else { 500 }
    }

    /// True when the body's bytes follow the head on the wire (RFC 9112, section 6.3).
    #[inline]
    pub fn sends_body(&self, request_is_head: bool) -> bool {
        !request_is_head && allows_body(self.final_status()) && !self.body.is_empty()
    }
}

/// False for final statuses that have no content, whatever a script says (RFC 9110, sections 15.3.5, 15.3.6, 15.4.5).
#[inline]
fn allows_body(status: u16) -> bool {
    !matches!(status, 204 | 205 | 304)
}

macro_rules! statuses {
    ($($code:literal $phrase:literal,)*) => {
        /// The status line of HTTP/1.1 with its CRLF, for statuses with a known phrase.
        #[inline]
        pub(in crate::http) fn status_line(status: u16) -> Option<&'static [u8]> {
            match status {
                $($code => Some(concat!("HTTP/1.1 ", $code, " ", $phrase, "\r\n").as_bytes()),)*
                _ => None,
            }
        }

        /// The phrase that RFC 9110 (section 15) or the IANA registry gives a status.
        pub fn reason_phrase(status: u16) -> Option<&'static str> {
            match status {
                $($code => Some($phrase),)*
                _ => None,
            }
        }

        fn plain_text(status: u16) -> Option<&'static str> {
            match status {
                $($code => Some(concat!($code, " ", $phrase, "\n")),)*
                _ => None,
            }
        }
    };
}

statuses! {
    200 "OK",
    201 "Created",
    202 "Accepted",
    203 "Non-Authoritative Information",
    204 "No Content",
    205 "Reset Content",
    206 "Partial Content",
    300 "Multiple Choices",
    301 "Moved Permanently",
    302 "Found",
    303 "See Other",
    304 "Not Modified",
    307 "Temporary Redirect",
    308 "Permanent Redirect",
    400 "Bad Request",
    401 "Unauthorized",
    402 "Payment Required",
    403 "Forbidden",
    404 "Not Found",
    405 "Method Not Allowed",
    406 "Not Acceptable",
    407 "Proxy Authentication Required",
    408 "Request Timeout",
    409 "Conflict",
    410 "Gone",
    411 "Length Required",
    412 "Precondition Failed",
    413 "Content Too Large",
    414 "URI Too Long",
    415 "Unsupported Media Type",
    416 "Range Not Satisfiable",
    417 "Expectation Failed",
    418 "I'm a teapot",
    421 "Misdirected Request",
    422 "Unprocessable Content",
    423 "Locked",
    424 "Failed Dependency",
    425 "Too Early",
    426 "Upgrade Required",
    428 "Precondition Required",
    429 "Too Many Requests",
    431 "Request Header Fields Too Large",
    451 "Unavailable For Legal Reasons",
    500 "Internal Server Error",
    501 "Not Implemented",
    502 "Bad Gateway",
    503 "Service Unavailable",
    504 "Gateway Timeout",
    505 "HTTP Version Not Supported",
    507 "Insufficient Storage",
    508 "Loop Detected",
    511 "Network Authentication Required",
}
