//! Helpers that move the script's memory about, checked once instead of byte by byte.

use std::cmp::Ordering;

use async_ebpf::helpers::Helper;
use async_ebpf::program::HelperScope;

use super::guest::bytes;

pub(super) const HELPERS: &[(&str, Helper)] =
    &[("zs_memcpy", copy), ("zs_memset", set), ("zs_memcmp", compare)];

/// Ranges that overlap without being the same end the script, as they would be undefined in C.
fn copy(scope: &HelperScope, to: u64, from: u64, len: u64, _: u64, _: u64) -> Result<u64, ()> {
    if to == from {
        // What compilers make of an assignment to itself.
        scope.user_memory_mut(to, len)?;
        return Ok(to);
    }
    let from = bytes(scope, from, len)?;
    scope.user_memory_mut(to, len)?.copy_from_slice(from);
    Ok(to)
}

fn set(scope: &HelperScope, to: u64, byte: u64, len: u64, _: u64, _: u64) -> Result<u64, ()> {
    // As in C, only the lowest byte counts.
    scope.user_memory_mut(to, len)?.fill(byte as u8);
    Ok(to)
}

fn compare(scope: &HelperScope, one: u64, other: u64, len: u64, _: u64, _: u64) -> Result<u64, ()> {
    Ok(match bytes(scope, one, len)?.cmp(bytes(scope, other, len)?) {
        Ordering::Less => u64::MAX,
        Ordering::Equal => 0,
        Ordering::Greater => 1,
    })
}
