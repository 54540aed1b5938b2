//! Scripts that misbehave: each ends alone, and the thread goes on.

use std::cell::Cell;
use std::future::Future;
use std::pin::pin;
use std::task::{Context, Waker};
use std::time::{Duration, Instant};

use super::{INTERVAL, Worker, chain, checks_hold, compile, entry, exchange, run, set};
use crate::script::{Chain, ScriptLimits, ThreadRuntime};

const LOOP: &str = "for (volatile zs_u64 at = 0;; at++) {}";

fn limited(image: Vec<u8>, run_time_ms: u64, free_run_time_ms: u64) -> Chain {
    let limits = ScriptLimits {
        run_time: Duration::from_millis(run_time_ms),
        total_time: Duration::from_secs(60),
        free_run_time: Duration::from_millis(free_run_time_ms),
        burden_part: 3,
    };
    set(&[("test.o", image)], &limits).pin(&ThreadRuntime::new(INTERVAL))
}

#[test]
fn division_by_zero_is_defined() {
    let mut exchange = exchange();
    exchange.request.append_header(b"empty", b"").unwrap();
    // RFC 9669, section 4.1: division by zero gives 0, and the remainder is the dividend.
    checks_hold(
        &mut exchange,
        r#"volatile zs_u64 zero = (zs_u64)zs_req_header(ZS_STR("empty"), 0, 0); volatile zs_u64 seven = 7;
        /* Without `volatile` the compiler would reason about a division that C does not define. */
        volatile zs_u64 quotient = seven / zero; volatile zs_u64 rest = seven % zero;
        CHECK(quotient == 0); CHECK(rest == 7);"#,
    );
}

#[test]
fn access_to_memory_elsewhere_ends_the_script() {
    // The cage folds every address into itself, so only its ends are sure to be nobody's memory.
    for access in [
        "*(volatile char *)0 = 1;",
        "*(volatile char *)0xffff = 1;",
        "zs_respond(*(volatile zs_u64 *)8, 0, 0);",
        "*(volatile zs_u64 *)(zs_u64)-8 = 1;",
        "*(volatile char *)\"constant\" = 'x';",
        "char on_stack[8]; for (volatile char *at = on_stack;; at--) *at = 1;",
        "char on_stack[8]; for (volatile char *at = on_stack;; at++) *at = 1;",
        "for (const volatile char *at = \"constant\";; at++) (void)*at;",
        "for (const volatile char *at = \"constant\";; at--) (void)*at;",
    ] {
        let Some(image) = compile(&entry(access)) else { return };
        let chain = chain(&[("test.o", image)]);
        let mut exchange = exchange();
        // Twice: what the first run left behind has to be in order.
        for round in 0..2 {
            let outcome = run(&chain, &mut exchange);
            assert_eq!(outcome.status, None, "{access}");
            if round == 0 {
                let line = outcome.lines.first().expect(access);
                assert!(
                    line.starts_with("test.o: failed in zeroserve.request: memory fault"),
                    "{access}: {line}"
                );
            }
        }
    }
}

#[test]
fn an_endless_loop_lets_others_run_and_is_ended_at_the_limit() {
    for body in [LOOP, "for (;;) zs_now_ms();", "for (;;) zs_meta_set(ZS_STR(\"a\"), ZS_STR(\"b\"));"] {
        let Some(image) = compile(&entry(body)) else { return };
        let chain = limited(image, 300, 20);
        let (worker, mut exchange) = (Worker::default(), exchange());
        let others = Cell::new(0);
        {
            let mut script = pin!(chain.run(&mut exchange, &worker));
            while script.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending() {
                others.set(others.get() + 1);
            }
        }
        assert!(others.get() > 5, "{body}: {}", others.get());
        assert!(worker.yields.get() > 0 && worker.rests.get() > 0, "{body}");
        let lines = exchange.journal.take_lines();
        assert!(lines[0].starts_with("test.o: ended in zeroserve.request: it ran for "), "{body}: {lines:?}");
        // A burden no longer: the next script of the thread has the thread to itself.
        assert_eq!(chain.timer_burdens(), 0, "{body}");
    }
}

#[test]
fn a_script_that_rests_more_than_it_runs_is_ended_as_well() {
    let Some(image) = compile(&entry(LOOP)) else { return };
    let limits = ScriptLimits {
        run_time: Duration::from_secs(60),
        total_time: Duration::from_millis(50),
        free_run_time: Duration::ZERO,
        burden_part: 1000,
    };
    let chain = set(&[("test.o", image)], &limits).pin(&ThreadRuntime::new(INTERVAL));
    let mut exchange = exchange();
    let began = Instant::now();
    let outcome = run(&chain, &mut exchange);
    assert!(began.elapsed() < Duration::from_secs(1), "{:?}", began.elapsed());
    assert!(
        outcome.lines[0].starts_with("test.o: ended in zeroserve.request: it ran for "),
        "{:?}",
        outcome.lines
    );
}

#[test]
fn burdens_share_one_part_of_the_thread() {
    let Some(image) = compile(&entry(LOOP)) else { return };
    let chain = limited(image, 200, 4);
    let (worker, mut one, mut other) = (Worker::default(), exchange(), exchange());
    let mut scripts =
        [Some(Box::pin(chain.run(&mut one, &worker))), Some(Box::pin(chain.run(&mut other, &worker)))];
    let (mut most, mut owed) = (0, Duration::ZERO);
    while scripts.iter().any(Option::is_some) {
        for slot in &mut scripts {
            let Some(script) = slot else { continue };
            let (began, rests) = (Instant::now(), worker.rests.get());
            if script.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready() {
                *slot = None;
            }
            if worker.rests.get() > rests {
                owed += began.elapsed() * chain.timer_burdens() * 2;
            }
            most = most.max(chain.timer_burdens());
        }
    }
    assert_eq!(most, 2);
    // One part in three: after each turn two rests as long as it was, and twice that while there are two burdens.
    let rested = worker.rested.get();
    assert!(rested <= owed && rested > owed / 2, "{rested:?} {owed:?}");
}

#[test]
fn a_script_that_is_dropped_in_a_turn_leaves_the_thread_in_order() {
    let body =
        format!("if (zs_req_header(ZS_STR(\"loop\"), 0, 0)) {{ {LOOP} }} zs_respond(200, ZS_STR(\"done\"));");
    let Some(image) = compile(&entry(&body)) else { return };
    let chain = limited(image, 10_000, 2);
    let (mut looping, mut other) = (exchange(), exchange());
    looping.request.append_header(b"loop", b"yes").unwrap();
    for turns in 1..6 {
        let worker = Worker::default();
        {
            let mut script = pin!(chain.run(&mut looping, &worker));
            for _ in 0..turns {
                assert!(script.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
            }
        }
        assert_eq!(chain.timer_burdens(), 0);
        assert_eq!(run(&chain, &mut other).body, b"done");
    }
    assert_eq!(looping.journal.take_lines(), [""; 0]);
}

#[test]
fn a_script_that_waits_does_not_keep_the_timer_at_the_thread() {
    let Some(image) = compile(&entry(LOOP)) else { return };
    let chain = limited(image, 10_000, 2);
    let (mut exchange, worker) = (exchange(), Worker::default());
    let mut script = pin!(chain.run(&mut exchange, &worker));
    assert!(script.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    // A signal would end this sleep early: it has no SA_RESTART, and neither has the ring's wait.
    std::thread::sleep(INTERVAL);
    let wish = libc::timespec { tv_sec: 0, tv_nsec: 20 * INTERVAL.subsec_nanos() as i64 };
    // SAFETY: a valid time to sleep, and nobody wants to know what is left of it.
    assert_eq!(unsafe { libc::nanosleep(&wish, std::ptr::null_mut()) }, 0);
}

#[test]
fn every_run_starts_with_the_same_stack() {
    let Some(image) = compile(&entry(
        "volatile char secret[128]; char copy[128]; int at = 0;
        for (; at < 128; at++) copy[at] = secret[at];
        for (at = 0; at < 128; at++) secret[at] = 's';
        zs_respond(200, copy, 128);",
    )) else {
        return;
    };
    let chain = chain(&[("test.o", image)]);
    let mut exchange = exchange();
    let first = run(&chain, &mut exchange).body;
    assert_eq!(run(&chain, &mut exchange).body, first);
    assert!(!first.contains(&b's'));
}

#[test]
fn numbers_at_the_edge_of_what_there_is_are_no_harm() {
    // Pointers and lengths around each end of the address space, the stack and the constants, in all combinations.
    let calls: String =
        ["zs_req_header", "zs_req_query_param", "zs_meta_get", "zs_meta_set", "zs_req_query_param_matches"]
            .iter()
            .enumerate()
            .map(|(number, helper)| {
                format!("case {number}: {helper}((char *)from, from_len, (char *)to, to_len); break;")
            })
            .collect();
    let body = format!(
        r#"static const char TEXT[] = "text"; char out[8] = ""; char choice[8];
        zs_req_header(ZS_STR("choice"), choice, sizeof choice);
        zs_u64 places[] = {{0, 1, (zs_u64)out, (zs_u64)out + 7, (zs_u64)TEXT, (zs_u64)TEXT + 4, ~0ULL, 1ULL << 63}};
        zs_u64 lens[] = {{0, 1, 8, 1 << 15, 1ULL << 31, 1ULL << 32, (1ULL << 63) - 1, ~0ULL}};
        zs_u64 from = places[choice[1] & 7], to = places[choice[2] & 7];
        zs_u64 from_len = lens[choice[3] & 7], to_len = lens[choice[4] & 7];
        switch (choice[0] & 7) {{ {calls} }}
        zs_respond(200, 0, 0);"#
    );
    let Some(image) = compile(&entry(&body)) else { return };
    let chain = chain(&[("test.o", image)]);
    let mut exchange = exchange();
    let mut ended_well = 0;
    for number in 0..5 * 8u32.pow(4) {
        let digit = |place: u32| b'0' + (number >> (3 * place) & 7) as u8;
        exchange.request.clear();
        let choice = [b'0' + (number >> 12) as u8, digit(0), digit(1), digit(2), digit(3)];
        exchange.request.set_header(b"choice", &choice).unwrap();
        ended_well += u32::from(run(&chain, &mut exchange).status.is_some());
    }
    assert!(ended_well > 1000 && ended_well < 5 * 8u32.pow(4) / 2, "{ended_well}");
}
