//! Time for a worker's tasks: sleeping, and deadlines that move with every request without costing a timer each.

use std::cell::{Cell, RefCell};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::future::poll_fn;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

/// How late a deadline may be noticed. Coarse on purpose: a connection then has one timer for its whole life.
pub const DEADLINE_TICK: Duration = Duration::from_secs(1);

struct Entry {
    at: Instant,
    waker: Waker,
}

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        self.at == other.at
    }
}
impl Eq for Entry {}
impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Entry {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.at.cmp(&other.at)
    }
}

thread_local! {
    static HEAP: RefCell<BinaryHeap<Reverse<Entry>>> = const { RefCell::new(BinaryHeap::new()) };
    static NOW: Cell<Option<Instant>> = const { Cell::new(None) };
}

/// The time at which this round of the worker's loop began; reading it costs no system call.
pub fn now() -> Instant {
    NOW.get().unwrap_or_else(Instant::now)
}

/// Reads the clock for a new round and wakes the tasks whose time has come.
pub fn begin_round() {
    let now = Instant::now();
    NOW.set(Some(now));
    loop {
        let due = HEAP.with_borrow_mut(|heap| match heap.peek() {
            Some(Reverse(entry)) if entry.at <= now => heap.pop(),
            _ => None,
        });
        match due {
            Some(Reverse(entry)) => entry.waker.wake(),
            None => return,
        }
    }
}

/// How long the worker may sleep before a timer is due; `None` when there is none.
pub fn until_next() -> Option<Duration> {
    HEAP.with_borrow(|heap| {
        heap.peek().map(|Reverse(entry)| entry.at.saturating_duration_since(Instant::now()))
    })
}

fn wake_at(at: Instant, waker: &Waker) {
    HEAP.with_borrow_mut(|heap| heap.push(Reverse(Entry { at, waker: waker.clone() })));
}

/// Waits for `duration`, counted from now on the monotonic clock.
pub async fn sleep(duration: Duration) {
    let at = Instant::now() + duration;
    let mut is_registered = false;
    poll_fn(|cx| {
        if Instant::now() >= at {
            return Poll::Ready(());
        }
        if !std::mem::replace(&mut is_registered, true) {
            wake_at(at, cx.waker());
        }
        Poll::Pending
    })
    .await;
}

/// A point in time by which something must have happened. Moving it is a store; it is looked at once a tick.
pub struct Deadline {
    at: Cell<Instant>,
    /// When the next look is due, if a timer stands.
    next_look: Cell<Option<Instant>>,
}

impl Deadline {
    pub fn after(duration: Duration) -> Self {
        Self { at: Cell::new(now() + duration), next_look: Cell::new(None) }
    }

    pub fn extend(&self, duration: Duration) {
        self.at.set(now() + duration);
    }

    /// True once the deadline has passed; otherwise sees to it that the task is woken for another look.
    pub fn poll_expired(&self, cx: &mut Context<'_>) -> bool {
        let now = now();
        if now >= self.at.get() {
            return true;
        }
        if self.next_look.get().is_none_or(|look| look <= now) {
            let look = self.at.get().min(now + DEADLINE_TICK);
            self.next_look.set(Some(look));
            wake_at(look, cx.waker());
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::io::executor;
    use std::rc::Rc;

    fn run_until(done: &Cell<bool>) {
        let limit = Instant::now() + Duration::from_secs(10);
        while !done.get() && Instant::now() < limit {
            begin_round();
            executor::run_round();
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn sleeping_takes_at_least_the_time_asked_for() {
        let done = Rc::new(Cell::new(false));
        let mark = done.clone();
        let start = Instant::now();
        executor::spawn(async move {
            sleep(Duration::from_millis(30)).await;
            mark.set(true);
        });
        run_until(&done);
        assert!(done.get());
        assert!(start.elapsed() >= Duration::from_millis(30));
    }

    #[test]
    fn a_deadline_that_is_extended_does_not_expire_and_keeps_one_timer() {
        let deadline = Deadline::after(Duration::from_secs(60));
        let mut cx = Context::from_waker(Waker::noop());
        for _ in 0..1000 {
            deadline.extend(Duration::from_secs(60));
            assert!(!deadline.poll_expired(&mut cx));
        }
        assert_eq!(HEAP.with_borrow(BinaryHeap::len), 1);
        assert!(Deadline::after(Duration::ZERO).poll_expired(&mut cx));
        HEAP.with_borrow_mut(BinaryHeap::clear);
    }
}
