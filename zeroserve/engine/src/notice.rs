//! What the server has to say, a line at a time on standard error. Never fails and never waits: serving goes on when
//! nobody reads it.

use std::fmt::Arguments;
use std::io::{Stderr, Write, stderr};
use std::os::fd::AsRawFd;
use std::sync::Mutex;

/// Longest piece that a pipe takes at once or not at all (PIPE_BUF of Linux); longer lines are cut.
const LINE_BYTES: usize = 4096;

/// Lines that had to be left out since the last one that was written.
static LOST: Mutex<u64> = Mutex::new(0);

/// Writes one line with the program's name before it, in one system call, so that lines of several threads stay whole.
/// Where it would have to wait for a reader it is left out and counted, and the next line that is written says so.
pub fn write(what: Arguments<'_>) {
    // A number is whole between any two operations, so a panic elsewhere has not broken it.
    let mut lost = LOST.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let mut out = stderr();
    if would_wait(&out) {
        *lost += 1;
        return;
    }
    let mut text = match std::mem::take(&mut *lost) {
        0 => String::new(),
        count => format!("zeroserve: {count} line(s) were lost: nobody reads them\n"),
    };
    text.push_str(&format!("zeroserve: {what}"));
    cut(&mut text, LINE_BYTES - 1);
    text.push('\n');
    let _ = out.write_all(text.as_bytes());
}

/// Whether nothing can be written now: a full pipe, a stopped terminal. Asked instead of making the descriptor
/// non-blocking, which would do the same to everyone who has inherited it.
fn would_wait(out: &Stderr) -> bool {
    let mut asked = libc::pollfd { fd: out.as_raw_fd(), events: libc::POLLOUT, revents: 0 };
    // SAFETY: one entry, which outlives the call; without a timeout it returns at once.
    unsafe { libc::poll(&mut asked, 1, 0) == 0 }
}

fn cut(text: &mut String, most: usize) {
    const MARK: &str = "...";
    if text.len() > most {
        let end = (0..=most - MARK.len()).rev().find(|&end| text.is_char_boundary(end));
        text.truncate(end.unwrap_or_default());
        text.push_str(MARK);
    }
}

#[cfg(test)]
mod tests {
    use super::cut;

    #[test]
    fn long_text_is_cut_between_letters_and_marked() {
        for (text, expected) in [("abcdef", "abcdef"), ("abcdefg", "abc..."), ("ab\u{2603}efg", "ab...")] {
            let mut text = text.to_owned();
            cut(&mut text, 6);
            assert_eq!(text, expected);
        }
    }
}
