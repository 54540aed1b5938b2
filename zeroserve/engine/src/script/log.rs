//! What scripts and the chain have to say, one line each, and the helper that says it.

use std::fmt::{self, Write};

use async_ebpf::helpers::Helper;
use async_ebpf::program::HelperScope;

use crate::notice;

use super::guest::{FAILED, bytes, with_exchange};

/// Longest line of a script; the rest is cut off.
pub const LINE_BYTES: usize = 1024;
/// Lines of scripts for one request; more are dropped, so that a script cannot fill a disk from a loop.
pub const LINES: u32 = 32;

pub(super) const HELPERS: &[(&str, Helper)] = &[("zs_log", log)];

/// Where lines go.
#[derive(Debug, Default)]
enum Sink {
    #[default]
    StandardError,
    Memory(Vec<String>),
}

/// What was said for one request.
#[derive(Debug, Default)]
pub struct Journal {
    sink: Sink,
    lines: u32,
}

impl Journal {
    /// A journal whose lines are kept, for those who want to look at them.
    pub fn in_memory() -> Self {
        Self { sink: Sink::Memory(Vec::new()), lines: 0 }
    }

    /// The lines kept so far; of those written to standard error there are none.
    pub fn take_lines(&mut self) -> Vec<String> {
        match &mut self.sink {
            Sink::StandardError => Vec::new(),
            Sink::Memory(lines) => std::mem::take(lines),
        }
    }

    /// The next request may say as much again.
    pub(super) fn begin(&mut self) {
        self.lines = 0;
    }

    /// Writes a line of a script. False when the request has said enough.
    fn write(&mut self, script: &str, line: &[u8]) -> bool {
        self.lines = self.lines.saturating_add(1);
        if self.lines > LINES {
            return false;
        }
        let is_cut = line.len() > LINE_BYTES;
        let shown = Printable(&line[..line.len().min(LINE_BYTES)]);
        self.tell(script, format_args!("{shown}{}", if is_cut { "..." } else { "" }));
        true
    }

    /// Writes a line about a script.
    pub(super) fn tell(&mut self, script: &str, what: fmt::Arguments<'_>) {
        match &mut self.sink {
            Sink::StandardError => notice::write(format_args!("script {script}: {what}")),
            Sink::Memory(lines) => lines.push(format!("{script}: {what}")),
        }
    }
}

/// Text from a script, with whatever could move a terminal's cursor or feign a line of its own escaped.
struct Printable<'a>(&'a [u8]);

impl fmt::Display for Printable<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for chunk in self.0.utf8_chunks() {
            for letter in chunk.valid().chars() {
                if letter.is_control() {
                    write!(out, "{}", letter.escape_default())?;
                } else {
                    out.write_char(letter)?;
                }
            }
            write!(out, "{}", chunk.invalid().escape_ascii())?;
        }
        Ok(())
    }
}

fn log(scope: &HelperScope, message: u64, len: u64, _: u64, _: u64, _: u64) -> Result<u64, ()> {
    with_exchange(scope, |exchange| {
        let message = bytes(scope, message, len)?;
        let line = message.strip_suffix(b"\n").unwrap_or(message);
        Ok(if exchange.journal.write(&exchange.script, line) { 0 } else { FAILED })
    })
}
