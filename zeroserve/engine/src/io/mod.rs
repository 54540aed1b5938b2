//! The ring, its buffers and timers, and the executor that runs a worker's tasks. No protocol in here.
