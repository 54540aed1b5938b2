//! Metadata: one map of strings for each request, which its scripts share; and the helpers on it.

use async_ebpf::helpers::Helper;
use async_ebpf::program::HelperScope;

use super::guest::{FAILED, bytes, give_text, name, with_exchange};
use crate::http::headers;
use crate::http::response::Response;
use crate::http::syntax::trim_ows;

/// Keys under this become response headers.
const RESPONSE_HEADER: &[u8] = b"zs.response.header.";
const MAX_KEYS: usize = 128;
const MAX_KEY_BYTES: usize = 256;
/// Keys and values together, so that a script cannot grow the server.
const MAX_BYTES: usize = 64 * 1024;

pub(super) const HELPERS: &[(&str, Helper)] = &[("zs_meta_get", get), ("zs_meta_set", set)];

/// Memory that is kept from request to request.
const KEPT_BYTES: usize = 4 * 1024;

/// The map of one request: few keys, so a list in one piece of memory that is used again is faster than a table.
#[derive(Default)]
pub struct Metadata {
    /// Keys and values. What was replaced stays until there is too much of it.
    arena: Vec<u8>,
    /// In the order in which they were set last.
    entries: Vec<Entry>,
    /// Of the keys and values that count.
    bytes: usize,
}

#[derive(Clone, Copy)]
struct Entry {
    start: usize,
    key_len: usize,
    value_len: usize,
    is_header: bool,
}

impl Entry {
    fn key(self, arena: &[u8]) -> &[u8] {
        &arena[self.start..][..self.key_len]
    }

    fn value(self, arena: &[u8]) -> &[u8] {
        &arena[self.start + self.key_len..][..self.value_len]
    }

    fn len(self) -> usize {
        self.key_len + self.value_len
    }
}

/// The value is refused: a limit, or a header that no response may have.
#[derive(Debug, PartialEq, Eq)]
pub struct Refused;

impl Metadata {
    pub fn clear(&mut self) {
        self.entries.clear();
        self.arena.clear();
        self.arena.shrink_to(KEPT_BYTES);
        self.bytes = 0;
    }

    pub fn get(&self, key: &[u8]) -> Option<&[u8]> {
        let entry = self.entries.iter().find(|entry| entry.key(&self.arena) == key)?;
        Some(entry.value(&self.arena))
    }

    /// Sets a key, replacing its value.
    pub fn set(&mut self, key: &[u8], value: &[u8]) -> Result<(), Refused> {
        let name = key.strip_prefix(RESPONSE_HEADER);
        if let Some(name) = name {
            headers::check(name, trim_ows(value)).map_err(|_| Refused)?;
        }
        let place = self.entries.iter().position(|entry| entry.key(&self.arena) == key);
        let replaced = place.map_or(0, |place| self.entries[place].len());
        let bytes = self.bytes - replaced + key.len() + value.len();
        let is_full = place.is_none() && self.entries.len() == MAX_KEYS;
        if key.is_empty() || key.len() > MAX_KEY_BYTES || bytes > MAX_BYTES || is_full {
            return Err(Refused);
        }
        if let Some(place) = place {
            self.entries.remove(place);
        }
        if self.arena.len() + key.len() + value.len() > 2 * MAX_BYTES {
            self.compact();
        }
        let start = self.arena.len();
        self.arena.extend_from_slice(key);
        self.arena.extend_from_slice(value);
        let is_header = name.is_some();
        self.entries.push(Entry { start, key_len: key.len(), value_len: value.len(), is_header });
        self.bytes = bytes;
        Ok(())
    }

    /// Puts the header metadata on a response, over what it has. Of keys that name the same header the last counts.
    pub fn apply_to(&self, response: &mut Response) {
        for entry in self.entries.iter().filter(|entry| entry.is_header) {
            let name = &entry.key(&self.arena)[RESPONSE_HEADER.len()..];
            // Checked when set; only a response whose own fields leave no room refuses, and it goes without then.
            let _ = response.set_header(name, entry.value(&self.arena));
        }
    }

    fn compact(&mut self) {
        let old = std::mem::replace(&mut self.arena, Vec::with_capacity(2 * MAX_BYTES));
        for entry in &mut self.entries {
            let start = self.arena.len();
            self.arena.extend_from_slice(&old[entry.start..][..entry.len()]);
            entry.start = start;
        }
    }
}

fn get(scope: &HelperScope, key: u64, key_len: u64, out: u64, cap: u64, _: u64) -> Result<u64, ()> {
    with_exchange(scope, |exchange| {
        let value = exchange.metadata.get(name(scope, key, key_len)?);
        give_text(scope, value.unwrap_or_default(), out, cap)
    })
}

fn set(scope: &HelperScope, key: u64, key_len: u64, value: u64, value_len: u64, _: u64) -> Result<u64, ()> {
    with_exchange(scope, |exchange| {
        let (key, value) = (name(scope, key, key_len)?, bytes(scope, value, value_len)?);
        Ok(exchange.metadata.set(key, value).map_or(FAILED, |()| 0))
    })
}
