//! The decoder of HTTP/1.1 request bodies, by length or chunked. It hands out slices of what it is fed and
//! keeps only its state; trailer fields are checked and dropped.

use super::Reject;
use super::head::BodyFraming;
use crate::http::syntax;

/// What a piece of input turned out to be.
#[derive(Debug, PartialEq, Eq)]
pub enum BodyEvent<'a> {
    /// Bytes of the body.
    Data(&'a [u8]),
    /// All input was used and the body goes on.
    NeedMore,
    /// The body has ended; what follows the consumed bytes is the next request.
    End,
}

/// Most bytes of one line of chunk framing: a size with its extensions, or a trailer field.
const LINE_BYTES: usize = 1 << 10;
/// Most bytes of all framing lines that are not a chunk's size and CRLF: extensions and trailer fields.
/// Without it a body of tiny chunks with long extensions is cheap to send and dear to read.
const EXTRA_BYTES: usize = 16 << 10;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// In a body or chunk with so many bytes to come.
    Data {
        left: u64,
        chunked: bool,
    },
    /// At the size of a chunk; `digits` of it were read.
    Size {
        value: u64,
        digits: u32,
    },
    /// In a chunk's extensions, up to their CR.
    Extension {
        value: u64,
    },
    /// After the CR of the size line.
    SizeEnd {
        value: u64,
    },
    /// At the CR, then the LF, after a chunk's data.
    DataCr,
    DataLf,
    /// At the beginning of a trailer line, or of the empty line that ends the body.
    TrailerStart,
    /// In a trailer's name, its value, after its CR.
    TrailerName {
        len: u32,
    },
    TrailerValue,
    TrailerEnd,
    /// After the CR of the last empty line.
    LastLf,
    Done,
}

/// Reads one body. Feed it until it says `End`; after an error the connection is of no more use.
#[derive(Debug, Clone)]
pub struct BodyReader {
    state: State,
    /// Bytes of content that may still come before 413.
    allowance: u64,
    line_bytes: usize,
    extra_bytes: usize,
}

impl BodyReader {
    /// `max_bytes` bounds the content. Errors with 413 at once when the announced length is above it.
    pub fn new(framing: BodyFraming, max_bytes: u64) -> Result<Self, Reject> {
        let state = match framing {
            BodyFraming::None | BodyFraming::Length(0) => State::Done,
            BodyFraming::Length(length) if length > max_bytes => return Err(TOO_LARGE),
            BodyFraming::Length(left) => State::Data { left, chunked: false },
            BodyFraming::Chunked => State::Size { value: 0, digits: 0 },
        };
        Ok(Self { state, allowance: max_bytes, line_bytes: 0, extra_bytes: 0 })
    }

    /// Takes the next piece of input. Returns how many of its bytes were used and what they were; call again
    /// with the rest until the event is `NeedMore` or `End`.
    ///
    /// Errors: 400 when the framing is malformed, 413 when the content or its framing is too large.
    pub fn feed<'a>(&mut self, input: &'a [u8]) -> Result<(usize, BodyEvent<'a>), Reject> {
        let mut at = 0;
        loop {
            match self.state {
                State::Done => return Ok((at, BodyEvent::End)),
                State::Data { left, chunked } if at < input.len() => {
                    let len = left.min((input.len() - at) as u64);
                    self.state = match (left - len, chunked) {
                        (0, true) => State::DataCr,
                        (0, false) => State::Done,
                        (left, _) => State::Data { left, chunked },
                    };
                    let end = at + len as usize;
                    return Ok((end, BodyEvent::Data(&input[at..end])));
                }
                _ => {}
            }
            let Some(&byte) = input.get(at) else { return Ok((at, BodyEvent::NeedMore)) };
            self.state = self.step(byte)?;
            at += 1;
        }
    }

    /// One byte of chunk framing.
    fn step(&mut self, byte: u8) -> Result<State, Reject> {
        match (self.state, byte) {
            (State::Size { value, digits }, _) => self.size(value, digits, byte),
            (State::Extension { value }, b'\r') => Ok(State::SizeEnd { value }),
            (State::Extension { value }, _) => self.count_extra(byte).map(|()| State::Extension { value }),
            (State::SizeEnd { value }, b'\n') => self.begin_chunk(value),
            (State::DataCr, b'\r') => Ok(State::DataLf),
            (State::DataLf, b'\n') => Ok(State::Size { value: 0, digits: 0 }),
            (State::TrailerStart, b'\r') => Ok(State::LastLf),
            (State::TrailerStart, _) => {
                self.line_bytes = 0;
                self.trailer_name(0, byte)
            }
            (State::TrailerName { len }, _) => self.trailer_name(len, byte),
            (State::TrailerValue, b'\r') => Ok(State::TrailerEnd),
            (State::TrailerValue, _) => self.count_extra(byte).map(|()| State::TrailerValue),
            (State::TrailerEnd, b'\n') => Ok(State::TrailerStart),
            (State::LastLf, b'\n') => Ok(State::Done),
            _ => Err(MALFORMED),
        }
    }

    /// RFC 9112, section 7.1: hexadecimal digits only, no sign, no prefix, no white space.
    fn size(&mut self, value: u64, digits: u32, byte: u8) -> Result<State, Reject> {
        match (syntax::hex_digit(byte), byte) {
            (Some(digit), _) if digits < 16 => {
                Ok(State::Size { value: value << 4 | u64::from(digit), digits: digits + 1 })
            }
            (None, b'\r') if digits > 0 => Ok(State::SizeEnd { value }),
            (None, b';') if digits > 0 => {
                self.line_bytes = 0;
                Ok(State::Extension { value })
            }
            _ => Err(MALFORMED),
        }
    }

    fn begin_chunk(&mut self, size: u64) -> Result<State, Reject> {
        if size == 0 {
            return Ok(State::TrailerStart);
        }
        self.allowance = self.allowance.checked_sub(size).ok_or(TOO_LARGE)?;
        Ok(State::Data { left: size, chunked: true })
    }

    fn trailer_name(&mut self, len: u32, byte: u8) -> Result<State, Reject> {
        self.count_extra(byte)?;
        match byte {
            b':' if len > 0 => Ok(State::TrailerValue),
            _ if syntax::is_token_byte(byte) => Ok(State::TrailerName { len: len + 1 }),
            _ => Err(MALFORMED),
        }
    }

    fn count_extra(&mut self, byte: u8) -> Result<(), Reject> {
        self.line_bytes += 1;
        self.extra_bytes += 1;
        if self.line_bytes > LINE_BYTES || self.extra_bytes > EXTRA_BYTES {
            Err(Reject::new(413, "the chunk framing is too large"))
        } else if (byte < 0x20 && byte != b'\t') || byte == 0x7f {
            Err(MALFORMED)
        } else {
            Ok(())
        }
    }
}

const MALFORMED: Reject = Reject::new(400, "the chunked body is malformed");
const TOO_LARGE: Reject = Reject::new(413, "the request body is too large");
