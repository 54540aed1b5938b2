//! Which paths answer, and what is kept from them.

use std::fs;
use std::io;
use std::os::unix::fs::FileExt;

use super::Folder;
use crate::site::{Lookup, Site};

fn found(site: &Site, path: &str) -> String {
    match site.lookup(path.as_bytes()) {
        Lookup::File(entry) => String::from_utf8_lossy(&entry.path).into_owned(),
        Lookup::Redirect(to) => format!("-> {to}"),
        Lookup::NotFound => "nothing".to_owned(),
    }
}

#[test]
fn paths_lead_to_files_index_documents_and_redirects() {
    let folder = Folder::with_files(&[
        ("index.html", b"root"),
        ("about.html", b"about"),
        ("docs/index.html", b"docs"),
        ("docs/api/index.html", b"api"),
        ("docs/a b?ü.txt", b"odd"),
        ("odd name/index.html", b"odd"),
        ("files/x.txt", b"x"),
        ("xindex.html", b"not an index"),
        (".zeroserve/secret.json", b"{}"),
        (".zeroserve/scripts/a.o", b"ELF"),
        ("sub/.zeroserve/shown.txt", b"only at the root is it ours"),
        (".zeroservex", b"another name"),
        ("empty/", b""),
    ]);
    for format in ["--format=gnu", "--format=pax"] {
        folder.tar(&[format]);
        let site = folder.open().unwrap();
        for (path, leads_to) in [
            ("/", "index.html"),
            ("/index.html", "index.html"),
            ("/about.html", "about.html"),
            ("/docs", "-> /docs/"),
            ("/docs/", "docs/index.html"),
            ("/docs/index.html", "docs/index.html"),
            ("/docs/api", "-> /docs/api/"),
            ("/docs/a b?ü.txt", "docs/a b?ü.txt"),
            ("/odd name", "-> /odd%20name/"),
            ("/files/x.txt", "files/x.txt"),
            ("/sub/.zeroserve/shown.txt", "sub/.zeroserve/shown.txt"),
            ("/.zeroservex", ".zeroservex"),
            ("", "nothing"),
            ("/about.html/", "nothing"),
            ("/files", "nothing"),
            ("/files/", "nothing"),
            ("/x", "nothing"),
            ("/empty", "nothing"),
            ("/empty/", "nothing"),
            ("/About.html", "nothing"),
            ("/.zeroserve", "nothing"),
            ("/.zeroserve/", "nothing"),
            ("/.zeroserve/secret.json", "nothing"),
            ("/.zeroserve/scripts/a.o", "nothing"),
        ] {
            assert_eq!(found(&site, path), leads_to, "{format} {path}");
        }
    }
}

#[test]
fn a_file_comes_before_a_directory_of_its_name() {
    let folder = Folder::with_files(&[("x/index.html", b"directory")]);
    folder.run("sh", &["-c", "mkdir other && echo file > other/x"]);
    folder.run("tar", &["-cf", "site.tar", "-C", "tree", "x/index.html", "-C", "../other", "x"]);
    let site = folder.open().unwrap();
    assert_eq!(found(&site, "/x"), "x");
    assert_eq!(found(&site, "/x/"), "x/index.html");
}

#[test]
fn scripts_come_in_file_name_order() {
    let folder = Folder::with_files(&[
        ("index.html", b"x"),
        (".zeroserve/scripts/20-b.o", b"b"),
        (".zeroserve/scripts/10-a.o", b"first a"),
        (".zeroserve/scripts/9-z.o", b"z"),
        (".zeroserve/scripts/B.o", b"B"),
        (".zeroserve/scripts/a.c", b"int x;"),
        (".zeroserve/scripts/lib/deep.o", b"not in the folder itself"),
        (".zeroserve/other.o", b"not a script"),
        ("scripts/public.o", b"not a script"),
    ]);
    folder.tar(&[]);
    folder.write_files(&[(".zeroserve/scripts/10-a.o", b"a")]);
    folder.run("tar", &["-rf", "site.tar", "-C", "tree", "./.zeroserve/scripts/10-a.o"]);
    let site = folder.open().unwrap();
    let expected = [("10-a.o", &b"a"[..]), ("20-b.o", b"b"), ("9-z.o", b"z"), ("B.o", b"B")];
    let expected: Vec<_> =
        expected.iter().map(|(name, object)| (name.to_string(), object.to_vec())).collect();
    assert_eq!(site.scripts(), expected);
    assert_eq!(found(&site, "/scripts/public.o"), "scripts/public.o");
}

#[test]
fn an_entity_tag_depends_on_the_content_alone() {
    let folder = Folder::with_files(&[("a.txt", b"same"), ("b.css", b"same"), ("c.txt", b"other")]);
    folder.tar(&[]);
    let site = folder.open().unwrap();
    let [a, b, c] = site.entries() else { panic!("three files") };
    assert_eq!(a.etag, b.etag);
    assert_ne!(a.etag, c.etag);
    // The first 128 bits of SHA-256("same")
    assert_eq!(&*a.etag, "\"0967115f2813a3541eaef77de9d9d577\"");
}

#[test]
fn a_large_file_has_the_digest_that_its_bytes_have() {
    let content = vec![b'z'; 3 << 20];
    let folder = Folder::with_files(&[("large.bin", &content)]);
    folder.tar(&[]);
    let site = folder.open().unwrap();
    let digest = boring::sha::sha256(&content);
    let expected: String = digest[..16].iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(*site.entries()[0].etag, format!("\"{expected}\""));
    assert!(site.entries()[0].cached.is_none());
}

#[test]
fn the_cache_has_a_budget_and_a_replaced_file_gives_its_share_back() {
    let content = vec![b'x'; 32 << 10];
    let names: Vec<String> = (0..600).map(|number| format!("{number:03}.bin")).collect();
    let files: Vec<(&str, &[u8])> = names.iter().map(|name| (name.as_str(), &content[..])).collect();
    let folder = Folder::with_files(&files);
    folder.run("sh", &["-c", "tar -cf site.tar -C tree $(ls tree)"]);
    let cached = |site: &Site| site.entries().iter().filter(|entry| entry.cached.is_some()).count();
    assert_eq!(cached(&folder.open().unwrap()), 512);
    folder.run("sh", &["-c", "tar -rf site.tar -C tree 000.bin 001.bin 599.bin"]);
    let site = folder.open().unwrap();
    assert_eq!((site.entries().len(), cached(&site)), (600, 512));
}

#[test]
fn an_open_site_outlives_the_replacement_of_its_file() {
    let folder = Folder::with_files(&[("a.bin", &[1; 40_000])]);
    folder.tar(&[]);
    let site = folder.open().unwrap();
    fs::write(folder.0.join("new"), b"something else").unwrap();
    fs::rename(folder.0.join("new"), folder.site()).unwrap();
    let entry = &site.entries()[0];
    let mut content = vec![0; entry.len as usize];
    let file = fs::File::from(site.file().try_clone_to_owned().unwrap());
    file.read_exact_at(&mut content, entry.offset).unwrap();
    assert_eq!(content, [1; 40_000]);
}

#[test]
fn what_is_no_file_is_refused() {
    let folder = Folder::new();
    let missing = folder.open().unwrap_err();
    assert_eq!(
        missing.to_string(),
        format!("{}: can't be read: {}", folder.site().display(), io::Error::from_raw_os_error(2))
    );
    fs::create_dir(folder.site()).unwrap();
    assert_eq!(
        folder.open().unwrap_err().to_string(),
        format!("{}: is not a regular file", folder.site().display())
    );
}

#[test]
fn a_site_is_shared_between_threads() {
    fn assert_shareable<T: Send + Sync + 'static>() {}
    assert_shareable::<Site>();
    assert_shareable::<crate::http::request::Request>();
    assert_shareable::<crate::http::response::Response>();
}
