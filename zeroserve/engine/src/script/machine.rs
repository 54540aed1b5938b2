//! The machine that runs scripts: uBPF with its pointer cage, and the timer that takes the processor from those that
//! do not give it back. Which scripts run for a request is the chain's business.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use async_ebpf::program::{
    DummyProgramEventListener, GlobalEnv, ProgramLoader, ThreadEnv, TimesliceConfig, UnboundProgram,
};

use super::{Chain, log, memory, metadata, request, respond};

/// How long a script may run. Times are of the wall clock while the script is on turn or waits for its turn.
#[derive(Debug, Clone)]
pub struct ScriptLimits {
    /// A script that has run for so long, all its turns together, is ended.
    pub run_time: Duration,
    /// A turn, before other requests have theirs.
    pub turn: Duration,
    /// Turns together after which a script is made to rest, so that one that loops gets only a part of the core.
    pub run_before_rest: Duration,
    pub rest: Duration,
}

impl Default for ScriptLimits {
    fn default() -> Self {
        Self {
            run_time: Duration::from_secs(10),
            turn: Duration::from_millis(1),
            run_before_rest: Duration::from_millis(20),
            rest: Duration::from_millis(80),
        }
    }
}

impl ScriptLimits {
    pub(super) fn timeslices(&self) -> TimesliceConfig {
        TimesliceConfig {
            max_run_time_before_yield: self.turn,
            max_run_time_before_throttle: self.run_before_rest,
            throttle_duration: self.rest,
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
/// The process's handlers of SIGUSR1 (the preemption signal) and SIGSEGV (a script's wild pointer) belong to it.
pub struct ThreadRuntime {
    pub(super) thread: ThreadEnv,
}

impl ThreadRuntime {
    /// `preempt_interval` is how often a script that runs is asked to stop.
    pub fn new(preempt_interval: Duration) -> Self {
        // SAFETY: nothing else in this process handles SIGUSR1 or SIGSEGV.
        let global = unsafe { GlobalEnv::new() };
        Self { thread: global.init_thread(preempt_interval) }
    }
}

/// All scripts of a site, loaded and checked, for one thread that is yet to take them.
pub struct ScriptSet {
    pub(super) programs: Vec<(String, UnboundProgram)>,
    pub(super) limits: ScriptLimits,
}

impl ScriptSet {
    /// Loads ELF objects in the order in which they are to run. Costs milliseconds: not for a worker thread.
    pub fn load(objects: &[(String, Vec<u8>)], limits: &ScriptLimits) -> Result<Self, ScriptError> {
        let loader = ProgramLoader::new(
            &mut rand::thread_rng(),
            Arc::new(DummyProgramEventListener),
            &[log::HELPERS, memory::HELPERS, metadata::HELPERS, request::HELPERS, respond::HELPERS],
        );
        let programs = objects
            .iter()
            .map(|(name, image)| Ok((name.clone(), load_one(&loader, name, image)?)))
            .collect::<Result<_, _>>()?;
        Ok(Self { programs, limits: limits.clone() })
    }

    /// Binds the scripts to the calling thread.
    pub fn pin(self, runtime: &ThreadRuntime) -> Chain {
        Chain::new(self, runtime)
    }
}

fn load_one(loader: &ProgramLoader, name: &str, image: &[u8]) -> Result<UnboundProgram, ScriptError> {
    let refuse = |reason: String| ScriptError { script: name.to_owned(), reason };
    // The linker trusts offsets that a damaged object may get wrong, and panics on some; nothing of it is kept then.
    let outcome = catch_unwind(AssertUnwindSafe(|| loader.load(&mut rand::thread_rng(), image)))
        .map_err(|_| refuse("the object is damaged".into()))?;
    outcome.map_err(|error| refuse(explain(&error.to_string())))
}

/// The linker's words, or plainer ones where it is the script's author who has to act.
fn explain(error: &str) -> String {
    let unknown = error.split_once("unknown symbol ").and_then(|(_, rest)| rest.split_once(" in section "));
    match unknown {
        Some((symbol, section)) => {
            let section = section.split(' ').next().unwrap_or(section);
            format!("section {section} calls {symbol}, which this server does not have")
        }
        None => error.trim_start_matches("ebpf runtime error: ").to_owned(),
    }
}
