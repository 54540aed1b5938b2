//! Answers, log lines and the time.

use std::time::{SystemTime, UNIX_EPOCH};

use super::{chain, checks_hold, compile, each_ends_the_script, entry, exchange, run};

#[test]
fn a_script_answers_with_status_and_body() {
    let body = r#"if (zs_req_header(ZS_STR("empty"), 0, 0)) zs_respond(204, 0, 0);
        else zs_respond(418, "a\0b", 3);"#;
    let Some(image) = compile(&entry(body)) else { return };
    let chain = chain(&[("test.o", image)]);
    let mut exchange = exchange();
    let outcome = run(&chain, &mut exchange);
    assert_eq!((outcome.status, &outcome.body[..]), (Some(418), &b"a\0b"[..]));
    exchange.request.append_header(b"empty", b"yes").unwrap();
    let outcome = run(&chain, &mut exchange);
    assert_eq!((outcome.status, &outcome.body[..]), (Some(204), &b""[..]));
}

#[test]
fn the_last_answer_counts() {
    let Some(image) = compile(&entry("zs_respond(200, ZS_STR(\"one\")); zs_respond(404, ZS_STR(\"two\"));"))
    else {
        return;
    };
    let outcome = run(&chain(&[("test.o", image)]), &mut exchange());
    assert_eq!((outcome.status, &outcome.body[..]), (Some(404), &b"two"[..]));
}

#[test]
fn a_status_that_can_not_end_an_exchange_is_refused() {
    let body = "CHECK(zs_respond(0, 0, 0) == -1); CHECK(zs_respond(101, 0, 0) == -1);
        CHECK(zs_respond(199, 0, 0) == -1); CHECK(zs_respond(600, 0, 0) == -1);
        CHECK(zs_respond(0x100c8, 0, 0) == -1); CHECK(zs_respond(~0ULL, 0, 0) == -1);
        CHECK(zs_respond(200, WILD, 0) == 0); CHECK(zs_respond(599, 0, 0) == 0);";
    checks_hold(&mut exchange(), body);
}

#[test]
fn answers_carry_their_metadata_and_a_type() {
    let body = r#"if (zs_req_header(ZS_STR("typed"), 0, 0))
            zs_meta_set(ZS_STR("zs.response.header.content-type"), ZS_STR("application/json"));
        zs_respond(200, ZS_STR("{}"));"#;
    let Some(image) = compile(&entry(body)) else { return };
    let chain = chain(&[("test.o", image)]);
    let mut exchange = exchange();
    for (header, wanted) in [(false, &b"text/plain; charset=utf-8"[..]), (true, b"application/json")] {
        if header {
            exchange.request.append_header(b"typed", b"yes").unwrap();
        }
        exchange.begin();
        super::block_on(chain.run(&mut exchange, &super::Worker::default()));
        let answer = exchange.take_answer().unwrap();
        assert_eq!(answer.headers.get("content-type"), Some(wanted));
    }
}

#[test]
fn a_pointer_elsewhere_ends_the_script() {
    each_ends_the_script(
        &mut exchange(),
        &[
            "zs_respond(200, WILD, 8)",
            "zs_respond(200, out, 1 << 20)",
            "zs_respond(200, out, ~0ULL)",
            "zs_log(WILD, 8)",
            "zs_log(out, ~0ULL)",
        ],
    );
}

#[test]
fn log_lines_can_not_feign_others_and_end_somewhere() {
    let body = r#"static const char LONG[5000] = "long";
        CHECK(zs_log(ZS_STR("plain line\n")) == 0);
        CHECK(zs_log(ZS_STR("two\nlines\x1b[2J \xc3\xa4 \xff \xc2\x9b")) == 0);
        CHECK(zs_log(WILD, 0) == 0);
        CHECK(zs_log(LONG, sizeof LONG) == 0);
        for (int at = 4; at < 32; at++) CHECK(zs_log(ZS_STR("again")) == 0);
        CHECK(zs_log(ZS_STR("too much")) == -1);
        zs_respond(200, ZS_STR("passed"));"#;
    let Some(image) = compile(&entry(body)) else { return };
    let chain = chain(&[("test.o", image)]);
    let mut exchange = exchange();
    let outcome = run(&chain, &mut exchange);
    assert_eq!(outcome.body.escape_ascii().to_string(), "passed");
    assert_eq!(outcome.lines.len(), 32);
    assert_eq!(outcome.lines[0], "test.o: plain line");
    assert_eq!(outcome.lines[1], r"test.o: two\nlines\u{1b}[2J ä \xff \u{9b}");
    assert_eq!(outcome.lines[2], "test.o: ");
    assert_eq!(outcome.lines[3].len(), "test.o: long".len() + 1020 * r"\u{0}".len() + "...".len());
    // The next request may say as much again.
    assert_eq!(run(&chain, &mut exchange).lines.len(), 32);
}

#[test]
fn the_time_is_the_time() {
    let before = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis();
    let Some(image) = compile(&entry("zs_u64 now = zs_now_ms(); zs_respond(200, &now, sizeof now);")) else {
        return;
    };
    let outcome = run(&chain(&[("test.o", image)]), &mut exchange());
    let after = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis();
    let told = u128::from(u64::from_le_bytes(outcome.body.try_into().unwrap()));
    assert!((before..=after).contains(&told), "{before} {told} {after}");
}
