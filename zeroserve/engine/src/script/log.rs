//! What scripts and the chain have to say, one line each on standard error, and the helper that says it.

use async_ebpf::helpers::Helper;
use async_ebpf::program::HelperScope;

use super::guest::{FAILED, bytes, with_exchange};

/// Longest line of a script; the rest is cut off.
const LINE_BYTES: usize = 1024;
/// Lines of one request; more are dropped, so that a script cannot fill a disk from a loop.
const LINES: u32 = 32;

pub(super) const HELPERS: &[(&str, Helper)] = &[("zs_log", log)];

/// How much one request has said.
#[derive(Debug, Default)]
pub struct Journal {
    lines: u32,
}

impl Journal {
    /// Writes a line of a script. False when the request has said enough.
    fn write(&mut self, script: &str, line: &[u8]) -> bool {
        self.lines = self.lines.saturating_add(1);
        if self.lines > LINES {
            return false;
        }
        let is_cut = line.len() > LINE_BYTES;
        let shown = line[..line.len().min(LINE_BYTES)].escape_ascii();
        tell(script, format_args!("{shown}{}", if is_cut { "..." } else { "" }));
        true
    }
}

/// Writes a line about a script.
pub(super) fn tell(script: &str, what: std::fmt::Arguments<'_>) {
    eprintln!("zeroserve: script {script}: {what}");
}

fn log(scope: &HelperScope, message: u64, len: u64, _: u64, _: u64, _: u64) -> Result<u64, ()> {
    with_exchange(scope, |exchange| {
        let line = bytes(scope, message, len)?;
        Ok(if exchange.journal.write(&exchange.script, line) { 0 } else { FAILED })
    })
}
