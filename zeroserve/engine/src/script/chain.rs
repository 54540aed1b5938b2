//! The scripts of a site, one after another, until one has answered.

use std::any::Any;
use std::cell::Cell;
use std::pin::pin;
use std::rc::Rc;
use std::time::{Duration, Instant};

use async_ebpf::program::{Program, TimesliceConfig, Timeslicer};

use super::machine::plain;
use super::turns::{Timer, Turns};
use super::{Exchange, ScriptLimits, ScriptSet, ThreadRuntime};

/// The section that runs for each request. Objects without it are there to be called.
const REQUEST: &str = "zeroserve.request";
/// A script that fails more often is not told of every time.
pub(super) const REPORTS_PER_SECOND: u32 = 10;

struct Script {
    name: Rc<str>,
    program: Program,
    failures: Failures,
}

/// A site's scripts on the thread that runs them.
pub struct Chain {
    scripts: Vec<Script>,
    limits: ScriptLimits,
    slices: TimesliceConfig,
    timer: Rc<Timer>,
}

impl Chain {
    pub(super) fn new(set: ScriptSet, runtime: &ThreadRuntime) -> Self {
        let thread = runtime.timer.thread();
        let scripts = set
            .programs
            .into_iter()
            .map(|script| script.settle(thread))
            .filter(|(_, program)| program.has_section(REQUEST))
            .map(|(name, program)| Script { name: name.into(), program, failures: Failures::default() })
            .collect();
        Self { scripts, limits: set.limits, slices: Timer::timeslices(), timer: runtime.timer.clone() }
    }

    pub fn is_empty(&self) -> bool {
        self.scripts.is_empty()
    }

    /// Runs the scripts in order on a request. The first that answers ends the chain; one that fails is logged, what
    /// it answered is forgotten, and the next one runs.
    ///
    /// Dropping the future ends the script that runs, wherever it is.
    pub async fn run(&self, exchange: &mut Exchange, timeslicer: &impl Timeslicer) {
        for script in &self.scripts {
            exchange.script.clone_from(&script.name);
            if let Err(reason) = self.run_one(script, exchange, timeslicer).await {
                exchange.response = None;
                if let Some(unreported) = script.failures.count() {
                    exchange.journal.tell(&script.name, format_args!("{reason}{unreported}"));
                }
            }
            if exchange.response.is_some() {
                return;
            }
        }
    }

    /// Runs one script; the error says what ended it.
    async fn run_one(
        &self,
        script: &Script,
        exchange: &mut Exchange,
        timeslicer: &impl Timeslicer,
    ) -> Result<(), String> {
        let turns = Turns::new(timeslicer, &self.timer, &self.limits);
        let resources = &mut [exchange as &mut dyn Any];
        let proof = self.timer.proof();
        let run = pin!(script.program.run(&self.slices, &turns, REQUEST, resources, &[], proof));
        match self.timer.run(&turns, run).await {
            Some(Ok(_)) => Ok(()),
            Some(Err(error)) => Err(format!("failed in {REQUEST}: {}", plain(&error.to_string()))),
            None => Err(format!("ended in {REQUEST}: {}", turns.tell())),
        }
    }
}

#[cfg(test)]
impl Chain {
    /// Scripts of the thread that have run for so long that they have to rest.
    pub(super) fn timer_burdens(&self) -> u32 {
        self.timer.burdens()
    }
}

/// How often a script failed of late, so that one that fails for every request does not fill the log.
#[derive(Default)]
struct Failures {
    second: Cell<Option<Instant>>,
    reported: Cell<u32>,
    unreported: Cell<u64>,
}

impl Failures {
    /// Counts a failure; what to add to the report of it, or None when there have been enough of them.
    fn count(&self) -> Option<String> {
        let now = Instant::now();
        if self.second.get().is_none_or(|began| now - began >= Duration::from_secs(1)) {
            self.second.set(Some(now));
            self.reported.set(0);
        }
        if self.reported.get() == REPORTS_PER_SECOND {
            self.unreported.set(self.unreported.get() + 1);
            return None;
        }
        self.reported.set(self.reported.get() + 1);
        Some(match self.unreported.take() {
            0 => String::new(),
            count => format!(" ({count} failures before it were not reported)"),
        })
    }
}
