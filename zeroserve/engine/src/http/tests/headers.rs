//! Response fields: shared blocks, changes on top of them, and what is refused.

use crate::http::headers::{HeaderBlock, HeaderList};
use crate::http::response::{Response, SharedBytes};
use crate::http::syntax::InvalidField;

fn shown(list: &HeaderList) -> Vec<(String, String)> {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    list.iter().map(|(name, value)| (text(name), text(value))).collect()
}

fn pairs(fields: &[(&str, &str)]) -> Vec<(String, String)> {
    fields.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect()
}

#[test]
fn changing_a_shared_field_leaves_the_block_alone() {
    let block = HeaderBlock::prerender(&[("Content-Type", "text/html"), ("ETag", "\"1\"")]).unwrap();
    let mut list = HeaderList::from_shared(&block);
    list.append("X-A", " 1 ").unwrap();
    list.append("X-A", "2").unwrap();
    list.set("content-type", "text/plain").unwrap();
    assert_eq!(
        shown(&list),
        pairs(&[("ETag", "\"1\""), ("X-A", "1"), ("X-A", "2"), ("content-type", "text/plain")])
    );
    assert_eq!(list.wire().concat(), b"ETag: \"1\"\r\nX-A: 1\r\nX-A: 2\r\ncontent-type: text/plain\r\n");
    assert_eq!(list.remove("x-a"), 2);
    assert_eq!(list.remove("x-a"), 0);
    assert_eq!(list.get("CONTENT-TYPE"), Some(&b"text/plain"[..]));
    assert_eq!(
        shown(&HeaderList::from_shared(&block)),
        pairs(&[("Content-Type", "text/html"), ("ETag", "\"1\"")])
    );
}

#[test]
fn what_could_split_or_reframe_the_response_is_refused_and_changes_nothing() {
    let mut response = Response::new(200);
    response.set_header("X", "kept").unwrap();
    for (name, value, error) in [
        ("X", "a\r\nSet-Cookie: b", InvalidField::Value),
        ("X", "a\nb", InvalidField::Value),
        ("X", "a\0b", InvalidField::Value),
        ("X\r\n", "a", InvalidField::Name),
        ("X:", "a", InvalidField::Name),
        ("X ", "a", InvalidField::Name),
        ("", "a", InvalidField::Name),
        ("Content-Length", "5", InvalidField::Managed),
        ("transfer-encoding", "chunked", InvalidField::Managed),
        ("CONNECTION", "close", InvalidField::Managed),
        ("Keep-Alive", "x", InvalidField::Managed),
        ("Upgrade", "h2c", InvalidField::Managed),
    ] {
        assert_eq!(response.set_header(name, value), Err(error), "{name:?}: {value:?}");
        assert_eq!(response.append_header(name, value), Err(error), "{name:?}: {value:?}");
    }
    assert_eq!(shown(&response.headers), pairs(&[("X", "kept")]));
}

#[test]
fn fields_without_end_are_refused() {
    let mut list = HeaderList::new();
    let error = (0..100_000).find_map(|index| list.append("X-Flood", format!("{index}")).err());
    assert_eq!(error, Some(InvalidField::TooLarge));
    assert!(list.wire().concat().len() <= HeaderBlock::MAX_BYTES);

    let before = shown(&list);
    let too_much = "x".repeat(HeaderBlock::MAX_BYTES);
    assert_eq!(list.set("x-flood", too_much), Err(InvalidField::TooLarge));
    assert_eq!(shown(&list), before, "what is refused replaces nothing");
}

#[test]
fn shared_bytes_are_cut_without_copying() {
    let bytes = SharedBytes::from(std::sync::Arc::<[u8]>::from(&b"0123456789"[..]));
    let part = bytes.slice(2..8).slice(1..3);
    assert_eq!(&part[..], b"34");
    assert_eq!(part.as_ptr(), bytes[3..].as_ptr());
    assert_eq!(&SharedBytes::Static(b"abc").slice(1..1)[..], b"");
}
