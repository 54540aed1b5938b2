//! The border between scripts and helpers. Whatever a script passes is a number of its own choosing; this file is
//! the only one that turns such numbers into memory.
//!
//! A helper that is handed a pointer outside the script's memory ends the script: `Err(())` in async-ebpf's terms.
//! What a script may reasonably run into (a path that does not normalize, a value that is not allowed) is the number -1
//! instead. What is not there (a header, a query parameter, a key) reads as the empty string.

use async_ebpf::program::HelperScope;

use super::Exchange;

/// What helpers return for anything that did not work out.
pub const FAILED: u64 = u64::MAX;

/// The script's memory from `pointer` on, to read.
pub fn bytes<'a>(scope: &'a HelperScope<'_, '_>, pointer: u64, len: u64) -> Result<&'a [u8], ()> {
    scope.user_memory(pointer, len)
}

/// The name of a field, a parameter or a key, as a script wrote it: without the whitespace around it.
pub fn name<'a>(scope: &'a HelperScope<'_, '_>, pointer: u64, len: u64) -> Result<&'a [u8], ()> {
    Ok(bytes(scope, pointer, len)?.trim_ascii())
}

/// Gives the script a string by the rule of all output helpers: at most `cap` bytes with the NUL, the full length back.
pub fn give_text(scope: &HelperScope<'_, '_>, text: &[u8], pointer: u64, cap: u64) -> Result<u64, ()> {
    if cap > 0 {
        // A script may name a capacity beyond its memory; only what is written has to be inside it.
        let len = text.len().min(usize::try_from(cap - 1).unwrap_or(usize::MAX));
        let mut out = scope.user_memory_mut(pointer, len as u64 + 1)?;
        out[..len].copy_from_slice(&text[..len]);
        out[len] = 0;
    }
    Ok(text.len() as u64)
}

/// Runs `body` on the request that the script is working on.
pub fn with_exchange<R>(
    scope: &HelperScope<'_, '_>,
    body: impl FnOnce(&mut Exchange) -> Result<R, ()>,
) -> Result<R, ()> {
    scope.with_resource_mut::<Exchange, _>(|exchange| body(exchange?))
}
