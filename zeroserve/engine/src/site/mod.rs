//! The tarball as a site: its index, lookup, and what a path answers. Nothing is unpacked.

pub mod content_type;
mod open;
pub mod respond;
pub mod tar;

#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::fs::File;
use std::hash::{BuildHasherDefault, Hasher};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

pub use open::{SiteError, SiteProblem};

use crate::http::headers::HeaderBlock;
use crate::http::response::SharedBytes;

/// One file of the site: where its bytes are in the tarball, and its fields, rendered once.
#[derive(Debug)]
pub struct Entry {
    /// Path in the archive, without a leading slash.
    pub path: Box<[u8]>,
    pub offset: u64,
    pub len: u64,
    /// Seconds since the Unix epoch.
    pub mtime: u64,
    /// Strong entity tag, quotes included: a digest of the content.
    pub etag: Box<str>,
    pub content_type: &'static str,
    /// Content-Type, ETag, Last-Modified, Accept-Ranges: for 200 and 206.
    headers: Arc<HeaderBlock>,
    /// ETag and Last-Modified: for 304.
    not_modified: Arc<HeaderBlock>,
    /// The content, of files small enough to be kept.
    pub cached: Option<SharedBytes>,
}

/// What a path leads to.
#[derive(Debug)]
pub enum Lookup<'a> {
    File(&'a Entry),
    /// The path is a directory with an index document: the same path, encoded, with a slash at its end.
    Redirect(String),
    NotFound,
}

#[derive(Debug, Clone, Copy)]
enum Place {
    File(u32),
    DirectoryWithoutSlash,
}

/// An opened tarball. Immutable; the file stays open, so replacing it on disk by rename changes nothing here.
/// Writing into the file in place does: a site is replaced, never edited.
#[derive(Debug)]
pub struct Site {
    file: File,
    entries: Vec<Entry>,
    places: HashMap<Box<[u8]>, Place, BuildHasherDefault<PathHasher>>,
    scripts: Vec<(String, Vec<u8>)>,
}

impl Site {
    /// Finds what a path from `Request::normalized_path` leads to. `/x/` is answered by `x/index.html`.
    #[inline]
    pub fn lookup(&self, normalized_path: &[u8]) -> Lookup<'_> {
        match self.places.get(normalized_path) {
            Some(Place::File(index)) => Lookup::File(&self.entries[*index as usize]),
            Some(Place::DirectoryWithoutSlash) => Lookup::Redirect(with_slash(normalized_path)),
            None => Lookup::NotFound,
        }
    }

    /// All files that can be served, in path order.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// Name and content of `.zeroserve/scripts/*.o`, in file-name order.
    pub fn scripts(&self) -> &[(String, Vec<u8>)] {
        &self.scripts
    }

    /// The tarball, for reading the ranges that `Body::File` names.
    pub fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// The path percent-encoded for a Location field, with a slash at its end. Only unreserved characters and
/// slashes stay as they are, so it can't be read as anything but a path of this site.
fn with_slash(path: &[u8]) -> String {
    const HEX: &[u8; 16] = b"0123456789ABCDEF";
    let mut encoded = String::with_capacity(path.len() + 1);
    for &byte in path {
        if byte.is_ascii_alphanumeric() || b"/-._~".contains(&byte) {
            encoded.push(byte as char);
        } else {
            encoded.push('%');
            encoded.push(HEX[usize::from(byte >> 4)] as char);
            encoded.push(HEX[usize::from(byte & 15)] as char);
        }
    }
    encoded.push('/');
    encoded
}

/// A hasher for the index. Its keys come from the site's owner, so nobody can choose them to collide; what
/// counts is that a short path costs few cycles.
#[derive(Default)]
struct PathHasher(u64);

impl PathHasher {
    #[inline]
    fn add(&mut self, word: u64) {
        // The multiplier is 2^64 divided by the golden ratio, odd (Knuth, TAOCP 6.4).
        self.0 = (self.0.rotate_left(26) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}

impl Hasher for PathHasher {
    #[inline]
    fn write(&mut self, bytes: &[u8]) {
        let mut rest = bytes;
        while let Some((word, tail)) = rest.split_first_chunk() {
            self.add(u64::from_le_bytes(*word));
            rest = tail;
        }
        if !rest.is_empty() {
            let mut last = [0; 8];
            last[..rest.len()].copy_from_slice(rest);
            self.add(u64::from_le_bytes(last));
        }
    }

    #[inline]
    fn write_usize(&mut self, value: usize) {
        self.add(value as u64);
    }

    #[inline]
    fn finish(&self) -> u64 {
        // The table takes its bits from both ends; the multiplication mixes upwards only.
        self.0 ^ self.0 >> 32
    }
}
