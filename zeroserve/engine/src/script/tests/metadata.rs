//! Metadata: what scripts set, what it refuses, and what becomes of it in responses.

use super::{chain, checks_hold, compile, each_ends_the_script, entry, exchange, run};
use crate::http::response::Response;

#[test]
fn keys_are_set_read_replaced_and_emptied() {
    let mut exchange = exchange();
    checks_hold(
        &mut exchange,
        r#"char out[8] = "before";
        CHECK(zs_meta_get(ZS_STR("a"), out, sizeof out) == 0); CHECK_TEXT(out, "");
        CHECK(zs_meta_set(ZS_STR("a"), ZS_STR("one")) == 0);
        CHECK(zs_meta_set(ZS_STR(" b "), ZS_STR("two")) == 0);
        CHECK(zs_meta_get(ZS_STR("a"), out, sizeof out) == 3); CHECK_TEXT(out, "one");
        CHECK(zs_meta_get(ZS_STR("b"), out, sizeof out) == 3); CHECK_TEXT(out, "two");
        CHECK(zs_meta_set(ZS_STR("a"), ZS_STR("0123456789")) == 0);
        CHECK(zs_meta_get(ZS_STR("a"), out, sizeof out) == 10); CHECK_TEXT(out, "0123456");
        CHECK(zs_meta_get(ZS_STR("a"), out, 0) == 10);
        CHECK(zs_meta_set(ZS_STR("a"), ZS_STR("")) == 0);
        CHECK(zs_meta_get(ZS_STR("a"), out, sizeof out) == 0); CHECK_TEXT(out, "");"#,
    );
    assert_eq!(exchange.metadata.get(b"b"), Some(&b"two"[..]));
    exchange.begin();
    assert_eq!(exchange.metadata.get(b"b"), None);
}

#[test]
fn header_keys_become_response_headers_and_nothing_else_does() {
    let mut exchange = exchange();
    checks_hold(
        &mut exchange,
        r#"CHECK(zs_meta_set(ZS_STR("zs.response.header.X-One"), ZS_STR("1")) == 0);
        CHECK(zs_meta_set(ZS_STR("zs.response.header.x-one"), ZS_STR("2")) == 0);
        CHECK(zs_meta_set(ZS_STR("zs.response.header.etag"), ZS_STR("\"mine\"")) == 0);
        CHECK(zs_meta_set(ZS_STR("x-two"), ZS_STR("2")) == 0);"#,
    );
    let mut response = Response::new(200);
    response.set_header("ETag", "\"theirs\"").unwrap();
    exchange.metadata.apply_to(&mut response);
    let mut fields: Vec<_> = response
        .headers
        .iter()
        .map(|(name, value)| format!("{}={}", name.escape_ascii(), value.escape_ascii()))
        .collect();
    fields.sort();
    assert_eq!(fields, [r#"etag=\"mine\""#, "x-one=2"]);
}

#[test]
fn a_script_can_not_inject_headers() {
    let mut exchange = exchange();
    checks_hold(
        &mut exchange,
        r#"CHECK(zs_meta_set(ZS_STR("zs.response.header.a"), ZS_STR("b\r\nSet-Cookie: c")) == -1);
        CHECK(zs_meta_set(ZS_STR("zs.response.header.a"), ZS_STR("b\nc")) == -1);
        CHECK(zs_meta_set(ZS_STR("zs.response.header.a"), "b\0c", 3) == -1);
        CHECK(zs_meta_set(ZS_STR("zs.response.header.a:b"), ZS_STR("c")) == -1);
        CHECK(zs_meta_set(ZS_STR("zs.response.header.a\r\nb"), ZS_STR("c")) == -1);
        CHECK(zs_meta_set(ZS_STR("zs.response.header."), ZS_STR("c")) == -1);
        CHECK(zs_meta_set(ZS_STR("zs.response.header.Content-Length"), ZS_STR("0")) == -1);
        CHECK(zs_meta_set(ZS_STR("zs.response.header.transfer-encoding"), ZS_STR("chunked")) == -1);"#,
    );
    let mut response = Response::new(200);
    exchange.metadata.apply_to(&mut response);
    assert_eq!(response.headers.iter().count(), 0);
}

#[test]
fn the_map_does_not_grow_without_bound() {
    checks_hold(
        &mut exchange(),
        r#"char key[4] = "k00"; static const char LONG[300] = "long";
        CHECK(zs_meta_set(key, 0, LONG, 1) == -1); CHECK(zs_meta_set(ZS_STR(" \t"), LONG, 1) == -1);
        CHECK(zs_meta_set(LONG, 257, LONG, 1) == -1);
        CHECK(zs_meta_set(LONG, 256, LONG, 1) == 0);
        int taken = 1;
        for (int at = 0; at < 200; at++) {
            key[1] = (char)('0' + at / 14); key[2] = (char)('0' + at % 14);
            if (zs_meta_set(key, 3, LONG, 1) == 0) taken++;
        }
        CHECK(taken == 128);
        CHECK(zs_meta_set(LONG, 256, LONG, 2) == 0); CHECK(zs_meta_get(LONG, 256, 0, 0) == 2);
        CHECK(zs_meta_get(ZS_STR("k00"), 0, 0) == 1);"#,
    );
}

#[test]
fn many_bytes_are_refused_and_many_replacements_are_not() {
    let body = r#"char value[400]; zs_memset(value, 'v', sizeof value);
        CHECK(zs_meta_set(ZS_STR("a"), value, 400) == 0);
        for (int at = 0; at < 1000; at++) {
            CHECK(zs_meta_set(ZS_STR("a"), value, 1 + (at * 37) % 400) == 0);
            CHECK(zs_meta_set(ZS_STR("b"), value, 400 - (at * 37) % 400) == 0);
        }
        static const char BIG[30000] = "big";
        CHECK(zs_meta_set(ZS_STR("c"), BIG, sizeof BIG) == 0);
        CHECK(zs_meta_set(ZS_STR("d"), BIG, sizeof BIG) == 0);
        CHECK(zs_meta_set(ZS_STR("e"), BIG, sizeof BIG) == -1);
        CHECK(zs_meta_set(ZS_STR("c"), BIG, 0) == 0);
        CHECK(zs_meta_set(ZS_STR("e"), BIG, sizeof BIG) == 0);
        CHECK(zs_meta_get(ZS_STR("e"), value, 400) == 30000); CHECK_TEXT(value, "big");
        CHECK(zs_meta_get(ZS_STR("a"), value, 0) == 1 + (999 * 37) % 400);"#;
    checks_hold(&mut exchange(), body);
}

#[test]
fn a_pointer_elsewhere_ends_the_script() {
    each_ends_the_script(
        &mut exchange(),
        &[
            "zs_meta_get(WILD, 4, out, 8)",
            "zs_meta_get(ZS_STR(\"case\"), out, 8), zs_meta_get(out, ~0ULL, out, 8)",
            "zs_meta_set(WILD, 4, ZS_STR(\"value\"))",
            "zs_meta_set(ZS_STR(\"key\"), WILD, 8)",
            "zs_meta_set(ZS_STR(\"key\"), out, 1 << 30)",
        ],
    );
}

#[test]
fn a_key_that_is_not_there_is_no_reason_to_touch_a_wild_pointer() {
    let Some(image) = compile(&entry("zs_meta_get(ZS_STR(\"absent\"), WILD, 0); zs_respond(204, 0, 0);"))
    else {
        return;
    };
    assert_eq!(run(&chain(&[("test.o", image)]), &mut exchange()).status, Some(204));
}
