//! Objects that can not be run: each is refused with its reason, and none does harm.

use std::time::Duration;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::{INTERVAL, compile, entry, exchange, run};
use crate::script::{ScriptError, ScriptLimits, ScriptSet, ThreadRuntime};

fn load(image: Vec<u8>) -> Result<ScriptSet, ScriptError> {
    ScriptSet::load(&[("bad.o".to_owned(), image)], &ScriptLimits::default())
}

fn refusal(image: Vec<u8>) -> String {
    load(image).err().expect("the object should not load").to_string()
}

/// Asserts why a C file does not load.
fn is_refused(source: &str, wanted: &str) {
    if let Some(image) = compile(&format!("#include <zeroserve.h>\n{source}")) {
        assert_eq!(refusal(image), format!("script bad.o: {wanted}"));
    }
}

#[test]
fn what_is_not_an_ebpf_object_is_refused() {
    assert_eq!(refusal(vec![]), "script bad.o: this is not an ELF object");
    assert_eq!(refusal(b"#include <zeroserve.h>".to_vec()), "script bad.o: this is not an ELF object");
    assert_eq!(refusal(b"\x7fELF".to_vec()), "script bad.o: the object is damaged");
    assert_eq!(refusal(vec![0; 5 << 20]), "script bad.o: the object is larger than 4194304 bytes");
    let own_executable = std::fs::read("/bin/true").unwrap();
    assert_eq!(
        refusal(own_executable),
        "script bad.o: this is not a relocatable 64-bit eBPF object (clang -target bpf -c)"
    );
}

#[test]
fn helpers_that_do_not_exist_are_named() {
    is_refused(
        "extern zs_s64 zs_fly(int); extern zs_s64 zs_swim(void);
        ZS_ENTRY zs_u64 entry(void) { return zs_fly(1) + zs_swim() + zs_fly(2) + zs_now_ms(); }",
        "section zeroserve.request calls zs_fly, zs_swim, which this server does not have",
    );
}

#[test]
fn a_function_that_was_not_inlined_is_named() {
    is_refused(
        "static __attribute__((noinline)) int far(int x) { return x + (int)zs_now_ms(); }
        ZS_ENTRY zs_u64 entry(void) { return far(1) + far(2); }",
        "section zeroserve.request calls .text, which is a function of its own; mark it ZS_INLINE, \
         or put it in the section behind the entry",
    );
    is_refused(
        "__attribute__((noinline)) int far(int x) { return x + (int)zs_now_ms(); }
        ZS_ENTRY zs_u64 entry(void) { return far(1) + far(2); }",
        "section zeroserve.request calls far, which is a function of its own; mark it ZS_INLINE, \
         or put it in the section behind the entry",
    );
}

#[test]
fn endless_recursion_is_refused() {
    let source = "static ZS_SECTION(\"zeroserve.request\") __attribute__((noinline)) zs_u64 again(zs_u64 n);
        ZS_ENTRY zs_u64 entry(void) { return again(zs_now_ms()); }
        static zs_u64 again(zs_u64 n) { return n ? n + again(zs_now_ms()) * n : 0; }";
    let Some(image) = compile(&format!("#include <zeroserve.h>\n{source}")) else { return };
    let reason = refusal(image);
    assert!(reason.contains("recursive local function call graph"), "{reason}");
}

#[test]
fn a_variable_is_named() {
    is_refused(
        "static zs_u64 count; ZS_ENTRY zs_u64 entry(void) { count += zs_now_ms(); return count; }",
        "section zeroserve.request uses the variable .bss; scripts have constants and the stack, nothing that lasts",
    );
    is_refused(
        "extern zs_u64 nowhere; ZS_ENTRY zs_u64 entry(void) { return nowhere; }",
        "section zeroserve.request uses the variable nowhere; scripts have constants and the stack, nothing that lasts",
    );
}

#[test]
fn an_entry_has_to_be_there_and_to_be_first_and_alone() {
    is_refused(
        "zs_u64 entry(void) { return zs_now_ms(); }",
        "no section is named zeroserve.*; is ZS_ENTRY missing?",
    );
    is_refused(
        "ZS_ENTRY zs_u64 one(void) { return 1; } ZS_ENTRY zs_u64 two(void) { return 2; }",
        "section zeroserve.request has to begin with its only global function (one ZS_ENTRY a script)",
    );
}

#[test]
fn code_that_no_compiled_section_holds_is_no_hindrance() {
    // `helper` is inlined, and what is left of it in .text calls what no server has.
    let Some(image) = compile(
        "#include <zeroserve.h>\nextern int zs_no(void);
        int unused(int x) { return x ? unused(zs_no()) * x : 0; }
        int helper(int x) { return x + 1; }
        ZS_ENTRY zs_u64 entry(void) { zs_respond(200 + helper(1), 0, 0); return 0; }",
    ) else {
        return;
    };
    let chain = load(image).unwrap().pin(&ThreadRuntime::new(INTERVAL));
    assert_eq!(run(&chain, &mut exchange()).status, Some(202));
}

#[test]
fn a_function_in_the_entrys_section_is_called() {
    let Some(image) = compile(
        "#include <zeroserve.h>
        static ZS_SECTION(\"zeroserve.request\") __attribute__((noinline)) zs_u64 sum(const char *text, zs_u64 n) {
            zs_u64 sum = zs_now_ms() * 0; for (zs_u64 at = 0; at < n; at++) sum += text[at]; return sum; }
        ZS_ENTRY zs_u64 entry(void) { char text[8]; zs_memset(text, 20, 8); zs_respond(sum(text, 8) + sum(\"(\", 1), 0, 0); return 0; }",
    ) else {
        return;
    };
    let chain = load(image).unwrap().pin(&ThreadRuntime::new(INTERVAL));
    assert_eq!(run(&chain, &mut exchange()).status, Some(200));
}

#[test]
fn what_can_not_be_compiled_is_refused_when_it_is_loaded() {
    // Native code of more than a mebibyte, from fewer instructions than the machine reads.
    let body = format!("volatile zs_u64 x = 1; {}", "x = x / (x + 1) + x % 7;".repeat(4000));
    let Some(image) = compile(&entry(&body)) else { return };
    let reason = refusal(image);
    assert!(reason.starts_with("script bad.o: section zeroserve.request: "), "{reason}");
    assert!(!reason.contains("calldata"), "{reason}");
}

/// Damages an object in a few places, more often where its structure is than in its padding.
fn damage(image: &[u8], rng: &mut StdRng) -> Vec<u8> {
    let mut image = image.to_vec();
    match rng.gen_range(0..10) {
        0 => image.truncate(rng.gen_range(0..image.len())),
        1 => image.extend((0..rng.gen_range(1..64)).map(|_| rng.r#gen::<u8>())),
        _ => {}
    }
    for _ in 0..rng.gen_range(1..8) {
        if image.is_empty() {
            break;
        }
        let at = rng.gen_range(0..image.len());
        image[at] = match rng.gen_range(0..4) {
            0 => 0,
            1 => 0xff,
            2 => image[at] ^ 1 << rng.gen_range(0..8),
            _ => rng.r#gen(),
        };
    }
    image
}

#[test]
fn damaged_objects_are_refused_or_run_in_their_cage() {
    let Some(image) = compile(&entry(
        r#"char path[64]; zs_req_path(path, sizeof path); zs_meta_set(ZS_STR("path"), ZS_STR(path));
        for (int at = 0; at < 8; at++) if (path[at] == 'x') zs_log(ZS_STR("x"));
        zs_respond(200, ZS_STR(path));"#,
    )) else {
        return;
    };
    let rounds = std::env::var("ZS_FUZZ_ROUNDS").map_or(400, |rounds| rounds.parse().unwrap());
    let seed = std::env::var("ZS_FUZZ_SEED").map_or(1, |seed| seed.parse().unwrap());
    let mut rng = StdRng::seed_from_u64(seed);
    let runtime = ThreadRuntime::new(INTERVAL);
    let limits = ScriptLimits { run_time: Duration::from_millis(3), ..ScriptLimits::default() };
    let mut loaded = 0;
    for _ in 0..rounds {
        if let Ok(set) = ScriptSet::load(&[("bad.o".to_owned(), damage(&image, &mut rng))], &limits) {
            loaded += 1;
            run(&set.pin(&runtime), &mut exchange());
        }
    }
    // Both happened: a loop that refuses everything would test nothing.
    assert!(loaded > 0 && loaded < rounds, "{loaded} of {rounds}");
}
