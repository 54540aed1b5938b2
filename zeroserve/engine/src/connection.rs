//! One client's connection from handshake to close: which bytes are a request, what answers it, when to wait and
//! when to end. How bytes travel is the transport's business, what they mean is HTTP's.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::rc::Rc;

use crate::generation::Pinned;
use crate::http::h1::{self, BodyEvent, BodyFraming, BodyReader, Parsed, Reject};
use crate::http::request::Version;
use crate::http::response::{Body, Response};
use crate::io::{Deadline, Ring, socket};
use crate::script::{ConnectionInfo, Exchange};
use crate::site;
use crate::tls::Session;
use crate::transport::Transport;
use crate::worker::Worker;

/// Plaintext that is gathered before it is encrypted and sent: four full TLS records.
const BATCH_BYTES: usize = 64 * 1024;
/// Capacity that an idle connection keeps for each of its buffers.
const KEPT_BYTES: usize = 4 * 1024;
/// Bytes of a request's body that are read only to reach the next request. A client that sends more is cut off.
const DISCARDED_BYTES: u64 = 1024 * 1024;

/// Serves one accepted socket until either side ends it. What the client does wrong ends here.
pub async fn serve(worker: Rc<Worker>, fd: OwnedFd, is_tls: bool) {
    // The peer may have gone between accept and here.
    let Ok(peer) = socket::peer_address(fd.as_fd()) else { return };
    let deadline = Deadline::after(worker.timeouts.header);
    let session = match accept_session(&worker, is_tls) {
        Ok(session) => session,
        Err(error) => return worker.log(&format!("no TLS session for {peer}: {error}")),
    };
    let mut connection =
        Connection::new(&worker, Transport::new(worker.ring.clone(), fd, session), peer, deadline);
    if connection.transport.handshake(&connection.deadline).await.is_ok() {
        // An error here is the client's doing or its network's: it has gone or it stalled.
        let _ = connection.run().await;
    }
}

fn accept_session(worker: &Worker, is_tls: bool) -> io::Result<Option<Session>> {
    if !is_tls {
        return Ok(None);
    }
    let generation = worker.generation();
    let context = generation.shared.tls.as_ref().ok_or_else(|| io::Error::other("no certificate"))?;
    Ok(Some(Session::accept(context).map_err(io::Error::other)?))
}

/// What happens after a response.
#[derive(PartialEq)]
enum Next {
    Request,
    Close,
}

struct Connection<'w> {
    worker: &'w Worker,
    transport: Transport,
    deadline: Deadline,
    /// Plaintext received; what lies before `consumed` has been dealt with.
    input: Vec<u8>,
    consumed: usize,
    /// Plaintext to send: several pipelined responses go out together.
    batch: Vec<u8>,
    exchange: Exchange,
    has_answered: bool,
}

impl<'w> Connection<'w> {
    fn new(worker: &'w Worker, transport: Transport, peer: SocketAddr, deadline: Deadline) -> Self {
        let info = ConnectionInfo { peer, is_tls: transport.is_tls() };
        Self {
            worker,
            transport,
            deadline,
            input: Vec::new(),
            consumed: 0,
            batch: Vec::new(),
            exchange: Exchange::new(info),
            has_answered: false,
        }
    }

    async fn run(&mut self) -> io::Result<()> {
        self.deadline.extend(self.worker.timeouts.header);
        loop {
            let unread = &self.input[self.consumed..];
            match h1::parse_request(unread, &self.worker.head_limits, &mut self.exchange.request) {
                Ok(Parsed::Incomplete) => {
                    self.flush().await?;
                    if !self.read_more().await? {
                        return Ok(());
                    }
                }
                Ok(Parsed::Head { consumed, framing, keep_alive, expect_continue }) => {
                    self.consumed += consumed;
                    let may_stay = keep_alive
                        && !self.worker.is_draining()
                        // The client waits for a word before it sends the body: ours is the answer itself.
                        && !(expect_continue && framing != BodyFraming::None);
                    if self.answer(framing, may_stay).await? == Next::Close {
                        return self.close().await;
                    }
                }
                Err(reject) => return self.refuse(reject).await,
            }
        }
    }

    /// Waits for more of a request. False when the connection ends instead.
    async fn read_more(&mut self) -> io::Result<bool> {
        let is_between_requests = self.consumed == self.input.len();
        self.input.drain(..self.consumed);
        self.consumed = 0;
        if is_between_requests {
            return self.await_request().await;
        }
        match self.transport.read(&mut self.input, &self.deadline).await {
            Err(error) if error.kind() == io::ErrorKind::TimedOut => {
                self.refuse(Reject { status: 408, reason: "the request did not arrive in time" }).await?;
                Ok(false)
            }
            outcome => outcome,
        }
    }

    /// Waits for a request's first bytes. Without any the connection ends in good order: nothing is in flight.
    async fn await_request(&mut self) -> io::Result<bool> {
        let timeouts = &self.worker.timeouts;
        self.input.shrink_to(KEPT_BYTES);
        self.deadline.extend(if self.has_answered { timeouts.keep_alive } else { timeouts.header });
        let read = self.transport.read(&mut self.input, &self.deadline);
        let outcome = match self.worker.unless_draining(read).await {
            // It connected to be answered, and its request is likely to be on the way.
            None if !self.has_answered => {
                self.deadline.extend(timeouts.first_request);
                Some(self.transport.read(&mut self.input, &self.deadline).await)
            }
            outcome => outcome,
        };
        match outcome {
            Some(Ok(true)) => {
                // From here on, the request has a limited time to arrive.
                self.deadline.extend(timeouts.header);
                Ok(true)
            }
            Some(Err(error)) if error.kind() != io::ErrorKind::TimedOut => Err(error),
            _ => {
                self.transport.finish(timeouts.stall, &self.deadline).await;
                Ok(false)
            }
        }
    }

    /// Answers the request in the exchange.
    async fn answer(&mut self, framing: BodyFraming, may_stay: bool) -> io::Result<Next> {
        // The whole exchange happens in the generation that it began with, whatever is swapped meanwhile.
        let generation = self.worker.generation();
        let response = respond(&generation, self.worker, &mut self.exchange).await;
        self.has_answered = true;
        let body = match BodyReader::new(framing, DISCARDED_BYTES) {
            Ok(body) if may_stay => Some(body),
            _ => None,
        };
        let is_head = self.exchange.request.method() == b"HEAD";
        let version = self.exchange.request.version();
        self.send(&generation, &response, is_head, version, body.is_some()).await?;
        match body {
            None => Ok(Next::Close),
            Some(_) if framing == BodyFraming::None => Ok(Next::Request),
            Some(body) => self.discard(body).await,
        }
    }

    async fn send(
        &mut self,
        generation: &Pinned,
        response: &Response,
        is_head: bool,
        version: Version,
        stays: bool,
    ) -> io::Result<()> {
        h1::write_head(response, stays, version, &self.worker.date(), &mut self.batch);
        if response.sends_body(is_head) {
            match (response.body.in_memory(), &response.body) {
                (Some(bytes), _) => self.send_bytes(bytes).await?,
                (None, Body::File { offset, len, .. }) => {
                    self.send_file(generation.shared.site.file(), *offset, *len).await?;
                }
                (None, _) => unreachable!("only a file's bytes can be elsewhere than in memory"),
            }
        }
        if self.batch.len() >= BATCH_BYTES { self.flush().await } else { Ok(()) }
    }

    async fn send_bytes(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while self.batch.len() + bytes.len() > BATCH_BYTES {
            let (now, later) = bytes.split_at(BATCH_BYTES.saturating_sub(self.batch.len()));
            self.batch.extend_from_slice(now);
            self.flush().await?;
            bytes = later;
        }
        self.batch.extend_from_slice(bytes);
        Ok(())
    }

    /// Sends a range of the tarball. A tarball that has become shorter ends the connection: the length is promised.
    async fn send_file(&mut self, file: BorrowedFd<'_>, mut offset: u64, mut len: u64) -> io::Result<()> {
        while len > 0 {
            if self.batch.len() >= BATCH_BYTES {
                self.flush().await?;
            }
            let room = (BATCH_BYTES - self.batch.len()).min(usize::try_from(len).unwrap_or(usize::MAX));
            self.batch.reserve(room);
            let batch = std::mem::take(&mut self.batch);
            let (read, batch) = read_file(&self.worker.ring, file, batch, room, offset).await;
            self.batch = batch;
            match read? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                read => {
                    offset += read as u64;
                    len -= read as u64;
                }
            }
        }
        Ok(())
    }

    async fn flush(&mut self) -> io::Result<()> {
        if self.batch.is_empty() {
            return Ok(());
        }
        self.transport.queue(&self.batch)?;
        self.batch.clear();
        self.batch.shrink_to(KEPT_BYTES);
        self.transport.flush(self.worker.timeouts.stall, &self.deadline).await?;
        self.deadline.extend(self.worker.timeouts.header);
        Ok(())
    }

    /// Reads past the body of an answered request.
    async fn discard(&mut self, mut body: BodyReader) -> io::Result<Next> {
        loop {
            loop {
                let Ok((used, event)) = body.feed(&self.input[self.consumed..]) else {
                    return Ok(Next::Close);
                };
                let (is_over, is_drained) = (event == BodyEvent::End, event == BodyEvent::NeedMore);
                self.consumed += used;
                if is_over {
                    return Ok(Next::Request);
                }
                if is_drained {
                    break;
                }
            }
            self.flush().await?;
            self.input.clear();
            self.consumed = 0;
            if !self.transport.read(&mut self.input, &self.deadline).await? {
                return Ok(Next::Close);
            }
        }
    }

    async fn refuse(&mut self, reject: Reject) -> io::Result<()> {
        let response = reject.response();
        h1::write_head(&response, false, Version::Http11, &self.worker.date(), &mut self.batch);
        if let Some(body) = response.body.in_memory() {
            self.batch.extend_from_slice(body);
        }
        self.close().await
    }

    async fn close(&mut self) -> io::Result<()> {
        self.flush().await?;
        self.transport.finish(self.worker.timeouts.stall, &self.deadline).await;
        self.deadline.extend(self.worker.timeouts.linger);
        self.transport.linger(&self.deadline).await;
        Ok(())
    }
}

/// The site's scripts first, its files otherwise.
async fn respond(generation: &Pinned, worker: &Worker, exchange: &mut Exchange) -> Response {
    exchange.begin();
    if !generation.chain.is_empty() {
        generation.chain.run(exchange, &worker.timeslicer()).await;
    }
    if let Some(answer) = exchange.take_answer() {
        return answer;
    }
    let mut response = site::respond::respond(&generation.shared.site, &exchange.request);
    exchange.metadata.apply_to(&mut response);
    response
}

/// Appends up to `wanted` bytes at `offset`: at once when they are in the page cache, else through the ring, so that
/// a slow disk holds up this connection only.
async fn read_file(
    ring: &Ring,
    file: BorrowedFd<'_>,
    mut data: Vec<u8>,
    wanted: usize,
    offset: u64,
) -> (io::Result<usize>, Vec<u8>) {
    let part = libc::iovec { iov_base: data.spare_capacity_mut().as_mut_ptr().cast(), iov_len: wanted };
    // SAFETY: the caller reserved `wanted` bytes of spare room, which is all that the kernel may write.
    let read = unsafe { libc::preadv2(file.as_raw_fd(), &part, 1, offset as libc::off_t, libc::RWF_NOWAIT) };
    let (outcome, mut data) =
        if read >= 0 { (Ok(read as usize), data) } else { ring.read_at(file, data, wanted, offset).await };
    if let Ok(read) = outcome {
        // SAFETY: the kernel initialised `read` bytes behind the old length, within the room reserved.
        unsafe { data.set_len(data.len() + read) };
    }
    (outcome, data)
}
