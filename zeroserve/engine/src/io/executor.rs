//! Runs the tasks of one worker thread. What makes a task ready (a completion, a timer, another task) lives
//! elsewhere and reaches it through an ordinary `Waker`.
//!
//! A task is known by its place in a slab, and a waker is that number and nothing more: cloning one is a copy, and
//! a waker that outlives its task wakes whoever has the place now. Such a needless poll is allowed, so every
//! future in this crate looks at its own state when polled and never infers anything from having been woken.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::task::{Context, Poll, RawWaker, RawWakerVTable, Waker};

use slab::Slab;

type LocalFuture = Pin<Box<dyn Future<Output = ()>>>;

struct Task {
    /// Taken out while it is being polled, so that the task may spawn and wake others.
    future: Option<LocalFuture>,
    is_queued: bool,
}

thread_local! {
    static TASKS: RefCell<Slab<Task>> = const { RefCell::new(Slab::new()) };
    static READY: RefCell<VecDeque<usize>> = const { RefCell::new(VecDeque::new()) };
}

/// Adds a task to this thread; it is first polled in the next round.
pub fn spawn(future: impl Future<Output = ()> + 'static) {
    let index =
        TASKS.with_borrow_mut(|tasks| tasks.insert(Task { future: Some(Box::pin(future)), is_queued: true }));
    READY.with_borrow_mut(|ready| ready.push_back(index));
}

/// Number of tasks that have not ended.
pub fn task_count() -> usize {
    TASKS.with_borrow(Slab::len)
}

/// Polls each task once that was ready when the round began. Tasks made ready meanwhile wait for the next round, so
/// that one which is always ready (a script in an endless loop) cannot keep the caller from the ring.
pub fn run_round() {
    let count = READY.with_borrow(VecDeque::len);
    for _ in 0..count {
        let Some(index) = READY.with_borrow_mut(VecDeque::pop_front) else { return };
        poll_task(index);
    }
}

/// Whether a task waits to be polled.
pub fn has_ready() -> bool {
    READY.with_borrow(|ready| !ready.is_empty())
}

/// Makes every task ready: for changes that concern all of them, such as the start of a drain.
pub fn wake_all() {
    let all: Vec<usize> = TASKS.with_borrow(|tasks| tasks.iter().map(|(index, _)| index).collect());
    all.into_iter().for_each(wake);
}

/// Drops every task: what their guards hold is released, whatever they were doing.
pub fn drop_all() {
    // Taken out first: a destructor may spawn or wake.
    let tasks = TASKS.with_borrow_mut(std::mem::take);
    READY.with_borrow_mut(VecDeque::clear);
    drop(tasks);
}

/// Gives the other tasks, and the ring, a turn.
pub async fn yield_now() {
    let mut has_yielded = false;
    std::future::poll_fn(|cx| {
        if std::mem::replace(&mut has_yielded, true) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

fn poll_task(index: usize) {
    let future = TASKS.with_borrow_mut(|tasks| {
        let task = tasks.get_mut(index)?;
        task.is_queued = false;
        task.future.take()
    });
    let Some(mut future) = future else { return };
    let waker = waker_of(index);
    // A task that panics has a bug, but it is one connection's: the others must not pay for it. The panic hook has
    // told of it already.
    let poll = catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(&mut Context::from_waker(&waker))));
    let is_done = poll.map_or(true, |poll| poll.is_ready());
    if is_done {
        TASKS.with_borrow_mut(|tasks| tasks.try_remove(index));
        return;
    }
    // Gone from the slab only when the future itself brought about `drop_all`; then it ends here as well.
    TASKS.with_borrow_mut(|tasks| {
        if let Some(task) = tasks.get_mut(index) {
            task.future = Some(future);
        }
    });
}

fn wake(index: usize) {
    let is_new = TASKS.with_borrow_mut(|tasks| match tasks.get_mut(index) {
        Some(task) => !std::mem::replace(&mut task.is_queued, true),
        None => false,
    });
    if is_new {
        READY.with_borrow_mut(|ready| ready.push_back(index));
    }
}

fn waker_of(index: usize) -> Waker {
    // SAFETY: the vtable below treats the data as a plain number; nothing is owned, so clone and drop do nothing.
    // A waker used on another thread wakes a place of that thread's own slab, which is a needless poll at worst.
    unsafe { Waker::from_raw(RawWaker::new(index as *const (), &VTABLE)) }
}

static VTABLE: RawWakerVTable = RawWakerVTable::new(
    |data| RawWaker::new(data, &VTABLE),
    |data| wake(data as usize),
    |data| wake(data as usize),
    |_| {},
);

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;
    use std::rc::Rc;

    #[test]
    fn a_task_that_always_yields_does_not_starve_the_others() {
        let turns = Rc::new(Cell::new(0));
        let seen = turns.clone();
        spawn(async move {
            loop {
                seen.set(seen.get() + 1);
                yield_now().await;
            }
        });
        let done = Rc::new(Cell::new(false));
        let mark = done.clone();
        spawn(async move {
            yield_now().await;
            mark.set(true);
        });
        for _ in 0..3 {
            run_round();
        }
        assert!(done.get());
        assert_eq!(turns.get(), 3);
        assert_eq!(task_count(), 1);
        drop_all();
        assert_eq!(task_count(), 0);
    }

    #[test]
    fn a_task_that_panics_ends_alone() {
        let done = Rc::new(Cell::new(false));
        let mark = done.clone();
        spawn(async { panic!("on purpose") });
        spawn(async move { mark.set(true) });
        run_round();
        assert!(done.get());
        assert_eq!(task_count(), 0);
    }

    #[test]
    fn dropping_all_tasks_runs_their_guards() {
        struct Guard(Rc<Cell<bool>>);
        impl Drop for Guard {
            fn drop(&mut self) {
                self.0.set(true);
            }
        }
        let dropped = Rc::new(Cell::new(false));
        let guard = Guard(dropped.clone());
        spawn(async move {
            let _guard = guard;
            std::future::pending::<()>().await;
        });
        run_round();
        assert!(!dropped.get());
        drop_all();
        assert!(dropped.get());
    }
}
