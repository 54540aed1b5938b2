//! The media type of a file, by the end of its name. Content is never sniffed.

/// The type of a path, with `charset=utf-8` where the type is text. Unknown ends are `application/octet-stream`,
/// which no browser interprets.
pub fn of(path: &[u8]) -> &'static str {
    let name = path.rsplit(|&byte| byte == b'/').next().unwrap_or_default();
    let extension = match name.iter().rposition(|&byte| byte == b'.') {
        Some(dot) => name[dot + 1..].to_ascii_lowercase(),
        None => return UNKNOWN,
    };
    TYPES
        .binary_search_by(|(known, _)| known.as_bytes().cmp(&extension))
        .map_or(UNKNOWN, |index| TYPES[index].1)
}

const UNKNOWN: &str = "application/octet-stream";

/// Sorted by extension. Types are those of the IANA registry; JavaScript as in RFC 9239.
const TYPES: [(&str, &str); 59] = [
    ("7z", "application/x-7z-compressed"),
    ("aac", "audio/aac"),
    ("apng", "image/apng"),
    ("atom", "application/atom+xml; charset=utf-8"),
    ("avif", "image/avif"),
    ("bmp", "image/bmp"),
    ("bz2", "application/x-bzip2"),
    ("css", "text/css; charset=utf-8"),
    ("csv", "text/csv; charset=utf-8"),
    ("doc", "application/msword"),
    ("eot", "application/vnd.ms-fontobject"),
    ("epub", "application/epub+zip"),
    ("flac", "audio/flac"),
    ("gif", "image/gif"),
    ("gz", "application/gzip"),
    ("htm", "text/html; charset=utf-8"),
    ("html", "text/html; charset=utf-8"),
    ("ico", "image/vnd.microsoft.icon"),
    ("ics", "text/calendar; charset=utf-8"),
    ("jpeg", "image/jpeg"),
    ("jpg", "image/jpeg"),
    ("js", "text/javascript; charset=utf-8"),
    ("json", "application/json"),
    ("jsonld", "application/ld+json"),
    ("jxl", "image/jxl"),
    ("m4a", "audio/mp4"),
    ("map", "application/json"),
    ("md", "text/markdown; charset=utf-8"),
    ("mid", "audio/midi"),
    ("mjs", "text/javascript; charset=utf-8"),
    ("mp3", "audio/mpeg"),
    ("mp4", "video/mp4"),
    ("mpeg", "video/mpeg"),
    ("oga", "audio/ogg"),
    ("ogg", "audio/ogg"),
    ("ogv", "video/ogg"),
    ("opus", "audio/ogg"),
    ("otf", "font/otf"),
    ("pdf", "application/pdf"),
    ("png", "image/png"),
    ("rss", "application/rss+xml; charset=utf-8"),
    ("svg", "image/svg+xml; charset=utf-8"),
    ("tar", "application/x-tar"),
    ("tif", "image/tiff"),
    ("tiff", "image/tiff"),
    ("ttf", "font/ttf"),
    ("txt", "text/plain; charset=utf-8"),
    ("wasm", "application/wasm"),
    ("wav", "audio/wav"),
    ("weba", "audio/webm"),
    ("webm", "video/webm"),
    ("webmanifest", "application/manifest+json"),
    ("webp", "image/webp"),
    ("woff", "font/woff"),
    ("woff2", "font/woff2"),
    ("xhtml", "application/xhtml+xml; charset=utf-8"),
    ("xml", "application/xml; charset=utf-8"),
    ("xz", "application/x-xz"),
    ("zip", "application/zip"),
];

#[cfg(test)]
mod tests {
    use super::{TYPES, of};

    #[test]
    fn the_end_of_the_name_decides() {
        for (path, expected) in [
            ("index.html", "text/html; charset=utf-8"),
            ("a/b.min.JS", "text/javascript; charset=utf-8"),
            ("a.css/b", "application/octet-stream"),
            ("archive.tar.gz", "application/gzip"),
            ("font.woff2", "font/woff2"),
            ("x.unknown", "application/octet-stream"),
            ("x.", "application/octet-stream"),
            (".html", "text/html; charset=utf-8"),
            ("", "application/octet-stream"),
        ] {
            assert_eq!(of(path.as_bytes()), expected, "{path}");
        }
    }

    #[test]
    fn every_type_of_the_table_is_found() {
        for (extension, content_type) in TYPES {
            assert_eq!(of(format!("name.{extension}").as_bytes()), content_type);
        }
    }
}
