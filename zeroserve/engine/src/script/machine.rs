//! The machine that runs scripts: uBPF with its pointer cage, compiling to native code. Which scripts run for a request
//! is the chain's business.

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::Duration;

use async_ebpf::helpers::Helper;
use async_ebpf::program::{
    DummyProgramEventListener, GlobalEnv, Program, ProgramLoader, ThreadEnv, Timeslicer,
};

use super::object::{Object, Refused};
use super::turns::Timer;
use super::{Chain, log, memory, metadata, request, respond, time};

/// The linker follows the calls of a script with calls of its own, as deep as the object pleases.
const LOADER_STACK_BYTES: usize = 64 << 20;
/// More than a script can be given as input; see `compile_entry`.
const TOO_MUCH_INPUT: [u8; 513] = [0; 513];
/// Interval of a timer that never has anything to interrupt.
const NEVER: Duration = Duration::from_secs(3600);

/// Everything that a script can call.
const HELPERS: &[&[(&str, Helper)]] =
    &[log::HELPERS, memory::HELPERS, metadata::HELPERS, request::HELPERS, respond::HELPERS, time::HELPERS];

/// How long a script may run for one request. A script that is done before the timer ticks meets none of these.
#[derive(Debug, Clone)]
pub struct ScriptLimits {
    /// A script that has had the turn for so long, all its turns together, is ended.
    pub run_time: Duration,
    /// So is one that is not done so long after it was first interrupted, whoever had the turn meanwhile.
    pub total_time: Duration,
    /// Up to here a script takes turns with other requests as an equal; from here on it is a burden.
    pub free_run_time: Duration,
    /// All burdens of a thread together get one in so many parts of its time.
    pub burden_part: u32,
}

impl Default for ScriptLimits {
    fn default() -> Self {
        Self {
            run_time: Duration::from_secs(1),
            total_time: Duration::from_secs(10),
            free_run_time: Duration::from_millis(20),
            burden_part: 10,
        }
    }
}

/// A script that cannot be loaded, and why.
#[derive(Debug, thiserror::Error)]
#[error("script {script}: {reason}")]
pub struct ScriptError {
    pub script: String,
    pub reason: String,
}

/// What a thread needs to run scripts. Made once on each worker thread.
///
/// The process's handlers of SIGUSR1 (the timer's signal) and SIGSEGV (a script's wild pointer) belong to it.
pub struct ThreadRuntime {
    pub(super) timer: Rc<Timer>,
}

impl ThreadRuntime {
    /// `preempt_interval` is how often a script that runs is made to give way.
    pub fn new(preempt_interval: Duration) -> Self {
        Self { timer: Rc::new(Timer::new(thread_env(preempt_interval), preempt_interval)) }
    }
}

fn thread_env(preempt_interval: Duration) -> ThreadEnv {
    // SAFETY: nothing else in this process handles SIGUSR1 or SIGSEGV.
    unsafe { GlobalEnv::new() }.init_thread(preempt_interval)
}

/// All scripts of a site, loaded and checked, for one thread that is yet to take them.
pub struct ScriptSet {
    pub(super) programs: Vec<LoadedScript>,
    pub(super) limits: ScriptLimits,
}

pub(super) struct LoadedScript {
    pub name: String,
    program: Unsettled,
}

/// A compiled program that has yet to reach the thread which is to run it.
struct Unsettled(Program);

// SAFETY: what is compiled is memory of the process, and apart from the following a `Program` is the `UnboundProgram`
// that it was made of, which is `Send`. `ThreadEnv` is a mark without content that says that a thread was prepared:
// `settle` asks for a mark of the thread that it is called on. The reference-counted data of a program is made by
// `Program::data` alone, which nothing in this crate calls.
unsafe impl Send for Unsettled {}

impl LoadedScript {
    /// `_thread` proves that the calling thread is prepared to run scripts.
    pub fn settle(self, _thread: ThreadEnv) -> (String, Program) {
        (self.name, self.program.0)
    }
}

impl ScriptSet {
    /// Loads ELF objects in the order in which they are to run, and compiles the entries of each. Costs some
    /// milliseconds an entry, most of them for the compiler's tables: not for a worker thread.
    pub fn load(objects: &[(String, Vec<u8>)], limits: &ScriptLimits) -> Result<Self, ScriptError> {
        let load_all =
            || objects.iter().map(|(name, image)| load_guarded(name, image)).collect::<Result<_, _>>();
        let programs = thread::scope(|scope| {
            thread::Builder::new()
                .name("zs-script-load".into())
                .stack_size(LOADER_STACK_BYTES)
                .spawn_scoped(scope, load_all)
                .map_err(|error| failure("(all)", format!("no thread to load it: {error}")))?
                .join()
                .expect("a panic in the machine is caught for each script")
        })?;
        Ok(Self { programs, limits: limits.clone() })
    }

    /// Hands the scripts to the calling thread.
    pub fn pin(self, runtime: &ThreadRuntime) -> Chain {
        Chain::new(self, runtime)
    }
}

fn failure(script: &str, reason: impl Into<String>) -> ScriptError {
    ScriptError { script: script.to_owned(), reason: reason.into() }
}

/// No object is known over which the machine panics; one that is found is refused like the others.
fn load_guarded(name: &str, image: &[u8]) -> Result<LoadedScript, ScriptError> {
    // Nothing of a load that ended in a panic is kept, and the panic hook has said where it was.
    catch_unwind(AssertUnwindSafe(|| load_one(name, image)))
        .unwrap_or_else(|_| Err(failure(name, "the machine can not read the object")))
}

fn load_one(name: &str, image: &[u8]) -> Result<LoadedScript, ScriptError> {
    let helpers = || HELPERS.iter().copied().flatten().map(|(name, _)| *name);
    let object = Object::check(image, |called| helpers().any(|name| name == called))
        .map_err(|refused: Refused| failure(name, refused.to_string()))?;
    let loader = ProgramLoader::new(&mut rand::thread_rng(), Arc::new(DummyProgramEventListener), HELPERS);
    let unbound = loader
        .load(&mut rand::thread_rng(), &object.image)
        .map_err(|error| failure(name, plain(&error.to_string())))?;
    let timer = Timer::new(thread_env(NEVER), NEVER);
    let program = unbound.pin_to_current_thread(timer.thread());
    for section in &object.sections {
        compile_entry(&program, section, &timer)
            .map_err(|reason| failure(name, format!("section {section}: {reason}")))?;
    }
    Ok(LoadedScript { name: name.to_owned(), program: Unsettled(program) })
}

/// Compiles the function at the beginning of a section without running it.
///
/// The machine compiles a section when it first runs it, and refuses input that is too large after that and before the
/// first instruction. So it is given too much input.
fn compile_entry(program: &Program, section: &str, timer: &Timer) -> Result<(), String> {
    const REFUSAL: &str = "calldata too large";
    let slices = Timer::timeslices();
    let run = pin!(program.run(&slices, &Unused, section, &mut [], &TOO_MUCH_INPUT, timer.proof()));
    match run.poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(Err(error)) => match plain(&error.to_string()) {
            reason if reason.contains(REFUSAL) => Ok(()),
            reason => Err(reason),
        },
        Poll::Ready(Ok(_)) | Poll::Pending => unreachable!("a script ran with more input than there can be"),
    }
}

/// For a run that ends before its first turn.
struct Unused;

impl Timeslicer for Unused {
    fn sleep(&self, _: Duration) -> impl Future<Output = ()> {
        std::future::pending()
    }

    fn yield_now(&self) -> impl Future<Output = ()> {
        std::future::pending()
    }
}

/// The machine's words without its own name, and plainer where it is the script's author who has to act.
pub(super) fn plain(error: &str) -> String {
    let error = error.trim_start_matches("ebpf runtime error: ");
    match error.split_once("helper returned error: ") {
        // Helpers fail in no other way; see `guest`.
        Some((_, helper)) => {
            format!("{helper} was given memory that is not the script's, or the same memory twice")
        }
        None => error.trim_start_matches("invalid argument: ").to_owned(),
    }
}
