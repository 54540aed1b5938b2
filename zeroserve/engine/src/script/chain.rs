//! The scripts of a site, one after another, until one has answered.

use std::any::Any;
use std::future::poll_fn;
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;
use std::time::Instant;

use async_ebpf::program::{PreemptionEnabled, Program, ThreadEnv, TimesliceConfig, Timeslicer};

use super::log::tell;
use super::{Exchange, ScriptLimits, ScriptSet, ThreadRuntime};

/// The section that runs for each request. Objects without it are there to be called.
const REQUEST: &str = "zeroserve.request";

struct Script {
    name: Rc<str>,
    program: Program,
}

/// A site's scripts on the thread that runs them.
pub struct Chain {
    scripts: Vec<Script>,
    limits: ScriptLimits,
    timeslices: TimesliceConfig,
    thread: ThreadEnv,
}

impl Chain {
    pub(super) fn new(set: ScriptSet, runtime: &ThreadRuntime) -> Self {
        let scripts = set
            .programs
            .into_iter()
            .map(|(name, program)| Script {
                name: name.into(),
                program: program.pin_to_current_thread(runtime.thread),
            })
            .filter(|script| script.program.has_section(REQUEST))
            .collect();
        let timeslices = set.limits.timeslices();
        Self { scripts, limits: set.limits, timeslices, thread: runtime.thread }
    }

    pub fn is_empty(&self) -> bool {
        self.scripts.is_empty()
    }

    /// Runs the scripts in order on a request. The first that answers ends the chain; one that fails is logged, what
    /// it answered is forgotten, and the next one runs.
    ///
    /// Dropping the future ends the script that runs, wherever it is.
    pub async fn run(&self, exchange: &mut Exchange, timeslicer: &impl Timeslicer) {
        // Held across all of them: while it lives, the timer looks at this thread.
        let preemption = PreemptionEnabled::new(self.thread);
        for script in &self.scripts {
            exchange.script = script.name.clone();
            let failure = self.run_one(script, exchange, timeslicer, &preemption).await;
            if let Some(reason) = failure {
                exchange.response = None;
                tell(&script.name, format_args!("{reason}"));
            }
            if exchange.response.is_some() {
                return;
            }
        }
    }

    /// Runs one script; says what ended it when it was not itself.
    async fn run_one(
        &self,
        script: &Script,
        exchange: &mut Exchange,
        timeslicer: &impl Timeslicer,
        preemption: &PreemptionEnabled,
    ) -> Option<String> {
        let resources = &mut [exchange as &mut dyn Any];
        let mut run =
            pin!(script.program.run(&self.timeslices, timeslicer, REQUEST, resources, &[], preemption));
        // Most scripts are done at the first poll, and then nobody looks at the clock.
        let mut given_way_at: Option<Instant> = None;
        poll_fn(|cx| match run.as_mut().poll(cx) {
            Poll::Ready(Ok(_)) => Poll::Ready(None),
            Poll::Ready(Err(error)) => Poll::Ready(Some(format!("failed in {REQUEST}: {error}"))),
            Poll::Pending => {
                let since = *given_way_at.get_or_insert_with(Instant::now);
                if since.elapsed() < self.limits.run_time {
                    return Poll::Pending;
                }
                Poll::Ready(Some(format!("ended in {REQUEST}: it ran for over {:?}", self.limits.run_time)))
            }
        })
        .await
    }
}
