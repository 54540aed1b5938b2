//! One TLS connection as a transformer of bytes: ciphertext in, plaintext out, and back.

use std::cell::RefCell;
use std::io::{self, Read, Write};

use boring::error::ErrorStack;
use boring::ssl::{ErrorCode, SslStream};

use super::TlsContext;

/// The most plaintext one record carries (RFC 8446 5.1): a read with this much room takes the record whole.
const RECORD_BYTES: usize = 16 * 1024;

/// What encryption adds to a record at most without padding: header, content type and tag (RFC 8446 5.2).
const RECORD_OVERHEAD_BYTES: usize = 5 + 1 + 16;

thread_local! {
    /// Where a record is decrypted. One for all connections of a worker, so that an idle one need not keep the room.
    static RECORD: RefCell<Box<[u8]>> = RefCell::new(vec![0; RECORD_BYTES].into_boxed_slice());
}

/// What a read or a handshake came to.
#[derive(Debug, PartialEq, Eq)]
pub enum Step {
    /// The handshake is finished, or plaintext was appended.
    Done,
    /// More ciphertext is needed.
    NeedsBytes,
    /// The peer has said that it will send no more.
    Closed,
}

/// The two directions of ciphertext, in memory.
#[derive(Default)]
struct Wire {
    incoming: Vec<u8>,
    consumed: usize,
    outgoing: Vec<u8>,
}

impl Wire {
    fn is_drained(&self) -> bool {
        self.consumed == self.incoming.len()
    }
}

impl Read for Wire {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let available = &self.incoming[self.consumed..];
        if available.is_empty() {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let len = available.len().min(out.len());
        out[..len].copy_from_slice(&available[..len]);
        self.consumed += len;
        Ok(len)
    }
}

impl Write for Wire {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        self.outgoing.extend_from_slice(data);
        Ok(data.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A server's side of one TLS connection.
pub struct Session {
    stream: SslStream<Wire>,
    /// The peer's closing alert has come.
    is_closed: bool,
}

impl Session {
    /// A session that awaits a ClientHello.
    pub fn accept(context: &TlsContext) -> Result<Self, ErrorStack> {
        Ok(Self { stream: SslStream::new(context.new_ssl()?, Wire::default())?, is_closed: false })
    }

    /// Takes ciphertext from the peer; [`Session::handshake`] and [`Session::read`] make something of it.
    pub fn push_ciphertext(&mut self, bytes: &[u8]) {
        let wire = self.stream.get_mut();
        if wire.is_drained() {
            wire.incoming.clear();
            wire.consumed = 0;
        }
        wire.incoming.extend_from_slice(bytes);
    }

    /// Whether a read has something to say without more ciphertext.
    pub fn has_unread(&self) -> bool {
        self.is_closed || !self.stream.get_ref().is_drained()
    }

    /// Ciphertext for the peer, to which [`Session::write`] and the handshake append.
    pub fn outgoing(&mut self) -> &mut Vec<u8> {
        &mut self.stream.get_mut().outgoing
    }

    /// Goes on with the handshake as far as the bytes reach. Also on error there may be an alert to send.
    pub fn handshake(&mut self) -> io::Result<Step> {
        match self.stream.accept() {
            Ok(()) => Ok(Step::Done),
            Err(error) if error.code() == ErrorCode::WANT_READ => Ok(Step::NeedsBytes),
            Err(error) => Err(io::Error::new(io::ErrorKind::InvalidData, error.to_string())),
        }
    }

    /// Decrypts what has arrived and appends it to `plain`.
    pub fn read(&mut self, plain: &mut Vec<u8>) -> io::Result<Step> {
        let before = plain.len();
        RECORD.with_borrow_mut(|record| {
            loop {
                match self.stream.ssl_read(record) {
                    Ok(read) => {
                        plain.extend_from_slice(&record[..read]);
                        // A read shorter than a record has emptied it; asking again would only say "no more".
                        if read < record.len() && self.stream.get_ref().is_drained() {
                            return Ok(Step::Done);
                        }
                    }
                    Err(error) => {
                        return match error.code() {
                            ErrorCode::WANT_READ if plain.len() > before => Ok(Step::Done),
                            ErrorCode::WANT_READ => Ok(Step::NeedsBytes),
                            ErrorCode::ZERO_RETURN => {
                                self.is_closed = true;
                                // Data that came before the alert counts; the next read tells of the end.
                                Ok(if plain.len() > before { Step::Done } else { Step::Closed })
                            }
                            _ => Err(io::Error::new(io::ErrorKind::InvalidData, error.to_string())),
                        };
                    }
                }
            }
        })
    }

    /// Encrypts `plain` into [`Session::outgoing`].
    pub fn write(&mut self, plain: &[u8]) -> io::Result<()> {
        if plain.is_empty() {
            return Ok(());
        }
        // Grown once instead of record by record.
        let records = plain.len().div_ceil(RECORD_BYTES);
        self.outgoing().reserve(plain.len() + records * RECORD_OVERHEAD_BYTES);
        // Memory never blocks, and BoringSSL without partial writes takes all or fails.
        match self.stream.ssl_write(plain) {
            Ok(written) => {
                debug_assert_eq!(written, plain.len());
                Ok(())
            }
            Err(error) => Err(io::Error::new(io::ErrorKind::InvalidData, error.to_string())),
        }
    }

    /// Puts the closing alert into [`Session::outgoing`], so that the peer can tell the end from a truncation.
    pub fn close(&mut self) {
        // What could fail here is a session that is broken already, and then there is no one to tell.
        let _ = self.stream.shutdown();
    }
}
