//! What the engine has to say, a line at a time on standard error. Never fails: serving goes on when nobody reads it.

use std::fmt::Arguments;
use std::io::Write;

/// Writes one line with the program's name before it, in one system call, so that lines of several threads stay whole.
pub fn write(what: Arguments<'_>) {
    let line = format!("zeroserve: {what}\n");
    let _ = std::io::stderr().write_all(line.as_bytes());
}
