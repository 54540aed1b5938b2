//! The server as a whole: its worker threads, started together, swapped together, drained together.

use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crate::generation::{Certificate, Generation, GenerationError, Source};
use crate::http::h1::Limits;
use crate::io::socket;
use crate::worker::{self, Command, Listener, Mailbox, Setup, Timeouts};

/// What a server is started with.
pub struct Settings {
    pub source: Source,
    pub certificate: Option<Certificate>,
    pub plain_addresses: Vec<SocketAddr>,
    pub tls_addresses: Vec<SocketAddr>,
    pub workers: usize,
    pub timeouts: Timeouts,
    pub head_limits: Limits,
    pub preempt_interval: Duration,
}

/// Why a server did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error(transparent)]
    Generation(#[from] GenerationError),
    #[error("cannot listen on {0}: {1}")]
    Listen(SocketAddr, io::Error),
    #[error("io_uring cannot be used: {0}")]
    Ring(io::Error),
    #[error("a worker thread cannot be started: {0}")]
    Thread(io::Error),
}

/// How a server ended.
#[derive(Debug, Clone, Default)]
pub struct Ending {
    /// Connections that were cut off at the drain's deadline.
    pub cut_off: usize,
    /// What stopped a worker that nobody had told to stop.
    pub failure: Option<String>,
}

/// The workers that run, and what has become of the others.
struct Roll {
    running: usize,
    ending: Ending,
}

/// A running server. Dropping it does not stop it; [`Server::drain`] does.
pub struct Server {
    source: Source,
    mailboxes: Vec<Arc<Mailbox>>,
    roll: Arc<(Mutex<Roll>, Condvar)>,
    pub plain_addresses: Vec<SocketAddr>,
    pub tls_addresses: Vec<SocketAddr>,
}

impl Server {
    /// Loads the first generation, binds every address for every worker, and starts the workers.
    pub fn start(settings: Settings) -> Result<Self, StartError> {
        let workers = settings.workers.max(1);
        let (generation, scripts) =
            Generation::load(&settings.source, settings.certificate.as_ref(), workers)?;
        let plain = Bound::bind(&settings.plain_addresses, workers, false)?;
        let tls = Bound::bind(&settings.tls_addresses, workers, true)?;
        let roll =
            Arc::new((Mutex::new(Roll { running: workers, ending: Ending::default() }), Condvar::new()));
        let (ready, readiness) = sync_channel(workers);
        let mut mailboxes = Vec::with_capacity(workers);
        let listeners = plain.listeners.into_iter().zip(tls.listeners);
        for ((plain, tls), scripts) in listeners.zip(scripts) {
            let mailbox = Arc::new(Mailbox::new().map_err(StartError::Thread)?);
            mailboxes.push(mailbox.clone());
            let setup = Setup {
                listeners: plain.into_iter().chain(tls).collect(),
                generation: generation.clone(),
                scripts: Box::new(scripts),
                mailbox,
                timeouts: settings.timeouts,
                head_limits: settings.head_limits,
                preempt_interval: settings.preempt_interval,
            };
            let (roll, ready) = (roll.clone(), ready.clone());
            thread::Builder::new()
                .name(format!("zs-worker-{}", mailboxes.len() - 1))
                .spawn(move || sign_off(&roll, worker::run(setup, &ready)))
                .map_err(StartError::Thread)?;
        }
        let server = Self {
            source: settings.source,
            mailboxes,
            roll,
            plain_addresses: plain.addresses,
            tls_addresses: tls.addresses,
        };
        for _ in 0..workers {
            if let Ok(Err(error)) = readiness.recv() {
                server.drain(Duration::ZERO);
                return Err(StartError::Ring(error));
            }
        }
        Ok(server)
    }

    /// Makes a new generation and, only when it is whole, hands it to every worker.
    pub fn reload(&self, certificate: Option<&Certificate>) -> Result<(), GenerationError> {
        let (generation, scripts) = Generation::load(&self.source, certificate, self.mailboxes.len())?;
        for (mailbox, scripts) in self.mailboxes.iter().zip(scripts) {
            mailbox.post(Command::Swap(generation.clone(), Box::new(scripts)));
        }
        Ok(())
    }

    /// Tells every worker to stop: what is in flight may finish within `limit`. Returns at once.
    pub fn drain(&self, limit: Duration) {
        let deadline = Instant::now() + limit;
        self.mailboxes.iter().for_each(|mailbox| mailbox.post(Command::Drain(deadline)));
    }

    /// Waits until all workers have ended, or one has failed.
    pub fn wait(&self) -> Ending {
        let (roll, changed) = &*self.roll;
        let roll = roll.lock().unwrap_or_else(PoisonError::into_inner);
        let roll = changed
            .wait_while(roll, |roll| roll.running > 0 && roll.ending.failure.is_none())
            .unwrap_or_else(PoisonError::into_inner);
        roll.ending.clone()
    }
}

fn sign_off(roll: &(Mutex<Roll>, Condvar), outcome: io::Result<usize>) {
    let mut state = roll.0.lock().unwrap_or_else(PoisonError::into_inner);
    state.running -= 1;
    match outcome {
        Ok(cut_off) => state.ending.cut_off += cut_off,
        Err(error) => state.ending.failure = Some(error.to_string()),
    }
    roll.1.notify_all();
}

/// Listeners on the same addresses, a set for each worker.
struct Bound {
    listeners: Vec<Vec<Listener>>,
    addresses: Vec<SocketAddr>,
}

impl Bound {
    fn bind(wanted: &[SocketAddr], workers: usize, is_tls: bool) -> Result<Self, StartError> {
        for address in wanted.iter().filter(|address| address.port() != 0) {
            socket::check_free(*address).map_err(|error| StartError::Listen(*address, error))?;
        }
        let mut addresses = wanted.to_vec();
        let mut listeners = Vec::with_capacity(workers);
        for _ in 0..workers {
            let mut set = Vec::with_capacity(addresses.len());
            for address in &mut addresses {
                let refused = |error| StartError::Listen(*address, error);
                let fd = socket::listen(*address).map_err(refused)?;
                // Port 0 becomes a real one at the first worker; the others share it.
                *address = socket::local_address(fd.as_fd()).map_err(refused)?;
                set.push(Listener { fd, is_tls });
            }
            listeners.push(set);
        }
        Ok(Self { listeners, addresses })
    }
}
