//! A reader of tar archives as GNU tar, bsdtar and Python write them: v7, ustar, GNU long names and PAX headers.
//! It finds where each file's bytes are; what the files mean to a site is not known here.

use std::io::{self, Read};

use thiserror::Error;

const BLOCK: usize = 512;
/// Most bytes of a header that only describes the next member: a path, times, attributes.
const EXTENSION_BYTES: u64 = 1 << 20;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EntryKind {
    File,
    Directory,
}

/// One member of the archive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TarEntry {
    /// Without leading slash, empty or `.` segments; empty for the archive's own root directory.
    pub path: Vec<u8>,
    pub kind: EntryKind,
    /// Where the content begins in the archive.
    pub offset: u64,
    pub len: u64,
    /// Seconds since the Unix epoch; 0 for times before it.
    pub mtime: u64,
}

/// What is wrong with the archive, and where.
#[derive(Debug, Error)]
#[error("at byte {offset}: {problem}")]
pub struct TarError {
    pub offset: u64,
    pub problem: TarProblem,
}

#[derive(Debug, Error)]
pub enum TarProblem {
    #[error("can't be read: {0}")]
    Io(#[from] io::Error),
    #[error("the file is empty")]
    Empty,
    #[error("the file is compressed ({format}); a site is a plain tar, unpack it with {command}")]
    Compressed { format: &'static str, command: &'static str },
    #[error("the file is not a tar archive")]
    NotTar,
    #[error("the header's checksum is wrong")]
    Checksum,
    #[error("the archive is truncated: it ends inside a header")]
    TruncatedHeader,
    #[error("the archive is truncated: it ends inside {0:?}")]
    TruncatedMember(String),
    #[error("the archive is truncated: its end-of-archive block is missing")]
    TruncatedEnd,
    #[error("the header's {0} field is malformed")]
    Field(&'static str),
    #[error("the extended header is malformed")]
    Extended,
    #[error("the extended header is larger than 1 MiB")]
    ExtendedSize,
    #[error("{0:?} is a path that leaves the site or has no name")]
    Path(String),
    #[error("{0:?} is a symbolic link; store the file itself (tar --dereference --hard-dereference)")]
    SymbolicLink(String),
    #[error("{0:?} is a hard link; store the file itself (tar --hard-dereference)")]
    HardLink(String),
    #[error("{0:?} is a sparse file; store it whole (tar without --sparse)")]
    Sparse(String),
    #[error("{path:?} is of type {kind:?}; a site has files and directories only")]
    Kind { path: String, kind: char },
}

impl TarProblem {
    fn at(self, offset: u64) -> TarError {
        TarError { offset, problem: self }
    }
}

/// Reads an archive from its beginning.
pub struct TarReader<R> {
    source: R,
    position: u64,
    /// What remains of the present member's content, and of the padding behind it.
    unread: u64,
    padding: u64,
    current: String,
    global: Attributes,
    buffer: Box<[u8]>,
}

/// What PAX and GNU extension headers say about a member, over its own header.
#[derive(Debug, Clone, Default)]
struct Attributes {
    path: Option<Vec<u8>>,
    size: Option<u64>,
    mtime: Option<u64>,
    is_sparse: bool,
}

impl<R: Read> TarReader<R> {
    pub fn new(source: R) -> Self {
        Self {
            source,
            position: 0,
            unread: 0,
            padding: 0,
            current: String::new(),
            global: Attributes::default(),
            buffer: vec![0; 64 << 10].into_boxed_slice(),
        }
    }

    /// The next file or directory; None at the end-of-archive block. Content of the one before that was not
    /// read is read over.
    pub fn next_entry(&mut self) -> Result<Option<TarEntry>, TarError> {
        let mut attributes = self.global.clone();
        let mut is_extended = false;
        loop {
            self.read_data(|_| ())?;
            self.skip_padding()?;
            let start = self.position;
            let Some(header) = self.read_header()? else {
                return if is_extended { Err(TarProblem::Extended.at(start)) } else { Ok(None) };
            };
            let kind = header.kind();
            let size = attributes.size.filter(|_| !is_extension(kind));
            self.begin_data(match size {
                Some(size) => size,
                None => header.number(124..136, "size").map_err(|problem| problem.at(start))?,
            });
            if !is_extension(kind) {
                return self.member(&header, attributes).map(Some).map_err(|problem| problem.at(start));
            }
            is_extended = true;
            let content = self.read_extension(start)?;
            let target = if kind == b'g' { &mut self.global } else { &mut attributes };
            target.extend(kind, &content).map_err(|problem| problem.at(start))?;
            if kind == b'g' {
                attributes = self.global.clone();
                is_extended = false;
            }
        }
    }

    /// Passes what remains of the present member's content to `take`, piece by piece.
    pub fn read_data(&mut self, mut take: impl FnMut(&[u8])) -> Result<(), TarError> {
        while self.unread > 0 {
            let want = self.unread.min(self.buffer.len() as u64) as usize;
            let got = read_some(&mut self.source, &mut self.buffer[..want])
                .map_err(|error| TarProblem::from(error).at(self.position))?;
            if got == 0 {
                return Err(TarProblem::TruncatedMember(self.current.clone()).at(self.position));
            }
            self.position += got as u64;
            self.unread -= got as u64;
            take(&self.buffer[..got]);
        }
        Ok(())
    }

    fn begin_data(&mut self, size: u64) {
        self.unread = size;
        self.padding = size.wrapping_neg() % BLOCK as u64;
    }

    fn skip_padding(&mut self) -> Result<(), TarError> {
        self.unread = std::mem::take(&mut self.padding);
        self.read_data(|_| ())
    }

    fn read_extension(&mut self, start: u64) -> Result<Vec<u8>, TarError> {
        if self.unread > EXTENSION_BYTES {
            return Err(TarProblem::ExtendedSize.at(start));
        }
        "an extended header".clone_into(&mut self.current);
        let mut content = Vec::new();
        self.read_data(|piece| content.extend_from_slice(piece))?;
        Ok(content)
    }

    /// A header whose checksum is right; None for a block of zeros, which ends the archive.
    fn read_header(&mut self) -> Result<Option<Header>, TarError> {
        let start = self.position;
        let mut block = [0; BLOCK];
        let mut len = 0;
        while len < BLOCK {
            match read_some(&mut self.source, &mut block[len..]) {
                Ok(0) => break,
                Ok(got) => len += got,
                Err(error) => return Err(TarProblem::from(error).at(start + len as u64)),
            }
        }
        self.position += len as u64;
        check_beginning(start, &block[..len])?;
        match len {
            0 => return Err(TarProblem::TruncatedEnd.at(start)),
            BLOCK => {}
            _ => return Err(TarProblem::TruncatedHeader.at(self.position)),
        }
        if block == [0; BLOCK] {
            return Ok(None);
        }
        let header = Header(block);
        if header.has_right_checksum() {
            Ok(Some(header))
        } else if start == 0 && !header.has_magic() {
            Err(TarProblem::NotTar.at(start))
        } else {
            Err(TarProblem::Checksum.at(start))
        }
    }

    fn member(&mut self, header: &Header, attributes: Attributes) -> Result<TarEntry, TarProblem> {
        let raw_path = attributes.path.unwrap_or_else(|| header.path());
        let shown = String::from_utf8_lossy(&raw_path).into_owned();
        // Before ustar, a directory was a file whose name ends with a slash.
        let kind = match header.kind() {
            b'5' => EntryKind::Directory,
            0 | b'0' if raw_path.ends_with(b"/") => EntryKind::Directory,
            _ if attributes.is_sparse => return Err(TarProblem::Sparse(shown)),
            0 | b'0' | b'7' => EntryKind::File,
            b'1' => return Err(TarProblem::HardLink(shown)),
            b'2' => return Err(TarProblem::SymbolicLink(shown)),
            b'S' => return Err(TarProblem::Sparse(shown)),
            other => return Err(TarProblem::Kind { path: shown, kind: other as char }),
        };
        let path = clean_path(&raw_path)
            .filter(|path| kind == EntryKind::Directory || !path.is_empty())
            .ok_or_else(|| TarProblem::Path(shown.clone()))?;
        let mtime = match attributes.mtime {
            Some(mtime) => mtime,
            None => header.number(136..148, "mtime")?,
        };
        if kind == EntryKind::Directory {
            // Some writers give directories a size, but none gives them content.
            self.begin_data(0);
        }
        self.current = shown;
        Ok(TarEntry { path, kind, offset: self.position, len: self.unread, mtime })
    }
}

/// Types whose content describes the next member: PAX local and global, GNU long name and long link.
fn is_extension(kind: u8) -> bool {
    matches!(kind, b'x' | b'g' | b'L' | b'K')
}

fn read_some(source: &mut impl Read, buffer: &mut [u8]) -> io::Result<usize> {
    loop {
        match source.read(buffer) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}

/// What a file that can't be an archive is instead.
fn check_beginning(start: u64, block: &[u8]) -> Result<(), TarError> {
    const COMPRESSED: [(&[u8], &str, &str); 7] = [
        (b"\x1f\x8b", "gzip", "gunzip"),
        (b"\xfd7zXZ\0", "xz", "unxz"),
        (b"\x28\xb5\x2f\xfd", "zstd", "unzstd"),
        (b"BZh", "bzip2", "bunzip2"),
        (b"LZIP", "lzip", "lzip -d"),
        (b"\x04\x22\x4d\x18", "lz4", "unlz4"),
        (b"PK\x03\x04", "zip", "unzip"),
    ];
    if start > 0 {
        return Ok(());
    }
    if block.is_empty() {
        return Err(TarProblem::Empty.at(0));
    }
    // A member's name may begin with these letters; its header then has the magic that follows the name.
    let is_ustar = block.get(257..262) == Some(b"ustar");
    let compression = COMPRESSED.iter().find(|(magic, ..)| block.starts_with(magic));
    match compression {
        Some(&(_, format, command)) if !is_ustar => Err(TarProblem::Compressed { format, command }.at(0)),
        _ if block.len() < BLOCK => Err(TarProblem::NotTar.at(0)),
        _ => Ok(()),
    }
}

/// Drops leading slash, empty and `.` segments; None when a segment is `..` or a byte is NUL.
fn clean_path(path: &[u8]) -> Option<Vec<u8>> {
    let mut clean = Vec::with_capacity(path.len());
    for segment in path.split(|&byte| byte == b'/') {
        match segment {
            b"" | b"." => continue,
            b".." => return None,
            _ if segment.contains(&0) => return None,
            _ => {}
        }
        if !clean.is_empty() {
            clean.push(b'/');
        }
        clean.extend_from_slice(segment);
    }
    Some(clean)
}

/// One header block (POSIX.1-2017, pax, "ustar Interchange Format").
struct Header([u8; BLOCK]);

impl Header {
    fn kind(&self) -> u8 {
        self.0[156]
    }

    fn has_magic(&self) -> bool {
        self.0[257..262] == *b"ustar"
    }

    fn text(&self, place: std::ops::Range<usize>) -> &[u8] {
        let field = &self.0[place];
        &field[..memchr::memchr(0, field).unwrap_or(field.len())]
    }

    /// Name, after the prefix that only POSIX archives have (GNU keeps times in its place).
    fn path(&self) -> Vec<u8> {
        let name = self.text(0..100);
        let prefix = if self.0[257..263] == *b"ustar\0" { self.text(345..500) } else { &[] };
        if prefix.is_empty() { name.to_vec() } else { [prefix, b"/", name].concat() }
    }

    fn number(&self, place: std::ops::Range<usize>, field: &'static str) -> Result<u64, TarProblem> {
        number(&self.0[place]).ok_or(TarProblem::Field(field))
    }

    /// The sum of all bytes with spaces for the sum itself; some old writers summed signed bytes.
    fn has_right_checksum(&self) -> bool {
        let Some(expected) = number(&self.0[148..156]) else { return false };
        let others = || self.0[..148].iter().chain(&self.0[156..]);
        let spaces = 8 * i64::from(b' ');
        let unsigned: i64 = others().map(|&byte| i64::from(byte)).sum();
        let signed: i64 = others().map(|&byte| i64::from(byte as i8)).sum();
        [unsigned, signed].into_iter().any(|sum| u64::try_from(sum + spaces) == Ok(expected))
    }
}

/// Octal digits within spaces and NULs, or GNU's base 256 (high bit set). Negative numbers become 0; an empty field
/// is 0.
fn number(field: &[u8]) -> Option<u64> {
    match field {
        [0xff, ..] => Some(0),
        [0x80, rest @ ..] => rest
            .iter()
            .try_fold(0u64, |value, &byte| value.checked_mul(256).map(|value| value | u64::from(byte))),
        _ => {
            let is_blank = |byte: &u8| matches!(byte, b' ' | 0);
            let start = field.iter().position(|byte| *byte != b' ').unwrap_or(field.len());
            let digits = &field[start..];
            let len = digits.iter().position(is_blank).unwrap_or(digits.len());
            if !digits[len..].iter().all(is_blank) {
                return None;
            }
            digits[..len].iter().try_fold(0u64, |value, &byte| match byte {
                b'0'..=b'7' => value.checked_mul(8).map(|value| value | u64::from(byte - b'0')),
                _ => None,
            })
        }
    }
}

impl Attributes {
    fn extend(&mut self, kind: u8, content: &[u8]) -> Result<(), TarProblem> {
        match kind {
            b'L' => {
                let end = memchr::memchr(0, content).unwrap_or(content.len());
                self.path = Some(content[..end].to_vec());
                Ok(())
            }
            // The target of a link, and links are refused.
            b'K' => Ok(()),
            _ => self.extend_pax(content).ok_or(TarProblem::Extended),
        }
    }

    /// Records of `length key=value LF`, the length counting itself (POSIX.1-2017, pax Extended Header).
    fn extend_pax(&mut self, mut records: &[u8]) -> Option<()> {
        while !records.is_empty() {
            let space = memchr::memchr(b' ', records)?;
            let len = usize::try_from(crate::http::syntax::decimal(&records[..space])?).ok()?;
            let record = records.get(space + 1..len)?.strip_suffix(b"\n")?;
            let equals = memchr::memchr(b'=', record)?;
            self.set(&record[..equals], &record[equals + 1..])?;
            records = &records[len..];
        }
        Some(())
    }

    fn set(&mut self, key: &[u8], value: &[u8]) -> Option<()> {
        // An empty value takes back what a global header said.
        match key {
            b"path" => self.path = Some(value.to_vec()).filter(|path| !path.is_empty()),
            b"size" if value.is_empty() => self.size = None,
            b"size" => self.size = Some(crate::http::syntax::decimal(value)?),
            b"mtime" if value.is_empty() => self.mtime = None,
            b"mtime" => self.mtime = Some(whole_seconds(value)?),
            _ if key.starts_with(b"GNU.sparse.") => self.is_sparse = true,
            _ => {}
        }
        Some(())
    }
}

/// `seconds[.fraction]`, cut to whole ones; times before the epoch become 0.
fn whole_seconds(value: &[u8]) -> Option<u64> {
    let (is_negative, digits) = match value {
        [b'-', rest @ ..] => (true, rest),
        _ => (false, value),
    };
    let mut parts = digits.splitn(2, |&byte| byte == b'.');
    let seconds = crate::http::syntax::decimal(parts.next()?)?;
    if !parts.next().unwrap_or_default().iter().all(u8::is_ascii_digit) {
        return None;
    }
    Some(if is_negative { 0 } else { seconds })
}
