//! The helper that tells the time.

use std::time::{SystemTime, UNIX_EPOCH};

use async_ebpf::helpers::Helper;

pub(super) const HELPERS: &[(&str, Helper)] = &[("zs_now_ms", |_, _, _, _, _, _| Ok(unix_ms()))];

/// Milliseconds since 1970, without leap seconds; 0 on a machine whose clock is set before that.
fn unix_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}
