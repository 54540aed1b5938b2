//! A script's object file before the machine sees it: what is in it, and whether it is the kind that can run here.
//! The machine's own linker comes after this, and neither trusts a byte.

use std::fmt;
use std::ops::Range;

/// All sections that the server runs begin with this.
const SECTION_PREFIX: &[u8] = b"zeroserve.";
/// Largest object that is read at all.
pub const MAX_OBJECT_BYTES: usize = 4 << 20;

// The parts of ELF64 that are read here (System V gABI, chapters 4 and 5; relocation types: kernel's llvm_reloc.rst).
const HEADER_BYTES: usize = 64;
const SECTION_HEADER_BYTES: usize = 64;
const SYMBOL_BYTES: usize = 24;
const RELOCATION_BYTES: usize = 16;
const ET_REL: u16 = 1;
const EM_BPF: u16 = 247;
const SHT_PROGBITS: u32 = 1;
const SHT_SYMTAB: u32 = 2;
const SHT_REL: u32 = 9;
const SHF_ALLOC: u64 = 2;
const SHF_EXECINSTR: u64 = 4;
const STB_LOCAL: u8 = 0;
const STT_FUNC: u8 = 2;
const R_BPF_64_64: u32 = 1;
const R_BPF_64_32: u32 = 10;

/// Why an object is refused, in words for the script's author.
#[derive(Debug, PartialEq, Eq)]
pub enum Refused {
    TooLarge,
    NotElf,
    NotBpf,
    Damaged,
    NoEntry,
    EntryNotFirst { section: String },
    UnknownHelpers { section: String, names: Vec<String> },
    NotInlined { section: String, function: String },
    Variable { section: String, name: String },
}

impl fmt::Display for Refused {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLarge => write!(out, "the object is larger than {MAX_OBJECT_BYTES} bytes"),
            Self::NotElf => write!(out, "this is not an ELF object"),
            Self::NotBpf => {
                write!(out, "this is not a relocatable 64-bit eBPF object (clang -target bpf -c)")
            }
            Self::Damaged => write!(out, "the object is damaged"),
            Self::NoEntry => write!(out, "no section is named zeroserve.*; is ZS_ENTRY missing?"),
            Self::EntryNotFirst { section } => {
                write!(
                    out,
                    "section {section} has to begin with its only global function (one ZS_ENTRY a script)"
                )
            }
            Self::UnknownHelpers { section, names } => {
                write!(out, "section {section} calls {}, which this server does not have", names.join(", "))
            }
            Self::NotInlined { section, function } => write!(
                out,
                "section {section} calls {function}, which is a function of its own; mark it ZS_INLINE, \
                 or put it in the section behind the entry"
            ),
            Self::Variable { section, name } => write!(
                out,
                "section {section} uses the variable {name}; scripts have constants and the stack, nothing that lasts"
            ),
        }
    }
}

/// An object that holds nothing executable but sections for the server, all of whose calls lead somewhere.
pub struct Object {
    pub image: Vec<u8>,
    /// The names of its sections, in the object's order.
    pub sections: Vec<String>,
}

impl Object {
    /// Checks an object. `has_helper` says which functions the server offers.
    pub fn check(image: &[u8], has_helper: impl Fn(&str) -> bool) -> Result<Self, Refused> {
        if image.len() > MAX_OBJECT_BYTES {
            return Err(Refused::TooLarge);
        }
        let elf = Elf::read(image)?;
        let (kept, dropped): (Vec<_>, Vec<_>) = elf
            .sections
            .iter()
            .enumerate()
            .filter(|(_, section)| section.flags & SHF_EXECINSTR != 0)
            .partition(|(_, section)| section.is_code() && elf.name(section).starts_with(SECTION_PREFIX));
        if kept.is_empty() {
            return Err(Refused::NoEntry);
        }
        for &(index, section) in &kept {
            elf.check_entry(index, section)?;
            elf.check_references(index, section, &has_helper)?;
        }
        let mut image = image.to_vec();
        // What clang inlined still stands in .text, where nothing can reach it: no longer code, it is not looked at.
        for (_, section) in dropped {
            image[section.flags_place.clone()].fill(0);
        }
        Ok(Self { sections: kept.iter().map(|(_, section)| elf.text(elf.name(section))).collect(), image })
    }
}

struct Section {
    name: usize,
    kind: u32,
    flags: u64,
    flags_place: Range<usize>,
    start: usize,
    size: usize,
    link: usize,
    info: usize,
}

struct Symbol {
    name: usize,
    kind: u8,
    binding: u8,
    section: usize,
    value: u64,
}

struct Elf<'a> {
    image: &'a [u8],
    sections: Vec<Section>,
    /// Section names.
    names: &'a [u8],
    symbols: Vec<Symbol>,
    symbol_names: &'a [u8],
}

impl<'a> Elf<'a> {
    fn read(image: &'a [u8]) -> Result<Self, Refused> {
        if !image.starts_with(b"\x7fELF") {
            return Err(Refused::NotElf);
        }
        if image.len() < HEADER_BYTES {
            return Err(Refused::Damaged);
        }
        let is_64_bit_little_endian = image[4..6] == [2, 1];
        if !is_64_bit_little_endian || u16_at(image, 16) != Some(ET_REL) || u16_at(image, 18) != Some(EM_BPF)
        {
            return Err(Refused::NotBpf);
        }
        Self::read_tables(image).ok_or(Refused::Damaged)
    }

    /// The section headers, and the symbols where there are any. None when something points outside the image.
    fn read_tables(image: &'a [u8]) -> Option<Self> {
        let start = usize::try_from(u64_at(image, 40)?).ok()?;
        let (count, names_index) = (u16_at(image, 60)?, u16_at(image, 62)?);
        let sections = (0..usize::from(count))
            .map(|index| Section::read(image, start.checked_add(index * SECTION_HEADER_BYTES)?))
            .collect::<Option<Vec<_>>>()?;
        let names = content(image, sections.get(usize::from(names_index))?)?;
        let mut elf = Self { image, sections, names, symbols: Vec::new(), symbol_names: &[] };
        if let Some(table) = elf.sections.iter().find(|section| section.kind == SHT_SYMTAB) {
            let records = content(image, table)?.chunks_exact(SYMBOL_BYTES);
            elf.symbol_names = content(image, elf.sections.get(table.link)?)?;
            elf.symbols = records.map(Symbol::read).collect::<Option<_>>()?;
        }
        Some(elf)
    }

    fn name(&self, section: &Section) -> &'a [u8] {
        string_at(self.names, section.name)
    }

    fn symbol_name(&self, symbol: &Symbol) -> &'a [u8] {
        match string_at(self.symbol_names, symbol.name) {
            // A section's own symbol has no name but the section's.
            [] => self.sections.get(symbol.section).map_or(&[], |section| self.name(section)),
            name => name,
        }
    }

    fn text(&self, name: &[u8]) -> String {
        name.escape_ascii().to_string()
    }

    /// The machine starts a section at its first byte, so that is where the function has to be that others know.
    fn check_entry(&self, index: usize, section: &Section) -> Result<(), Refused> {
        let mut entries = self.symbols.iter().filter(|symbol| {
            symbol.section == index && symbol.kind == STT_FUNC && symbol.binding != STB_LOCAL
        });
        let (first, second) = (entries.next(), entries.next());
        if second.is_some() || first.is_some_and(|entry| entry.value != 0) {
            return Err(Refused::EntryNotFirst { section: self.text(self.name(section)) });
        }
        Ok(())
    }

    /// Whatever the section's code refers to has to be a helper, in the section itself, or constant.
    fn check_references(
        &self,
        index: usize,
        section: &Section,
        has_helper: impl Fn(&str) -> bool,
    ) -> Result<(), Refused> {
        let section_name = || self.text(self.name(section));
        let mut unknown = Vec::new();
        for relocations in self.sections.iter().filter(|other| other.kind == SHT_REL && other.info == index) {
            let records = content(self.image, relocations).ok_or(Refused::Damaged)?;
            for record in records.chunks_exact(RELOCATION_BYTES) {
                let (kind, symbol) = self.relocation(record).ok_or(Refused::Damaged)?;
                let name = self.text(self.symbol_name(symbol));
                match (kind, symbol.section) {
                    (R_BPF_64_32, 0) if !has_helper(&name) && !unknown.contains(&name) => unknown.push(name),
                    (R_BPF_64_32, target) if target != 0 && target != index => {
                        return Err(Refused::NotInlined { section: section_name(), function: name });
                    }
                    (R_BPF_64_64, target) if !self.is_constant(target) => {
                        return Err(Refused::Variable { section: section_name(), name });
                    }
                    _ => {}
                }
            }
        }
        if unknown.is_empty() {
            return Ok(());
        }
        Err(Refused::UnknownHelpers { section: section_name(), names: unknown })
    }

    /// False for what has no bytes in the object: variables that begin as zero, and those defined nowhere.
    fn is_constant(&self, section: usize) -> bool {
        section != 0 && self.sections.get(section).is_some_and(|section| section.kind == SHT_PROGBITS)
    }

    fn relocation(&self, record: &[u8]) -> Option<(u32, &Symbol)> {
        Some((u32_at(record, 8)?, self.symbols.get(u32_at(record, 12)? as usize)?))
    }
}

impl Section {
    fn read(image: &[u8], at: usize) -> Option<Self> {
        let header = image.get(at..at.checked_add(SECTION_HEADER_BYTES)?)?;
        Some(Self {
            name: u32_at(header, 0)? as usize,
            kind: u32_at(header, 4)?,
            flags: u64_at(header, 8)?,
            flags_place: at + 8..at + 16,
            start: usize::try_from(u64_at(header, 24)?).ok()?,
            size: usize::try_from(u64_at(header, 32)?).ok()?,
            link: u32_at(header, 40)? as usize,
            info: u32_at(header, 44)? as usize,
        })
    }

    /// Whether the machine takes it for code.
    fn is_code(&self) -> bool {
        self.kind == SHT_PROGBITS && self.flags == SHF_ALLOC | SHF_EXECINSTR && self.size > 0
    }
}

impl Symbol {
    fn read(record: &[u8]) -> Option<Self> {
        let info = *record.get(4)?;
        Some(Self {
            name: u32_at(record, 0)? as usize,
            kind: info & 0xf,
            binding: info >> 4,
            section: usize::from(u16_at(record, 6)?),
            value: u64_at(record, 8)?,
        })
    }
}

fn content<'a>(image: &'a [u8], section: &Section) -> Option<&'a [u8]> {
    image.get(section.start..section.start.checked_add(section.size)?)
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..)?.first_chunk().copied().map(u16::from_le_bytes)
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().copied().map(u32::from_le_bytes)
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    bytes.get(at..)?.first_chunk().copied().map(u64::from_le_bytes)
}

/// The NUL-terminated string in a table; empty when the place is outside it.
fn string_at(table: &[u8], at: usize) -> &[u8] {
    let rest = table.get(at..).unwrap_or_default();
    &rest[..memchr::memchr(0, rest).unwrap_or(0)]
}
