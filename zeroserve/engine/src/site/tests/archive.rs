//! Archives as the system's tar writes them in every format, and archives that are broken.

use std::fs;
use std::os::unix::fs::FileExt;

use super::{Folder, has};
use crate::site::tar::{EntryKind, TarReader};

const FORMATS: [&str; 5] =
    ["--format=ustar", "--format=gnu", "--format=oldgnu", "--format=pax", "--format=v7"];

#[test]
fn every_format_of_tar_is_read() {
    let big: Vec<u8> = (0..200_001u32).map(|index| (index * 7) as u8).collect();
    let files: &[(&str, &[u8])] = &[
        ("index.html", b"<p>root"),
        ("empty.txt", b""),
        ("one.txt", &[b'x'; 511]),
        ("two.txt", &[b'x'; 512]),
        ("three.txt", &[b'x'; 513]),
        ("a/b/c.css", b"p{}"),
        ("big.bin", &big),
    ];
    let folder = Folder::with_files(files);
    for format in FORMATS {
        let archive = folder.tar(&[format, "--mtime=@1000000000.5"]);
        let site = folder.open().unwrap();
        assert_eq!(site.entries().len(), files.len(), "{format}");
        for (name, content) in files {
            let entry = site.entries().iter().find(|entry| *entry.path == *name.as_bytes()).unwrap();
            assert_eq!(&archive[entry.offset as usize..][..entry.len as usize], *content, "{format} {name}");
            assert_eq!(entry.mtime, 1_000_000_000, "{format} {name}");
            let is_small = content.len() <= 32 << 10;
            assert_eq!(entry.cached.as_deref(), is_small.then_some(*content), "{format} {name}");
        }
    }
}

#[test]
fn long_names_are_read_in_the_formats_that_have_them() {
    let deep = format!("{}/{}/{}.html", "directory".repeat(8), "folder".repeat(4), "n".repeat(94));
    let longer = format!("{}{}.html", "a/".repeat(100), "ü".repeat(100));
    let files: &[(&str, &[u8])] = &[(&deep, b"deep"), (&longer, b"longer")];
    let folder = Folder::with_files(files);
    for format in ["--format=gnu", "--format=pax"] {
        let archive = folder.tar(&[format]);
        let site = folder.open().unwrap();
        for (name, content) in files {
            let entry = site.entries().iter().find(|entry| *entry.path == *name.as_bytes());
            let entry = entry.unwrap_or_else(|| panic!("{format}: {name} is missing"));
            assert_eq!(&archive[entry.offset as usize..][..entry.len as usize], *content);
        }
    }
    let ustar = Folder::with_files(&files[..1]);
    ustar.tar(&["--format=ustar"]);
    assert_eq!(&*ustar.open().unwrap().entries()[0].path, deep.as_bytes(), "name and prefix");
}

#[test]
fn of_a_name_that_occurs_twice_the_last_counts() {
    let folder = Folder::with_files(&[("a.txt", b"first"), ("b.txt", b"b")]);
    folder.tar(&["--format=gnu"]);
    folder.write_files(&[("a.txt", b"the second")]);
    folder.run("tar", &["-rf", "site.tar", "-C", "tree", "./a.txt"]);
    let site = folder.open().unwrap();
    assert_eq!(site.entries().len(), 2);
    assert_eq!(site.entries()[0].cached.as_deref(), Some(&b"the second"[..]));
}

#[test]
fn directories_leading_slashes_and_dots_are_understood() {
    let folder = Folder::with_files(&[("sub/", b""), ("sub/x.txt", b"x")]);
    let absolute = folder.0.join("tree/sub");
    folder.run(
        "tar",
        &["-P", "--hard-dereference", "-cf", "site.tar", "-C", "tree", "./sub", absolute.to_str().unwrap()],
    );
    let bytes = fs::read(folder.site()).unwrap();
    let mut source = &bytes[..];
    let mut reader = TarReader::new(&mut source);
    let mut seen = Vec::new();
    while let Some(entry) = reader.next_entry().unwrap() {
        seen.push((String::from_utf8(entry.path).unwrap(), entry.kind));
    }
    let inside = absolute.to_str().unwrap().trim_start_matches('/').to_owned();
    let expected = [
        ("sub".to_owned(), EntryKind::Directory),
        ("sub/x.txt".to_owned(), EntryKind::File),
        (inside.clone(), EntryKind::Directory),
        (format!("{inside}/x.txt"), EntryKind::File),
    ];
    assert_eq!(seen, expected);
}

#[test]
fn what_pythons_tarfile_writes_is_read() {
    if !has("python3") {
        return;
    }
    let folder = Folder::with_files(&[("ä/ö.txt", b"umlaut")]);
    for format in ["USTAR_FORMAT", "GNU_FORMAT", "PAX_FORMAT"] {
        let script = format!(
            "import tarfile\nwith tarfile.open('site.tar', 'w', format=tarfile.{format}) as archive: archive.add('tree', '.')"
        );
        folder.run("python3", &["-c", &script]);
        let site = folder.open().unwrap();
        assert_eq!(&*site.entries()[0].path, "ä/ö.txt".as_bytes(), "{format}");
        assert_eq!(site.entries()[0].cached.as_deref(), Some(&b"umlaut"[..]), "{format}");
    }
}

#[test]
fn times_sizes_and_globals_of_pax_headers_count() {
    let folder = Folder::with_files(&[("old.txt", b"old"), ("new.txt", b"new")]);
    folder.run("touch", &["-d", "@-5.5", "tree/old.txt"]);
    folder.run("touch", &["-d", "@9000000000", "tree/new.txt"]);
    for format in ["--format=pax", "--format=gnu"] {
        folder.tar(&[format]);
        let site = folder.open().unwrap();
        let times: Vec<_> = site.entries().iter().map(|entry| entry.mtime).collect();
        assert_eq!(times, [9_000_000_000, 0], "{format}: before 1970 counts as 1970");
    }
    folder.tar(&["--format=pax", "--pax-option=globexthdr.name=g,mtime=77,comment=hello", "--mtime=@5"]);
    let site = folder.open().unwrap();
    assert!(site.entries().iter().all(|entry| entry.mtime == 77), "a global header reaches every member");
}

#[test]
fn files_that_are_no_archive_are_named_for_what_they_are() {
    let folder = Folder::with_files(&[("index.html", b"x")]);
    let archive = folder.tar(&[]);
    assert_eq!(folder.refusal(b""), "at byte 0: the file is empty");
    assert_eq!(folder.refusal(b"hello\n"), "at byte 0: the file is not a tar archive");
    let noise: Vec<u8> =
        (0..4096u32).map(|index| (index.wrapping_mul(2_654_435_761) >> 13) as u8 | 1).collect();
    assert_eq!(folder.refusal(&noise), "at byte 0: the file is not a tar archive");
    assert_eq!(folder.refusal(&[0; 10_240]), "the archive holds no files");
    for (program, format, command) in [
        ("gzip", "gzip", "gunzip"),
        ("bzip2", "bzip2", "bunzip2"),
        ("xz", "xz", "unxz"),
        ("zstd", "zstd", "unzstd"),
        ("lz4", "lz4", "unlz4"),
    ] {
        if !has(program) {
            continue;
        }
        fs::write(folder.0.join("plain"), &archive).unwrap();
        folder.run("sh", &["-c", &format!("{program} -c < plain > packed")]);
        let packed = fs::read(folder.0.join("packed")).unwrap();
        assert_eq!(
            folder.refusal(&packed),
            format!(
                "at byte 0: the file is compressed ({format}); a site is a plain tar, unpack it with {command}"
            )
        );
    }
}

/// An archive of two files: a header at 0 and content at 512 for `a.bin` (1000 bytes), a header at 1536 and
/// content at 2048 for `b.txt` (5 bytes), the end at 2560.
fn two_files(folder: &Folder) -> Vec<u8> {
    folder.write_files(&[("a.bin", &[7; 1000]), ("b.txt", b"12345")]);
    folder.run("tar", &["--format=ustar", "-cf", "site.tar", "-C", "tree", "a.bin", "b.txt"]);
    fs::read(folder.site()).unwrap()
}

#[test]
fn a_truncated_archive_is_refused_wherever_it_ends() {
    let folder = Folder::new();
    let archive = two_files(&folder);
    let in_a = "the archive is truncated: it ends inside \"a.bin\"";
    let in_header = "the archive is truncated: it ends inside a header";
    for (len, problem) in [
        (100, "at byte 0: the file is not a tar archive".to_owned()),
        (512, format!("at byte 512: {in_a}")),
        (513, format!("at byte 513: {in_a}")),
        (1511, format!("at byte 1511: {in_a}")),
        (1512, format!("at byte 1512: {in_a}")),
        (1536, "at byte 1536: the archive is truncated: its end-of-archive block is missing".to_owned()),
        (1537, format!("at byte 1537: {in_header}")),
        (2047, format!("at byte 2047: {in_header}")),
        (2050, "at byte 2050: the archive is truncated: it ends inside \"b.txt\"".to_owned()),
        (2560, "at byte 2560: the archive is truncated: its end-of-archive block is missing".to_owned()),
        (2561, format!("at byte 2561: {in_header}")),
    ] {
        assert_eq!(folder.refusal(&archive[..len]), problem, "{len} bytes");
    }
    let is_refused = |mut bytes: &[u8]| {
        let mut reader = TarReader::new(&mut bytes);
        std::iter::from_fn(|| reader.next_entry().transpose()).any(|entry| entry.is_err())
    };
    assert!((0..3072).all(|len| is_refused(&archive[..len])));
    fs::write(folder.site(), &archive[..3072]).unwrap();
    assert_eq!(folder.open().unwrap().entries().len(), 2, "one end-of-archive block is enough");
}

/// Changes a field of the header at `at` and makes its checksum right again.
fn patch(archive: &[u8], at: usize, place: usize, field: &[u8]) -> Vec<u8> {
    let mut bytes = archive.to_vec();
    bytes[at + place..][..field.len()].copy_from_slice(field);
    bytes[at + 148..at + 156].fill(b' ');
    let sum: u32 = bytes[at..at + 512].iter().map(|&byte| u32::from(byte)).sum();
    bytes[at + 148..at + 156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    bytes
}

#[test]
fn broken_headers_are_refused_with_their_offset() {
    let folder = Folder::new();
    let archive = two_files(&folder);
    let mut flipped = archive.clone();
    flipped[1536] ^= 1;
    assert_eq!(folder.refusal(&flipped), "at byte 1536: the header's checksum is wrong");
    let mut flipped = archive.clone();
    flipped[3] ^= 1;
    assert_eq!(folder.refusal(&flipped), "at byte 0: the header's checksum is wrong");

    let table: &[(usize, &[u8], &str)] = &[
        (124, b"0000000000x\0", "at byte 1536: the header's size field is malformed"),
        (124, b"0000000000 1", "at byte 1536: the header's size field is malformed"),
        (
            124,
            b"\x80\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff",
            "at byte 1536: the header's size field is malformed",
        ),
        (136, b"99999999999\0", "at byte 1536: the header's mtime field is malformed"),
        (0, b"../b.txt\0", "at byte 1536: \"../b.txt\" is a path that leaves the site or has no name"),
        (0, b"\0\0\0\0\0\0", "at byte 1536: \"\" is a path that leaves the site or has no name"),
        (156, b"1", "at byte 1536: \"b.txt\" is a hard link; store the file itself (tar --hard-dereference)"),
        (
            156,
            b"2",
            "at byte 1536: \"b.txt\" is a symbolic link; store the file itself (tar --dereference --hard-dereference)",
        ),
        (156, b"S", "at byte 1536: \"b.txt\" is a sparse file; store it whole (tar without --sparse)"),
        (156, b"3", "at byte 1536: \"b.txt\" is of type '3'; a site has files and directories only"),
        (156, b"6", "at byte 1536: \"b.txt\" is of type '6'; a site has files and directories only"),
        (156, b"x", "at byte 1536: the extended header is malformed"),
        (156, b"L", "at byte 2560: the extended header is malformed"),
    ];
    for (place, field, problem) in table {
        assert_eq!(folder.refusal(&patch(&archive, 1536, *place, field)), *problem);
    }
    let huge = patch(&patch(&archive, 1536, 124, b"77777777777\0"), 1536, 156, b"x");
    assert_eq!(folder.refusal(&huge), "at byte 1536: the extended header is larger than 1 MiB");
    let longer = patch(&archive, 1536, 124, b"77777777777\0");
    let end = longer.len();
    assert_eq!(
        folder.refusal(&longer),
        format!("at byte {end}: the archive is truncated: it ends inside \"b.txt\"")
    );
}

#[test]
fn links_made_by_tar_are_refused_with_the_way_out() {
    let folder = Folder::with_files(&[("a.txt", b"a")]);
    folder.run("ln", &["-s", "a.txt", "tree/soft"]);
    for format in ["--format=gnu", "--format=pax"] {
        folder.tar(&[format]);
        let problem = folder.open().unwrap_err().to_string();
        assert!(
            problem.ends_with(
                "\"./soft\" is a symbolic link; store the file itself (tar --dereference --hard-dereference)"
            ),
            "{problem}"
        );
        folder.tar(&[format, "--dereference", "--hard-dereference"]);
        assert_eq!(folder.open().unwrap().entries().len(), 2);
    }
}

#[test]
fn sparse_files_are_refused() {
    let folder = Folder::with_files(&[("a.txt", b"a")]);
    let file = fs::File::create(folder.0.join("tree/sparse.bin")).unwrap();
    file.set_len(4 << 20).unwrap();
    file.write_at(b"x", 1 << 20).unwrap();
    for format in ["--format=gnu", "--format=pax"] {
        folder.tar(&[format, "--sparse", "--hole-detection=raw"]);
        let problem = folder.open().unwrap_err().to_string();
        assert!(problem.contains("is a sparse file; store it whole"), "{format}: {problem}");
    }
}

#[test]
fn damaged_archives_never_panic() {
    let folder = Folder::with_files(&[("a/long-enough.html", b"<p>"), ("b.css", &[b'x'; 700])]);
    let archive = folder.tar(&["--format=pax"]);
    let mut state = 0x7a11_u64;
    let mut next = |bound: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % bound
    };
    let mut read = 0;
    for _ in 0..20_000 {
        let block = next(archive.len().min(5120) / 512) * 512;
        let mut bytes = archive[..5120.max(block)].to_vec();
        for _ in 0..=next(3) {
            let byte = [0, b'7', b' ', b'\n', b'=', 0x80, 0xff, next(256) as u8][next(8)];
            bytes = patch(&bytes, block, next(512), &[byte]).into_iter().take(bytes.len()).collect();
        }
        let mut source = &bytes[..];
        let mut reader = TarReader::new(&mut source);
        while let Ok(Some(entry)) = reader.next_entry() {
            assert!(!entry.path.split(|&byte| byte == b'/').any(|part| part == b".."));
            read += 1;
        }
    }
    assert!(read > 1_000, "only {read} members were read: the test has lost its aim");
}
