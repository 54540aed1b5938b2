//! Response header fields, kept in the form in which HTTP/1.1 sends them. A file's fields are rendered once,
//! when the site is opened, and shared; what a request adds lies behind them.

use std::sync::{Arc, LazyLock};

use super::syntax::{self, InvalidField};

/// Fields in wire form (`Name: value CRLF`, one after another) and where each begins.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HeaderBlock {
    bytes: Vec<u8>,
    fields: Vec<FieldPlace>,
    /// The `name_bit` of every name ever added.
    names: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct FieldPlace {
    start: u32,
    name_len: u32,
    value_len: u32,
}

impl FieldPlace {
    fn name(self, bytes: &[u8]) -> &[u8] {
        &bytes[self.start as usize..][..self.name_len as usize]
    }

    fn value(self, bytes: &[u8]) -> &[u8] {
        &bytes[self.start as usize + self.name_len as usize + 2..][..self.value_len as usize]
    }
}

impl HeaderBlock {
    /// Most bytes of fields in one block: a script that never stops appending ends here.
    pub const MAX_BYTES: usize = 64 << 10;
    /// Room made with the first field, so that a response with a handful of them asks for memory once.
    const FIRST_BYTES: usize = 256;
    const FIRST_FIELDS: usize = 8;

    /// A block to be shared by many responses.
    pub fn prerender(fields: &[(&str, &str)]) -> Result<Arc<Self>, InvalidField> {
        let mut block = Self::default();
        fields.iter().try_for_each(|(name, value)| block.append(name.as_bytes(), value.as_bytes()))?;
        Ok(Arc::new(block))
    }

    /// The fields as HTTP/1.1 sends them, each with its CRLF.
    pub fn wire(&self) -> &[u8] {
        &self.bytes
    }

    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.fields.iter().map(|place| (place.name(&self.bytes), place.value(&self.bytes)))
    }

    fn contains(&self, name: &[u8]) -> bool {
        self.names & syntax::name_bit(name) != 0
            && self.iter().any(|(other, _)| other.eq_ignore_ascii_case(name))
    }

    fn append(&mut self, name: &[u8], value: &[u8]) -> Result<(), InvalidField> {
        let value = syntax::trim_ows(value);
        check(name, value)?;
        if self.bytes.len() + wire_len(name, value) > Self::MAX_BYTES {
            return Err(InvalidField::TooLarge);
        }
        self.push(name, value);
        Ok(())
    }

    /// For fields that were checked.
    fn push(&mut self, name: &[u8], value: &[u8]) {
        if self.fields.is_empty() {
            self.bytes.reserve(wire_len(name, value).max(Self::FIRST_BYTES));
            self.fields.reserve(Self::FIRST_FIELDS);
        }
        let start = self.bytes.len() as u32;
        for part in [name, b": ", value, b"\r\n"] {
            self.bytes.extend_from_slice(part);
        }
        self.fields.push(FieldPlace { start, name_len: name.len() as u32, value_len: value.len() as u32 });
        self.names |= syntax::name_bit(name);
    }

    fn remove(&mut self, name: &[u8]) -> usize {
        let before = self.fields.len();
        if self.contains(name) {
            let old = std::mem::take(self);
            self.extend(&old, |other| !other.eq_ignore_ascii_case(name));
        }
        before - self.fields.len()
    }

    fn extend(&mut self, other: &Self, keep: impl Fn(&[u8]) -> bool) {
        other.iter().filter(|(name, _)| keep(name)).for_each(|(name, value)| self.push(name, value));
    }
}

fn wire_len(name: &[u8], value: &[u8]) -> usize {
    name.len() + value.len() + b": \r\n".len()
}

/// Names that describe the connection or the framing, which only the serializer knows
/// (RFC 9110, section 7.6.1; RFC 9112, section 6).
fn is_managed(name: &[u8]) -> bool {
    let candidates: &[&[u8]] = match name.len() {
        7 => &[b"trailer", b"upgrade"],
        10 => &[b"connection", b"keep-alive"],
        14 => &[b"content-length"],
        16 => &[b"proxy-connection"],
        17 => &[b"transfer-encoding"],
        _ => return false,
    };
    candidates.iter().any(|managed| managed.eq_ignore_ascii_case(name))
}

/// What every field of a response has to pass; `value` without the whitespace around it.
pub(crate) fn check(name: &[u8], value: &[u8]) -> Result<(), InvalidField> {
    if !syntax::is_token(name) {
        Err(InvalidField::Name)
    } else if !syntax::is_field_value(value) {
        Err(InvalidField::Value)
    } else if is_managed(name) {
        Err(InvalidField::Managed)
    } else {
        Ok(())
    }
}

/// The fields of one response: an optional shared block, then its own. Empty ones need no memory.
#[derive(Debug, Clone, Default)]
pub struct HeaderList {
    shared: Option<Arc<HeaderBlock>>,
    own: HeaderBlock,
    /// Set once a Date or Server field was put here, so that the serializer leaves out its own.
    pub(in crate::http) has_date: bool,
    pub(in crate::http) has_server: bool,
}

impl HeaderList {
    pub fn new() -> Self {
        Self::default()
    }

    /// Begins with a prerendered block, which must hold neither Date nor Server.
    #[inline]
    pub fn from_shared(block: &Arc<HeaderBlock>) -> Self {
        Self { shared: Some(Arc::clone(block)), ..Self::default() }
    }

    /// The first value of a field, whatever the case of its name.
    pub fn get(&self, name: impl AsRef<[u8]>) -> Option<&[u8]> {
        let name = name.as_ref();
        self.iter().find(|(other, _)| other.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }

    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.shared.iter().flat_map(|block| block.iter()).chain(self.own.iter())
    }

    /// Adds a field after those present.
    pub fn append(&mut self, name: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<(), InvalidField> {
        let name = name.as_ref();
        self.own.append(name, value.as_ref())?;
        self.note(name, true);
        Ok(())
    }

    /// Replaces all fields of this name by one.
    pub fn set(&mut self, name: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<(), InvalidField> {
        let (name, value) = (name.as_ref(), syntax::trim_ows(value.as_ref()));
        check(name, value)?;
        let shared_bytes = self.shared.as_ref().map_or(0, |block| block.wire().len());
        if shared_bytes + self.own.wire().len() + wire_len(name, value) > HeaderBlock::MAX_BYTES {
            return Err(InvalidField::TooLarge);
        }
        self.remove(name);
        self.own.push(name, value);
        self.note(name, true);
        Ok(())
    }

    /// Removes all fields of this name; says how many there were.
    pub fn remove(&mut self, name: impl AsRef<[u8]>) -> usize {
        let name = name.as_ref();
        if self.shared.as_ref().is_some_and(|block| block.contains(name)) {
            self.own_everything();
        }
        self.note(name, false);
        self.own.remove(name)
    }

    fn note(&mut self, name: &[u8], is_present: bool) {
        if name.eq_ignore_ascii_case(b"date") {
            self.has_date = is_present;
        } else if name.eq_ignore_ascii_case(b"server") {
            self.has_server = is_present;
        }
    }

    /// Shared and own fields in wire form.
    #[inline]
    pub(in crate::http) fn wire(&self) -> [&[u8]; 2] {
        [self.shared.as_ref().map_or(&[], |block| block.wire()), self.own.wire()]
    }

    /// A shared block can't be changed: copy it in front of the own fields.
    fn own_everything(&mut self) {
        if let Some(block) = self.shared.take() {
            let own = std::mem::replace(&mut self.own, HeaderBlock::clone(&block));
            self.own.extend(&own, |_| true);
        }
    }
}

/// The fields of the server's own short texts.
pub(in crate::http) static PLAIN_TEXT: LazyLock<Arc<HeaderBlock>> = LazyLock::new(|| {
    HeaderBlock::prerender(&[("Content-Type", "text/plain; charset=utf-8")])
        .expect("a constant field is valid")
});
