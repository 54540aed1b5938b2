//! The bytes of one client's connection: its socket, with TLS over it or not. What the bytes mean is HTTP's business.

use std::future::poll_fn;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::task::Poll;
use std::time::Duration;

use crate::io::ring::Incoming;
use crate::io::{Deadline, Ring, socket};
use crate::tls::{Session, Step};

/// Capacity that an idle connection keeps for what it will send next; more is given back after a large response.
const KEPT_BYTES: usize = 4 * 1024;

pub struct Transport {
    ring: Ring,
    // Before the socket: its cancellation is queued first, and the ring itself keeps the file open until then.
    incoming: Incoming,
    socket: OwnedFd,
    tls: Option<Session>,
    /// Bytes to send on a connection without TLS; with TLS they gather in the session.
    outgoing: Vec<u8>,
}

impl Transport {
    pub fn new(ring: Ring, socket: OwnedFd, tls: Option<Session>) -> Self {
        let incoming = ring.receive(socket.as_fd());
        Self { ring, incoming, socket, tls, outgoing: Vec::new() }
    }

    pub fn is_tls(&self) -> bool {
        self.tls.is_some()
    }

    /// Completes the TLS handshake; nothing to do without TLS.
    ///
    /// # Errors
    /// `TimedOut`, `UnexpectedEof`, `InvalidData` for what is no TLS 1.3; an alert has been sent then.
    pub async fn handshake(&mut self, deadline: &Deadline) -> io::Result<()> {
        let Some(session) = &mut self.tls else { return Ok(()) };
        loop {
            let Some(bytes) = receive(&mut self.incoming, deadline).await? else {
                return Err(io::ErrorKind::UnexpectedEof.into());
            };
            session.push_ciphertext(&bytes);
            drop(bytes);
            let step = session.handshake();
            if !session.outgoing().is_empty() {
                let alert_or_flight = std::mem::take(session.outgoing());
                *session.outgoing() = send(&self.ring, &self.socket, alert_or_flight, deadline).await?;
            }
            if step? == Step::Done {
                return Ok(());
            }
        }
    }

    /// Waits for bytes and appends them, decrypted, to `input`. False once the peer has finished sending.
    pub async fn read(&mut self, input: &mut Vec<u8>, deadline: &Deadline) -> io::Result<bool> {
        // After a handshake the first request may have come along with its last message.
        if let Some(session) = self.tls.as_mut().filter(|session| session.has_unread()) {
            match session.read(input)? {
                Step::Done => return Ok(true),
                Step::Closed => return Ok(false),
                Step::NeedsBytes => {}
            }
        }
        loop {
            let Some(bytes) = receive(&mut self.incoming, deadline).await? else { return Ok(false) };
            let Some(session) = &mut self.tls else {
                input.extend_from_slice(&bytes);
                return Ok(true);
            };
            session.push_ciphertext(&bytes);
            drop(bytes);
            match session.read(input)? {
                Step::Done => return Ok(true),
                Step::Closed => return Ok(false),
                Step::NeedsBytes => {}
            }
        }
    }

    /// Takes bytes to send, encrypted when the connection is; [`Transport::flush`] sends them.
    pub fn queue(&mut self, plain: &[u8]) -> io::Result<()> {
        match &mut self.tls {
            Some(session) => session.write(plain),
            None => {
                self.outgoing.extend_from_slice(plain);
                Ok(())
            }
        }
    }

    /// Sends what is queued.
    ///
    /// # Errors
    /// `TimedOut` when the peer does not take it all within `stall`; what the socket says otherwise.
    pub async fn flush(&mut self, stall: Duration, deadline: &Deadline) -> io::Result<()> {
        let queued = match &mut self.tls {
            Some(session) => session.outgoing(),
            None => &mut self.outgoing,
        };
        if queued.is_empty() {
            return Ok(());
        }
        deadline.extend(stall);
        let bytes = std::mem::take(queued);
        let mut spent = send(&self.ring, &self.socket, bytes, deadline).await?;
        spent.shrink_to(KEPT_BYTES);
        match &mut self.tls {
            Some(session) => *session.outgoing() = spent,
            None => self.outgoing = spent,
        }
        Ok(())
    }

    /// Ends our side in good order: the closing alert of TLS, then the socket's own end.
    pub async fn finish(&mut self, stall: Duration, deadline: &Deadline) {
        if let Some(session) = &mut self.tls {
            session.close();
        }
        // The peer may be gone already; there is nobody to tell then.
        let _ = self.flush(stall, deadline).await;
        socket::finish_sending(self.socket.as_fd());
    }

    /// Waits until the peer has closed its side too, throwing away what still comes, for at most the deadline.
    ///
    /// Closing a socket with unread bytes makes the kernel reset the connection, which can destroy a response that
    /// the peer has not read yet (RFC 9112 9.6).
    pub async fn linger(&mut self, deadline: &Deadline) {
        while let Ok(Some(_)) = receive(&mut self.incoming, deadline).await {}
    }
}

async fn receive(incoming: &mut Incoming, deadline: &Deadline) -> io::Result<Option<crate::io::Buffer>> {
    poll_fn(|cx| match incoming.poll_next(cx) {
        Poll::Pending if deadline.poll_expired(cx) => Poll::Ready(Err(io::ErrorKind::TimedOut.into())),
        outcome => outcome,
    })
    .await
}

/// Sends all of `bytes` and gives the emptied vector back.
async fn send(ring: &Ring, socket: &OwnedFd, bytes: Vec<u8>, deadline: &Deadline) -> io::Result<Vec<u8>> {
    let mut operation = ring.send(socket.as_fd(), bytes);
    let (outcome, mut bytes) = poll_fn(|cx| match std::pin::Pin::new(&mut operation).poll(cx) {
        Poll::Ready(done) => Poll::Ready(Ok(done)),
        Poll::Pending if deadline.poll_expired(cx) => {
            Poll::Ready(Err(io::Error::from(io::ErrorKind::TimedOut)))
        }
        Poll::Pending => Poll::Pending,
    })
    .await?;
    // MSG_WAITALL: short only when the connection broke on the way.
    if outcome? < bytes.len() {
        return Err(io::ErrorKind::BrokenPipe.into());
    }
    bytes.clear();
    Ok(bytes)
}
