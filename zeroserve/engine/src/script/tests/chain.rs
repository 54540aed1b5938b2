//! Which scripts run, in which order, and what one that fails means for the others.

use std::time::Duration;

use super::{chain, compile, entry, exchange, run};

/// A script that adds its letter to `trace`, and then does this.
fn letter(letter: char, then: &str) -> Option<Vec<u8>> {
    compile(&entry(&format!(
        r#"char trace[16]; zs_s64 len = zs_meta_get(ZS_STR("trace"), trace, sizeof trace);
        if (len < 0 || len > 14) return 0;
        trace[len] = '{letter}'; zs_meta_set(ZS_STR("trace"), trace, len + 1);
        {then}"#
    )))
}

fn trace_of(scripts: &[(&str, Vec<u8>)]) -> (String, super::Outcome) {
    let mut exchange = exchange();
    let outcome = run(&chain(scripts), &mut exchange);
    let trace = exchange.metadata.get(b"trace").unwrap_or_default();
    (trace.escape_ascii().to_string(), outcome)
}

#[test]
fn scripts_run_in_order_and_share_metadata() {
    let (Some(a), Some(b)) = (letter('a', ""), letter('b', "")) else { return };
    let (trace, outcome) = trace_of(&[("1.o", b.clone()), ("2.o", a), ("3.o", b)]);
    assert_eq!(trace, "bab");
    assert_eq!((outcome.status, outcome.lines), (None, vec![]));
}

#[test]
fn the_first_answer_ends_the_chain() {
    let (Some(a), Some(b)) = (letter('a', ""), letter('b', "zs_respond(403, ZS_STR(\"no\"));")) else {
        return;
    };
    let (trace, outcome) = trace_of(&[("1.o", a.clone()), ("2.o", b), ("3.o", a)]);
    assert_eq!(trace, "ab");
    assert_eq!((outcome.status, &outcome.body[..]), (Some(403), &b"no"[..]));
}

#[test]
fn a_script_that_fails_is_logged_its_answer_is_forgotten_and_the_chain_goes_on() {
    let fails = "zs_respond(200, ZS_STR(\"half\")); zs_log(WILD, 1);";
    let (Some(a), Some(b), Some(c)) =
        (letter('a', fails), letter('b', ""), letter('c', "zs_respond(201, ZS_STR(\"whole\"));"))
    else {
        return;
    };
    let (trace, outcome) = trace_of(&[("1.o", a), ("2.o", b), ("3.o", c)]);
    assert_eq!(trace, "abc");
    assert_eq!((outcome.status, &outcome.body[..]), (Some(201), &b"whole"[..]));
    assert_eq!(outcome.lines.len(), 1);
    assert!(
        outcome.lines[0].starts_with("1.o: failed in zeroserve.request: zs_log "),
        "{}",
        outcome.lines[0]
    );
}

#[test]
fn a_script_that_fails_every_time_is_not_told_of_every_time() {
    let Some(image) = compile(&entry("zs_log(WILD, 1);")) else { return };
    let chain = chain(&[("1.o", image)]);
    let mut exchange = exchange();
    let lines: Vec<_> = (0..100).flat_map(|_| run(&chain, &mut exchange).lines).collect();
    // All of them within one second, or at most two.
    let most = 2 * super::super::chain::REPORTS_PER_SECOND as usize;
    assert!((most / 2..=most).contains(&lines.len()), "{}", lines.len());
    std::thread::sleep(Duration::from_millis(1001));
    let later = run(&chain, &mut exchange).lines;
    assert!(later[0].ends_with(" failures before it were not reported)"), "{later:?}");
}

#[test]
fn a_chain_of_nothing_and_of_scripts_that_are_only_called_does_not_run() {
    assert!(chain(&[]).is_empty());
    let Some(image) = compile("#include <zeroserve.h>\nZS_CALL_ENTRY(twice, input) { return input * 2; }\n")
    else {
        return;
    };
    let chain = chain(&[("called.o", image)]);
    assert!(chain.is_empty());
    assert_eq!(run(&chain, &mut exchange()).status, None);
}

#[test]
fn an_exchange_begins_each_request_with_nothing_of_the_last() {
    let Some(image) = compile(&entry(
        "if (zs_meta_get(ZS_STR(\"seen\"), 0, 0)) zs_respond(500, 0, 0); zs_meta_set(ZS_STR(\"seen\"), ZS_STR(\"x\"));",
    )) else {
        return;
    };
    let chain = chain(&[("1.o", image)]);
    let mut exchange = exchange();
    for _ in 0..3 {
        assert_eq!(run(&chain, &mut exchange).status, None);
    }
}
