//! One worker's io_uring: operations as futures that own their memory until the kernel has let go of it.
//!
//! A future may be dropped at any time (a deadline passed, the client left). What the kernel may still touch then
//! moves into the operation's slot and stays there until its last completion.

use std::any::Any;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::future::poll_fn;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use io_uring::types::{CancelBuilder, Fd, SubmitArgs, Timespec};
use io_uring::{IoUring, cqueue, opcode, squeue};
use slab::Slab;

use super::buffers::{BUFFER_COUNT, BUFFER_GROUP, Buffer, BufferPool};

const SUBMISSIONS: u32 = 512;
const COMPLETIONS: u32 = 4096;
/// Completions of no interest: cancellations.
const UNTRACKED: u64 = u64::MAX;
/// Received buffers that a connection may leave unread before its receive is paused: one that is slow to answer must
/// not hold the worker's whole pool.
const UNREAD_BUFFERS: usize = 8;

/// What is known of an operation that the kernel has.
enum Slot {
    Waiting(Option<Waker>),
    Done(i32),
    /// The future is gone; its memory is kept for the kernel.
    Abandoned {
        _memory: Box<dyn Any>,
    },
    Stream(Stream),
}

/// A multishot operation: one submission, many completions.
struct Stream {
    kind: StreamKind,
    waker: Option<Waker>,
    arrived: VecDeque<Arrival>,
    /// Whether the kernel may still add completions.
    is_armed: bool,
    is_abandoned: bool,
}

#[derive(Clone, Copy, PartialEq)]
enum StreamKind {
    Accept,
    Receive,
}

enum Arrival {
    Connection(OwnedFd),
    Bytes(Buffer),
    End,
    Failed(io::Error),
    /// No buffer was free, or the receive was paused: not the connection's fault, and it can be armed again.
    Paused,
}

/// The ring of the calling thread. Cheap to clone.
#[derive(Clone)]
pub struct Ring(Rc<Inner>);

struct Inner {
    // Declared before the pool, so that the kernel has let go of the buffers before they are unmapped.
    uring: RefCell<IoUring>,
    slots: RefCell<Slab<Slot>>,
    buffers: Rc<BufferPool>,
}

impl Ring {
    /// Sets up a ring for the calling thread, which alone may use it.
    ///
    /// # Errors
    /// The kernel's refusal: `ENOSYS` or `EPERM` where io_uring is absent or forbidden, `EINVAL` before Linux 6.1.
    pub fn new() -> io::Result<Self> {
        let uring = IoUring::builder()
            .setup_single_issuer()
            .setup_defer_taskrun()
            .setup_cqsize(COMPLETIONS)
            .build(SUBMISSIONS)?;
        let buffers = BufferPool::new()?;
        // SAFETY: the mapping holds BUFFER_COUNT entries and outlives the ring (field order of `Inner`).
        unsafe {
            uring.submitter().register_buf_ring_with_flags(
                buffers.ring_address(),
                BUFFER_COUNT,
                BUFFER_GROUP,
                0,
            )?;
        }
        Ok(Self(Rc::new(Inner { uring: RefCell::new(uring), slots: RefCell::default(), buffers })))
    }

    /// Submits what has been queued, waits for a completion for at most `timeout` (for ever when `None`), and wakes
    /// the tasks concerned.
    pub fn turn(&self, timeout: Option<Duration>) -> io::Result<()> {
        let outcome = {
            let uring = self.0.uring.borrow();
            match timeout {
                None => uring.submitter().submit_and_wait(1),
                Some(timeout) => {
                    let limit = Timespec::from(timeout);
                    uring.submitter().submit_with_args(1, &SubmitArgs::new().timespec(&limit))
                }
            }
        };
        match outcome {
            Ok(_) => {}
            Err(error) if error.raw_os_error().is_some_and(passes) => {}
            Err(error) => return Err(error),
        }
        self.dispatch();
        Ok(())
    }

    /// Whether the kernel has nothing of ours any more.
    pub fn is_quiet(&self) -> bool {
        self.0.slots.borrow().is_empty()
    }

    /// Sends all of `data`; gives it back with the number of bytes that the socket took before an error.
    pub fn send(&self, fd: BorrowedFd<'_>, data: Vec<u8>) -> Single<Vec<u8>> {
        let entry = opcode::Send::new(Fd(fd.as_raw_fd()), data.as_ptr(), data.len() as u32)
            .flags(libc::MSG_WAITALL | libc::MSG_NOSIGNAL)
            .build();
        self.start(entry, data)
    }

    /// Reads up to `wanted` bytes of a file at `offset` into the spare room of `data`, which it has to have.
    pub fn read_at(
        &self,
        fd: BorrowedFd<'_>,
        mut data: Vec<u8>,
        wanted: usize,
        offset: u64,
    ) -> Single<Vec<u8>> {
        let room = data.spare_capacity_mut();
        let wanted = wanted.min(room.len());
        let entry = opcode::Read::new(Fd(fd.as_raw_fd()), room.as_mut_ptr().cast(), wanted as u32)
            .offset(offset)
            .build();
        self.start(entry, data)
    }

    /// Reads the eight bytes of an eventfd.
    pub fn read_event(&self, fd: BorrowedFd<'_>) -> Single<Box<u64>> {
        let mut count = Box::new(0u64);
        let pointer: *mut u64 = &mut *count;
        self.start(opcode::Read::new(Fd(fd.as_raw_fd()), pointer.cast(), 8).build(), count)
    }

    /// Accepts connections until dropped.
    pub fn accept(&self, listener: BorrowedFd<'_>) -> Connections {
        Connections(self.open_stream(StreamKind::Accept, listener))
    }

    /// Receives from a connected socket until dropped.
    pub fn receive(&self, socket: BorrowedFd<'_>) -> Incoming {
        Incoming(self.open_stream(StreamKind::Receive, socket))
    }

    fn start<T: 'static>(&self, entry: squeue::Entry, memory: T) -> Single<T> {
        let key = self.0.slots.borrow_mut().insert(Slot::Waiting(None));
        // SAFETY: what the entry points to is owned by `memory`, which lives in the future or, when that is dropped
        // early, in the slot, until the completion.
        unsafe { self.push(&entry.user_data(key as u64)) };
        Single { ring: self.clone(), key, memory: Some(memory) }
    }

    fn open_stream(&self, kind: StreamKind, fd: BorrowedFd<'_>) -> StreamHandle {
        let stream =
            Stream { kind, waker: None, arrived: VecDeque::new(), is_armed: false, is_abandoned: false };
        let key = self.0.slots.borrow_mut().insert(Slot::Stream(stream));
        StreamHandle { ring: self.clone(), key, kind, fd: fd.as_raw_fd() }
    }

    /// # Safety
    /// Memory that the entry names must stay valid until its completion.
    unsafe fn push(&self, entry: &squeue::Entry) {
        let mut uring = self.0.uring.borrow_mut();
        // SAFETY: the caller's promise.
        while unsafe { uring.submission().push(entry) }.is_err() {
            // Full: hand over what is there. An error leaves it full and is met again in `turn`; the kernel takes
            // entries in order, so trying again is all there is to do.
            let _ = uring.submit();
        }
    }

    fn cancel(&self, key: usize) {
        let entry =
            opcode::AsyncCancel2::new(CancelBuilder::user_data(key as u64)).build().user_data(UNTRACKED);
        // SAFETY: the entry names no memory.
        unsafe { self.push(&entry) };
    }

    /// Cancels an operation whose future is gone, and hands over what is queued: an entry names a descriptor by its
    /// number, which may be somebody else's as soon as the caller has closed it.
    fn abandon(&self, key: usize) {
        self.cancel(key);
        // An error is met again in `turn`.
        let _ = self.0.uring.borrow().submit();
    }

    fn dispatch(&self) {
        loop {
            let completion = self.0.uring.borrow_mut().completion().next();
            let Some(completion) = completion else { return };
            if completion.user_data() != UNTRACKED {
                self.complete(completion.user_data() as usize, &completion);
            }
        }
    }

    fn complete(&self, key: usize, completion: &cqueue::Entry) {
        let mut slots = self.0.slots.borrow_mut();
        let Some(slot) = slots.get_mut(key) else { return };
        let waker = match slot {
            Slot::Waiting(waker) => {
                let waker = waker.take();
                *slot = Slot::Done(completion.result());
                waker
            }
            Slot::Stream(stream) => {
                let arrival = stream.arrival(completion, &self.0.buffers);
                stream.is_armed = cqueue::more(completion.flags());
                if stream.is_abandoned {
                    let is_over = !stream.is_armed;
                    if is_over {
                        slots.remove(key);
                    }
                    drop(slots);
                    drop(arrival);
                    return;
                }
                stream.arrived.push_back(match arrival {
                    // Nobody waits for it, so it may lie here for long: the pool is for all connections.
                    Arrival::Bytes(buffer) if stream.waker.is_none() => Arrival::Bytes(buffer.detached()),
                    arrival => arrival,
                });
                let must_pause = stream.kind == StreamKind::Receive
                    && stream.is_armed
                    && stream.arrived.len() == UNREAD_BUFFERS;
                let waker = stream.waker.take();
                if must_pause {
                    drop(slots);
                    self.cancel(key);
                }
                waker
            }
            Slot::Abandoned { .. } => {
                let slot = slots.remove(key);
                drop(slots);
                drop(slot);
                return;
            }
            Slot::Done(_) => None,
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

/// Whether an error of `io_uring_enter` is over after the completions have been taken. EINTR: the preemption signal of
/// the scripts; EBUSY, EAGAIN: the kernel has no room for more just now (io_uring_enter(2)).
fn passes(error: i32) -> bool {
    matches!(error, libc::ETIME | libc::EINTR | libc::EBUSY | libc::EAGAIN)
}

impl Stream {
    fn arrival(&self, completion: &cqueue::Entry, buffers: &Rc<BufferPool>) -> Arrival {
        let result = completion.result();
        if let Some(id) = cqueue::buffer_select(completion.flags()) {
            let buffer = buffers.take(id, result.max(0) as usize);
            if result > 0 {
                return Arrival::Bytes(buffer);
            }
        }
        match (self.kind, result) {
            // SAFETY: the kernel has just made this descriptor for us; nobody else knows of it.
            (StreamKind::Accept, fd) if fd >= 0 => Arrival::Connection(unsafe { OwnedFd::from_raw_fd(fd) }),
            (StreamKind::Receive, 0) => Arrival::End,
            (StreamKind::Receive, error) if error == -libc::ENOBUFS || error == -libc::ECANCELED => {
                Arrival::Paused
            }
            (_, error) => Arrival::Failed(io::Error::from_raw_os_error(-error)),
        }
    }
}

/// One operation with one completion. Resolves to the kernel's result and the memory it worked on.
pub struct Single<T: 'static> {
    ring: Ring,
    key: usize,
    memory: Option<T>,
}

// The memory is never pinned: the kernel knows the heap it owns, not the field.
impl<T> Unpin for Single<T> {}

impl<T: 'static> Future for Single<T> {
    type Output = (io::Result<usize>, T);

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let result = {
            let mut slots = self.ring.0.slots.borrow_mut();
            match slots.get_mut(self.key) {
                Some(Slot::Done(result)) => {
                    let result = *result;
                    slots.remove(self.key);
                    result
                }
                Some(Slot::Waiting(waker)) => {
                    *waker = Some(cx.waker().clone());
                    return Poll::Pending;
                }
                _ => unreachable!("a pending operation keeps its slot"),
            }
        };
        let memory = self.memory.take().expect("polled after completion");
        let outcome =
            if result < 0 { Err(io::Error::from_raw_os_error(-result)) } else { Ok(result as usize) };
        Poll::Ready((outcome, memory))
    }
}

impl<T: 'static> Drop for Single<T> {
    fn drop(&mut self) {
        let Some(memory) = self.memory.take() else { return };
        let is_running = {
            let mut slots = self.ring.0.slots.borrow_mut();
            match slots.get_mut(self.key) {
                Some(slot @ Slot::Waiting(_)) => {
                    *slot = Slot::Abandoned { _memory: Box::new(memory) };
                    true
                }
                _ => {
                    slots.try_remove(self.key);
                    false
                }
            }
        };
        if is_running {
            self.ring.abandon(self.key);
        }
    }
}

struct StreamHandle {
    ring: Ring,
    key: usize,
    kind: StreamKind,
    fd: RawFd,
}

impl StreamHandle {
    fn poll_next(&self, cx: &mut Context<'_>) -> Poll<Arrival> {
        let must_arm = {
            let mut slots = self.ring.0.slots.borrow_mut();
            let Some(Slot::Stream(stream)) = slots.get_mut(self.key) else {
                unreachable!("a stream keeps its slot until its handle is dropped")
            };
            match stream.arrived.pop_front() {
                Some(Arrival::Paused) | None => {}
                Some(arrival) => return Poll::Ready(arrival),
            }
            stream.waker = Some(cx.waker().clone());
            !std::mem::replace(&mut stream.is_armed, true)
        };
        if must_arm {
            let entry = match self.kind {
                StreamKind::Accept => opcode::AcceptMulti::new(Fd(self.fd)).flags(libc::SOCK_CLOEXEC).build(),
                StreamKind::Receive => opcode::RecvMulti::new(Fd(self.fd), BUFFER_GROUP).build(),
            };
            // SAFETY: multishot accept and receive name no memory of ours but the registered pool.
            unsafe { self.ring.push(&entry.user_data(self.key as u64)) };
        }
        Poll::Pending
    }
}

impl Drop for StreamHandle {
    fn drop(&mut self) {
        let (stays, arrived) = {
            let mut slots = self.ring.0.slots.borrow_mut();
            let Some(Slot::Stream(stream)) = slots.get_mut(self.key) else { return };
            let arrived = std::mem::take(&mut stream.arrived);
            stream.is_abandoned = true;
            let stays = stream.is_armed;
            if !stays {
                slots.remove(self.key);
            }
            (stays, arrived)
        };
        drop(arrived);
        if stays {
            self.ring.abandon(self.key);
        }
    }
}

/// The connections that arrive at a listener.
pub struct Connections(StreamHandle);

impl Connections {
    /// The next connection.
    ///
    /// # Errors
    /// What `accept4` says, `EMFILE` among it; the listener stays usable.
    pub async fn next(&mut self) -> io::Result<OwnedFd> {
        poll_fn(|cx| {
            self.0.poll_next(cx).map(|arrival| match arrival {
                Arrival::Connection(fd) => Ok(fd),
                Arrival::Failed(error) => Err(error),
                _ => unreachable!("a listener gives connections"),
            })
        })
        .await
    }
}

/// The bytes that arrive at a socket.
pub struct Incoming(StreamHandle);

impl Incoming {
    /// The next bytes; `None` once the peer has finished sending.
    pub fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Option<Buffer>>> {
        self.0.poll_next(cx).map(|arrival| match arrival {
            Arrival::Bytes(buffer) => Ok(Some(buffer)),
            Arrival::End => Ok(None),
            Arrival::Failed(error) => Err(error),
            _ => unreachable!("a socket gives bytes"),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;

    /// A pair of sockets, the first of which has this number. It is one that no other test of the process is given,
    /// as the kernel gives the lowest that is free.
    fn pair_at(number: RawFd) -> (UnixStream, UnixStream) {
        let (low, other) = UnixStream::pair().expect("sockets");
        // SAFETY: the number is free, so what it stands for from here on is ours alone.
        let mine = unsafe {
            assert_eq!(libc::dup2(low.as_raw_fd(), number), number);
            UnixStream::from_raw_fd(number)
        };
        (mine, other)
    }

    #[test]
    fn what_was_never_submitted_does_not_touch_the_next_owner_of_its_descriptor() {
        let ring = Ring::new().expect("a ring");
        const NUMBER: RawFd = 1000;
        let (mine, _other) = pair_at(NUMBER);
        let mut cx = Context::from_waker(Waker::noop());
        let mut incoming = ring.receive(mine.as_fd());
        assert!(incoming.poll_next(&mut cx).is_pending());
        let mut sending = ring.send(mine.as_fd(), b"stale".to_vec());
        assert!(Pin::new(&mut sending).poll(&mut cx).is_pending());
        drop((incoming, sending));
        drop(mine);
        let (mut next, mut peer) = pair_at(NUMBER);
        peer.write_all(b"fresh").expect("room");
        for _ in 0..8 {
            ring.turn(Some(Duration::from_millis(5))).expect("a turn");
        }
        assert!(ring.is_quiet());
        next.set_nonblocking(true).expect("an option");
        peer.set_nonblocking(true).expect("an option");
        let mut read = [0; 16];
        assert_eq!(next.read(&mut read).ok(), Some(5));
        assert_eq!(peer.read(&mut read).map_err(|error| error.kind()), Err(io::ErrorKind::WouldBlock));
    }
}
