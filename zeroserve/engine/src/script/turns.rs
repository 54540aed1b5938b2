//! Taking turns: how a script that does not end gives way to the thread's other requests, and when it is ended.
//! The machine interrupts a script at each tick of its timer; what happens then is decided here.

use std::cell::Cell;
use std::future::{Future, pending, poll_fn};
use std::mem::ManuallyDrop;
use std::pin::Pin;
use std::task::Poll;
use std::time::{Duration, Instant};

use async_ebpf::program::{PreemptionEnabled, ThreadEnv, TimesliceConfig, Timeslicer};

use super::ScriptLimits;

/// The timer of one thread, and the scripts of that thread that have become a burden.
///
/// The timer looks at the thread only while a script has the turn: between requests, and while a script waits for its
/// next turn, nothing is signalled. Arming it is two uncontended locks; a running timer notices by itself that no
/// script has the turn, and sleeps until there is one.
pub(super) struct Timer {
    thread: ThreadEnv,
    /// What the machine wants to see as proof that the timer is armed. It is armed anew for each turn instead.
    proof: ManuallyDrop<PreemptionEnabled>,
    interval: Duration,
    burdens: Cell<u32>,
}

impl Timer {
    pub fn new(thread: ThreadEnv, interval: Duration) -> Self {
        const { assert!(size_of::<PreemptionEnabled>() == 0) };
        let mut proof = ManuallyDrop::new(PreemptionEnabled::new(thread));
        // SAFETY: the value is a unit whose destructor only counts down what its constructor counted up. It is never
        // dropped again, and a reference to it is looked at by nobody (`Program::run` ignores that argument).
        unsafe { ManuallyDrop::drop(&mut proof) };
        Self { thread, proof, interval, burdens: Cell::new(0) }
    }

    pub fn thread(&self) -> ThreadEnv {
        self.thread
    }

    #[cfg(test)]
    pub fn burdens(&self) -> u32 {
        self.burdens.get()
    }

    pub fn proof(&self) -> &PreemptionEnabled {
        &self.proof
    }

    /// A turn for any script ends at the next tick, or the one after when the timer slept before.
    pub fn timeslices() -> TimesliceConfig {
        TimesliceConfig {
            max_run_time_before_yield: Duration::ZERO,
            // `Turns` makes scripts rest, as it knows how many there are to rest.
            max_run_time_before_throttle: Duration::MAX,
            throttle_duration: Duration::ZERO,
        }
    }

    /// Runs a script's future in turns; None when it was ended for running too long. The caller drops it then.
    pub fn run<T>(
        &self,
        turns: &Turns<'_, impl Timeslicer>,
        mut script: Pin<&mut impl Future<Output = T>>,
    ) -> impl Future<Output = Option<T>> {
        poll_fn(move |context| {
            let _armed = PreemptionEnabled::new(self.thread);
            match script.as_mut().poll(context) {
                Poll::Ready(outcome) => Poll::Ready(Some(outcome)),
                Poll::Pending if turns.is_over.get() => Poll::Ready(None),
                Poll::Pending => Poll::Pending,
            }
        })
    }
}

/// The turns of one script on one request.
///
/// A script that is done before the timer ticks never looks at a clock. One that goes on has run for at least one
/// interval, which is what its first turn counts as.
pub(super) struct Turns<'a, T> {
    worker: &'a T,
    timer: &'a Timer,
    limits: &'a ScriptLimits,
    began: Cell<Option<Instant>>,
    interrupted: Cell<Option<Instant>>,
    run_time: Cell<Duration>,
    is_burden: Cell<bool>,
    is_over: Cell<bool>,
}

impl<'a, T: Timeslicer> Turns<'a, T> {
    pub fn new(worker: &'a T, timer: &'a Timer, limits: &'a ScriptLimits) -> Self {
        Self {
            worker,
            timer,
            limits,
            began: Cell::new(None),
            interrupted: Cell::new(None),
            run_time: Cell::new(Duration::ZERO),
            is_burden: Cell::new(false),
            is_over: Cell::new(false),
        }
    }

    /// Between two turns.
    async fn wait(&self) {
        let now = Instant::now();
        let turn = self.began.get().map_or(self.timer.interval, |began| now - began);
        let run_time = self.run_time.get() + turn;
        self.run_time.set(run_time);
        let first = self.interrupted.get().unwrap_or(now);
        self.interrupted.set(Some(first));
        let left = self.limits.total_time.saturating_sub(now - first);
        if run_time >= self.limits.run_time || left.is_zero() {
            self.is_over.set(true);
            return pending().await;
        }
        if run_time < self.limits.free_run_time {
            self.worker.yield_now().await;
        } else {
            self.become_burden();
            // All burdens of the thread share one part of it, however many they are.
            let rest = turn * self.timer.burdens.get() * self.limits.burden_part.saturating_sub(1);
            self.worker.sleep(rest.min(left)).await;
        }
        self.began.set(Some(Instant::now()));
    }

    /// How long the script ran, and how long others did since it was first interrupted, in words.
    pub fn tell(&self) -> String {
        let since = self.interrupted.get().map_or(Duration::ZERO, |first| first.elapsed());
        format!("it ran for {:.1?} of {:.1?}", self.run_time.get(), since)
    }

    fn become_burden(&self) {
        if !self.is_burden.replace(true) {
            self.timer.burdens.set(self.timer.burdens.get() + 1);
        }
    }
}

impl<T> Drop for Turns<'_, T> {
    fn drop(&mut self) {
        if self.is_burden.get() {
            self.timer.burdens.set(self.timer.burdens.get() - 1);
        }
    }
}

impl<T: Timeslicer> Timeslicer for Turns<'_, T> {
    fn sleep(&self, _: Duration) -> impl Future<Output = ()> {
        self.wait()
    }

    fn yield_now(&self) -> impl Future<Output = ()> {
        self.wait()
    }
}
