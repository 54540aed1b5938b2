//! Tests of the site, on archives made by the system's tar, and the folder they are made in.

mod archive;
mod lookup;
mod respond;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use super::{Site, SiteError};

/// A folder that goes when the test ends, also when it fails.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("zs-site-test-{}-{number}", std::process::id()));
        fs::create_dir(&path).unwrap();
        Self(path)
    }

    /// A folder that holds `tree/` with these files; a path that ends with a slash is a directory.
    fn with_files(files: &[(&str, &[u8])]) -> Self {
        let folder = Self::new();
        folder.write_files(files);
        folder
    }

    fn write_files(&self, files: &[(&str, &[u8])]) {
        fs::create_dir_all(self.0.join("tree")).unwrap();
        for (name, content) in files {
            let path = self.0.join("tree").join(name);
            if name.ends_with('/') {
                fs::create_dir_all(path).unwrap();
            } else {
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, content).unwrap();
            }
        }
    }

    fn site(&self) -> PathBuf {
        self.0.join("site.tar")
    }

    fn run(&self, program: &str, arguments: &[&str]) {
        let output = Command::new(program).args(arguments).current_dir(&self.0).output().unwrap();
        assert!(
            output.status.success(),
            "{program} {arguments:?}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
    }

    /// Packs `tree/` into `site.tar` with the system's tar and gives the archive's bytes.
    fn tar(&self, options: &[&str]) -> Vec<u8> {
        self.run("tar", &[options, &["-cf", "site.tar", "-C", "tree", "."]].concat());
        fs::read(self.site()).unwrap()
    }

    fn open(&self) -> Result<Site, SiteError> {
        Site::open(&self.site())
    }

    /// The error of opening these bytes, without the path in front.
    fn refusal(&self, bytes: &[u8]) -> String {
        fs::write(self.site(), bytes).unwrap();
        let text = self.open().map(|site| site.entries().len()).unwrap_err().to_string();
        text.strip_prefix(&format!("{}: ", self.site().display())).unwrap().to_owned()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn has(program: &str) -> bool {
    let found = std::env::var_os("PATH").is_some_and(|path| {
        std::env::split_paths(&path).any(|folder| Path::new(&folder).join(program).exists())
    });
    if !found {
        eprintln!("skipped: {program} is not installed here");
    }
    found
}
