//! Metadata: one map of strings for each request, which its scripts share; and the helpers on it.

use async_ebpf::helpers::Helper;
use async_ebpf::program::HelperScope;

use super::guest::{FAILED, bytes, give_text, name, with_exchange};
use crate::http::headers::HeaderList;
use crate::http::response::Response;

/// Keys under this become response headers.
const RESPONSE_HEADER: &[u8] = b"zs.response.header.";
const MAX_KEYS: usize = 128;
const MAX_KEY_BYTES: usize = 256;
/// Keys and values together, so that a script cannot grow the server.
const MAX_BYTES: usize = 64 * 1024;

pub(super) const HELPERS: &[(&str, Helper)] = &[("zs_meta_get", get), ("zs_meta_set", set)];

/// The map of one request. Few keys, so a list that keeps its memory is faster than a table.
#[derive(Default)]
pub struct Metadata {
    entries: Vec<(Vec<u8>, Vec<u8>)>,
    bytes: usize,
    /// The response headers among them, checked when they were set.
    headers: HeaderList,
}

/// The value is refused: a limit, or a header that no response may have.
#[derive(Debug, PartialEq, Eq)]
pub struct Refused;

impl Metadata {
    pub fn clear(&mut self) {
        if !self.entries.is_empty() {
            self.entries.clear();
            self.bytes = 0;
            self.headers = HeaderList::new();
        }
    }

    pub fn get(&self, key: &[u8]) -> Option<&[u8]> {
        self.entries.iter().find(|(other, _)| other == key).map(|(_, value)| value.as_slice())
    }

    /// Sets a key, replacing its value.
    pub fn set(&mut self, key: &[u8], value: &[u8]) -> Result<(), Refused> {
        let place = self.entries.iter().position(|(other, _)| other == key);
        let replaced = place.map_or(0, |place| key.len() + self.entries[place].1.len());
        let bytes = self.bytes - replaced + key.len() + value.len();
        let is_full = place.is_none() && self.entries.len() == MAX_KEYS;
        if key.is_empty() || key.len() > MAX_KEY_BYTES || bytes > MAX_BYTES || is_full {
            return Err(Refused);
        }
        if let Some(name) = key.strip_prefix(RESPONSE_HEADER) {
            self.headers.set(name, value).map_err(|_| Refused)?;
        }
        match place {
            Some(place) => {
                let old = &mut self.entries[place].1;
                old.clear();
                old.extend_from_slice(value);
            }
            None => self.entries.push((key.to_vec(), value.to_vec())),
        }
        self.bytes = bytes;
        Ok(())
    }

    /// Puts the header metadata on a response, over what it has.
    pub fn apply_to(&self, response: &mut Response) {
        for (name, value) in self.headers.iter() {
            // Checked when set; only a response whose own fields leave no room refuses, and it goes without then.
            let _ = response.set_header(name, value);
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
