//! The ring, its buffers and timers, and the executor that runs a worker's tasks. No protocol in here.

pub mod buffers;
pub mod executor;
pub mod ring;
pub mod socket;
pub mod timer;

pub use buffers::Buffer;
pub use executor::{spawn, yield_now};
pub use ring::Ring;
pub use timer::{Deadline, sleep};
