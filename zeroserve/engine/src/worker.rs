//! One thread, one ring, one listener on each address: accepts connections and runs them until told to stop.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::pin::pin;
use std::rc::Rc;
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::{Duration, Instant};

use async_ebpf::program::Timeslicer;

use crate::connection;
use crate::generation::{Generation, Pinned};
use crate::http::date;
use crate::http::h1::Limits;
use crate::io::{self as ring_io, Ring, executor, timer};
use crate::notice;
use crate::script::{ScriptSet, ThreadRuntime};

/// How long a listener that cannot accept (no descriptor, no memory) leaves it be.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// Tasks of a worker that is being drained which are no connection: the one that follows the mailbox.
const STANDING_TASKS: usize = 1;
/// Turns of the ring that a stopped worker allows the kernel to let go of its memory.
const LAST_TURNS: usize = 64;

/// How long a connection may take, for each thing that it may wait for.
#[derive(Debug, Clone, Copy)]
pub struct Timeouts {
    /// TLS handshake, and a request's head and body from its first byte.
    pub header: Duration,
    /// Between two requests.
    pub keep_alive: Duration,
    /// For the peer to take what was sent.
    pub stall: Duration,
    /// For the peer to close after we did.
    pub linger: Duration,
    /// For the first request of a connection, from the start of a drain.
    pub first_request: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            header: Duration::from_secs(10),
            keep_alive: Duration::from_secs(75),
            stall: Duration::from_secs(30),
            linger: Duration::from_secs(2),
            first_request: Duration::from_secs(1),
        }
    }
}

/// What a worker is told while it runs.
pub enum Command {
    Swap(Arc<Generation>, Box<ScriptSet>),
    /// Accept no more, finish what is in flight, and cut off what is left at this time.
    Drain(Instant),
}

/// A worker's letter box: filled by any thread, emptied by the worker.
pub struct Mailbox {
    commands: Mutex<VecDeque<Command>>,
    event: OwnedFd,
}

impl Mailbox {
    pub fn new() -> io::Result<Self> {
        // SAFETY: plain system call; the descriptor is ours alone when it succeeded.
        let event = unsafe {
            let fd = libc::eventfd(0, libc::EFD_CLOEXEC);
            if fd < 0 {
                return Err(io::Error::last_os_error());
            }
            OwnedFd::from_raw_fd(fd)
        };
        Ok(Self { commands: Mutex::default(), event })
    }

    pub fn post(&self, command: Command) {
        self.lock().push_back(command);
        let one = 1u64;
        // SAFETY: eight readable bytes. It can fail only when the counter is full, and then the worker is awake.
        unsafe { libc::write(self.event.as_raw_fd(), (&raw const one).cast(), 8) };
    }

    fn take(&self) -> Option<Command> {
        self.lock().pop_front()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, VecDeque<Command>> {
        // A queue is whole between any two operations, so a panic elsewhere has not broken it.
        self.commands.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

/// A listener and what is spoken on it.
pub struct Listener {
    pub fd: OwnedFd,
    pub is_tls: bool,
}

/// All that a worker thread starts with.
pub struct Setup {
    pub listeners: Vec<Listener>,
    pub generation: Arc<Generation>,
    pub scripts: Box<ScriptSet>,
    pub mailbox: Arc<Mailbox>,
    pub timeouts: Timeouts,
    pub head_limits: Limits,
    pub preempt_interval: Duration,
}

/// What the tasks of one worker share.
pub struct Worker {
    pub ring: Ring,
    pub timeouts: Timeouts,
    pub head_limits: Limits,
    runtime: ThreadRuntime,
    generation: RefCell<Rc<Pinned>>,
    drain_deadline: Cell<Option<Instant>>,
    date: Cell<(u64, [u8; 29])>,
}

/// Runs a worker on the calling thread until it is drained, and says how many connections were cut off.
///
/// `ready` is told once how the start went.
///
/// # Errors
/// What the ring says; the thread's connections are gone then.
pub fn run(setup: Setup, ready: &SyncSender<io::Result<()>>) -> io::Result<usize> {
    let ring = match Ring::new() {
        Ok(ring) => ring,
        Err(error) => {
            let told = io::Error::new(error.kind(), error.to_string());
            let _ = ready.send(Err(told));
            return Err(error);
        }
    };
    let Setup { listeners, generation, scripts, mailbox, timeouts, head_limits, preempt_interval } = setup;
    let runtime = ThreadRuntime::new(preempt_interval);
    let pinned = Rc::new(Pinned { shared: generation, chain: scripts.pin(&runtime) });
    let worker = Rc::new(Worker {
        ring: ring.clone(),
        timeouts,
        head_limits,
        runtime,
        generation: RefCell::new(pinned),
        drain_deadline: Cell::new(None),
        date: Cell::new((0, [0; 29])),
    });
    for listener in listeners {
        ring_io::spawn(accept(worker.clone(), listener));
    }
    ring_io::spawn(follow(worker.clone(), mailbox));
    // The receiver gives up only when the whole start failed, and then a drain follows.
    let _ = ready.send(Ok(()));
    let outcome = turn_until_drained(&worker);
    executor::drop_all();
    for _ in 0..LAST_TURNS {
        if worker.ring.is_quiet() || worker.ring.turn(Some(Duration::from_millis(10))).is_err() {
            break;
        }
    }
    outcome
}

fn turn_until_drained(worker: &Worker) -> io::Result<usize> {
    loop {
        timer::begin_round();
        executor::run_round();
        let timeout = match worker.drain_deadline.get() {
            Some(_) if in_flight() == 0 => return Ok(0),
            Some(deadline) if timer::now() >= deadline => return Ok(in_flight()),
            _ if executor::has_ready() => Some(Duration::ZERO),
            Some(deadline) => {
                let left = deadline.saturating_duration_since(timer::now());
                Some(timer::until_next().map_or(left, |next| next.min(left)))
            }
            None => timer::until_next(),
        };
        worker.ring.turn(timeout)?;
    }
}

/// The tasks that a drain waits for.
fn in_flight() -> usize {
    executor::task_count().saturating_sub(STANDING_TASKS)
}

/// Carries out what is posted, for as long as the worker lives: a second drain may be in more of a hurry.
async fn follow(worker: Rc<Worker>, mailbox: Arc<Mailbox>) {
    loop {
        let (outcome, _) = worker.ring.read_event(mailbox.event.as_fd()).await;
        if let Err(error) = outcome {
            worker.log(&format!("a worker can no longer be told anything: {error}"));
            return std::future::pending().await;
        }
        while let Some(command) = mailbox.take() {
            match command {
                Command::Swap(shared, scripts) => {
                    let chain = scripts.pin(&worker.runtime);
                    let old = worker.generation.replace(Rc::new(Pinned { shared, chain }));
                    drop(old);
                }
                Command::Drain(deadline) => {
                    worker.drain_deadline.set(Some(deadline));
                    executor::wake_all();
                }
            }
        }
    }
}

async fn accept(worker: Rc<Worker>, listener: Listener) {
    let mut connections = worker.ring.accept(listener.fd.as_fd());
    while let Some(outcome) = worker.unless_draining(connections.next()).await {
        match outcome {
            Ok(fd) => ring_io::spawn(connection::serve(worker.clone(), fd, listener.is_tls)),
            Err(error) => {
                worker.log(&format!("cannot accept a connection: {error}"));
                ring_io::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
    drop(connections);
    // Whoever the kernel has already accepted for us would be reset when the listener closes.
    for fd in ring_io::socket::take_waiting(listener.fd.as_fd()) {
        ring_io::spawn(connection::serve(worker.clone(), fd, listener.is_tls));
    }
}

impl Worker {
    /// The newest generation. Hold on to it for as long as a request lasts.
    pub fn generation(&self) -> Rc<Pinned> {
        self.generation.borrow().clone()
    }

    pub fn is_draining(&self) -> bool {
        self.drain_deadline.get().is_some()
    }

    /// Waits for `future`, or gives `None` as soon as the worker drains.
    pub async fn unless_draining<T>(&self, future: impl Future<Output = T>) -> Option<T> {
        let mut future = pin!(future);
        std::future::poll_fn(|cx| match future.as_mut().poll(cx) {
            Poll::Ready(value) => Poll::Ready(Some(value)),
            Poll::Pending if self.is_draining() => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        })
        .await
    }

    /// The Date field's value, formatted once a second.
    pub fn date(&self) -> [u8; 29] {
        let now = date::now();
        let (second, text) = self.date.get();
        if second == now {
            return text;
        }
        let text = date::format(now);
        self.date.set((now, text));
        text
    }

    pub fn timeslicer(&self) -> RoundTimeslicer {
        RoundTimeslicer
    }

    /// One line on standard error.
    pub fn log(&self, message: &str) {
        notice::write(format_args!("{message}"));
    }
}

/// Lets a long script give way to the worker's other tasks.
pub struct RoundTimeslicer;

impl Timeslicer for RoundTimeslicer {
    fn sleep(&self, duration: Duration) -> impl Future<Output = ()> {
        ring_io::sleep(duration)
    }

    fn yield_now(&self) -> impl Future<Output = ()> {
        ring_io::yield_now()
    }
}
