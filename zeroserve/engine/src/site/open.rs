//! Opening a site: one pass over the tarball that finds every file, digests it, and keeps small ones. After this
//! the archive's headers are never looked at again.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::fs::{self, File};
use std::io::{self, BufReader, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use boring::sha::Sha256;

use super::tar::{EntryKind, TarEntry, TarError, TarReader};
use super::{Entry, Place, Site, content_type};
use crate::http::date;
use crate::http::headers::HeaderBlock;
use crate::http::response::SharedBytes;
use crate::http::syntax::InvalidField;

/// Files up to this size are kept in memory: reading them from the page cache would cost more than sending them.
const CACHED_FILE_BYTES: u64 = 32 << 10;
/// All kept files together, so that a site of many files does not move into memory.
const CACHE_BYTES: u64 = 16 << 20;
const READ_BYTES: usize = 256 << 10;

/// What is under here configures the server and is never served.
const PRIVATE: &[u8] = b".zeroserve";
const SCRIPTS: &[u8] = b".zeroserve/scripts/";
const INDEX: &[u8] = b"index.html";

/// The site can't be served. Reads as one line: the file, what is wrong, and where.
#[derive(Debug)]
pub struct SiteError {
    pub path: PathBuf,
    pub problem: SiteProblem,
}

#[derive(Debug, thiserror::Error)]
pub enum SiteProblem {
    #[error("can't be read: {0}")]
    Io(#[from] io::Error),
    #[error("is not a regular file")]
    NotAFile,
    #[error("{0}")]
    Tar(#[from] TarError),
    #[error("the archive holds no files")]
    NoFiles,
    #[error("the script {0:?} has a name that is not UTF-8")]
    ScriptName(String),
    #[error("the fields of {0:?} can't be rendered: {1}")]
    Fields(String, InvalidField),
}

impl fmt::Display for SiteError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}: {}", self.path.display(), self.problem)
    }
}

impl std::error::Error for SiteError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.problem)
    }
}

impl Site {
    /// Opens a tarball and reads it once from end to end.
    pub fn open(path: &Path) -> Result<Self, SiteError> {
        open(path).map_err(|problem| SiteError { path: path.to_owned(), problem })
    }
}

fn open(path: &Path) -> Result<Site, SiteProblem> {
    // Asked before it is opened: opening a pipe waits for its other end.
    if !fs::metadata(path)?.is_file() {
        return Err(SiteProblem::NotAFile);
    }
    let file = File::open(path)?;
    let mut contents = Contents::default();
    contents.read(&mut BufReader::with_capacity(READ_BYTES, &file))?;
    if contents.files.is_empty() && contents.scripts.is_empty() {
        return Err(SiteProblem::NoFiles);
    }
    let entries: Vec<Entry> = contents.files.into_values().collect();
    Ok(Site {
        file,
        places: places(&entries).into_iter().collect(),
        entries,
        scripts: contents.scripts.into_iter().collect(),
    })
}

/// The archive's members by path; a later one replaces an earlier one, as when it is unpacked.
#[derive(Default)]
struct Contents {
    files: BTreeMap<Box<[u8]>, Entry>,
    scripts: BTreeMap<String, Vec<u8>>,
    cached_bytes: u64,
}

impl Contents {
    fn read(&mut self, source: &mut impl Read) -> Result<(), SiteProblem> {
        let mut archive = TarReader::new(source);
        while let Some(member) = archive.next_entry()? {
            self.forget(&member.path);
            if member.kind != EntryKind::File {
                continue;
            }
            if let Some(name) = script_name(&member.path) {
                let name = String::from_utf8(name.to_vec())
                    .map_err(|_| SiteProblem::ScriptName(String::from_utf8_lossy(name).into_owned()))?;
                self.scripts.insert(name, archive.read_to_vec()?);
            } else if member.path.split(|&byte| byte == b'/').next() != Some(PRIVATE) {
                self.add(&mut archive, member)?;
            }
        }
        Ok(())
    }

    fn forget(&mut self, path: &[u8]) {
        if let Some(replaced) = self.files.remove(path) {
            self.cached_bytes -= replaced.cached.map_or(0, |bytes| bytes.len() as u64);
        }
        if let Some(name) = script_name(path) {
            self.scripts.remove(String::from_utf8_lossy(name).as_ref());
        }
    }

    fn add(&mut self, archive: &mut TarReader<&mut impl Read>, member: TarEntry) -> Result<(), SiteProblem> {
        let is_kept = member.len <= CACHED_FILE_BYTES && self.cached_bytes + member.len <= CACHE_BYTES;
        let (digest, cached) = if is_kept {
            let content = archive.read_to_vec()?;
            self.cached_bytes += member.len;
            let digest = boring::sha::sha256(&content);
            (digest, Some(SharedBytes::from(Arc::<[u8]>::from(content))))
        } else {
            (archive.digest()?, None)
        };
        let path = member.path.clone();
        let entry = entry(member, digest, cached)
            .map_err(|error| SiteProblem::Fields(String::from_utf8_lossy(&path).into_owned(), error))?;
        self.files.insert(path.into_boxed_slice(), entry);
        Ok(())
    }
}

impl<R: Read> TarReader<R> {
    fn read_to_vec(&mut self) -> Result<Vec<u8>, TarError> {
        let mut content = Vec::new();
        self.read_data(|piece| content.extend_from_slice(piece))?;
        Ok(content)
    }

    fn digest(&mut self) -> Result<[u8; 32], TarError> {
        let mut hasher = Sha256::new();
        self.read_data(|piece| hasher.update(piece))?;
        Ok(hasher.finish())
    }
}

fn script_name(path: &[u8]) -> Option<&[u8]> {
    path.strip_prefix(SCRIPTS).filter(|name| name.ends_with(b".o") && !name.contains(&b'/'))
}

fn entry(member: TarEntry, digest: [u8; 32], cached: Option<SharedBytes>) -> Result<Entry, InvalidField> {
    let content_type = content_type::of(&member.path);
    let etag = entity_tag(digest);
    let date = date::format(member.mtime);
    let last_modified = std::str::from_utf8(&date).unwrap_or_default();
    Ok(Entry {
        headers: HeaderBlock::prerender(&[
            ("Content-Type", content_type),
            ("ETag", &etag),
            ("Last-Modified", last_modified),
            ("Accept-Ranges", "bytes"),
        ])?,
        not_modified: HeaderBlock::prerender(&[("ETag", &etag), ("Last-Modified", last_modified)])?,
        path: member.path.into_boxed_slice(),
        offset: member.offset,
        len: member.len,
        mtime: member.mtime,
        etag: etag.into_boxed_str(),
        content_type,
        cached,
    })
}

/// 128 bits of the content's digest are far more than two versions of a site need to differ.
fn entity_tag(digest: [u8; 32]) -> String {
    format!("\"{:032x}\"", u128::from_be_bytes(*digest.first_chunk().expect("a digest has 32 bytes")))
}

/// Every path that answers. A file comes before a directory of the same name.
fn places(entries: &[Entry]) -> HashMap<Box<[u8]>, Place> {
    let mut places = HashMap::new();
    for (index, entry) in entries.iter().enumerate() {
        let file = Place::File(index as u32);
        let path = [b"/", &entry.path[..]].concat();
        if let Some(directory) = path.strip_suffix(INDEX).filter(|directory| directory.ends_with(b"/")) {
            places.insert(directory.into(), file);
            let without_slash = &directory[..directory.len() - 1];
            if !without_slash.is_empty() {
                places.entry(without_slash.into()).or_insert(Place::DirectoryWithoutSlash);
            }
        }
        places.insert(path.into_boxed_slice(), file);
    }
    places
}
