//! Scripts in C, compiled by the system's clang against the SDK header, run through the chain.

mod chain;
mod memory;
mod metadata;
mod objects;
mod request;
mod respond;
mod sandbox;
mod speed;

use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::path::Path;
use std::pin::pin;
use std::process::Command;
use std::sync::LazyLock;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use async_ebpf::program::Timeslicer;

use super::{Chain, ConnectionInfo, Exchange, Journal, ScriptLimits, ScriptSet, ThreadRuntime};

const INTERVAL: Duration = Duration::from_millis(2);

/// The first compiler that takes a script, newest first as in `zeroserve.compiler`.
static CLANG: LazyLock<Option<&str>> = LazyLock::new(|| {
    ["clang-21", "clang-20", "clang-19", "clang-18", "clang"].into_iter().find(|name| {
        let arguments = ["-target", "bpf", "-x", "c", "-c", "/dev/null", "-o", "/dev/null"];
        Command::new(name).args(arguments).output().is_ok_and(|output| output.status.success())
    })
});

/// Compiles a whole C file; None, and a word about it, where no clang is installed.
fn compile(source: &str) -> Option<Vec<u8>> {
    let Some(clang) = *CLANG else {
        eprintln!("skipped: no clang that can compile eBPF");
        return None;
    };
    static COUNT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
    let count = COUNT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    let base = std::env::temp_dir().join(format!("zs-script-{}-{count}", std::process::id()));
    let (input, object) = (base.with_extension("c"), base.with_extension("o"));
    std::fs::write(&input, source).unwrap();
    let output = Command::new(clang)
        .args([
            "-target",
            "bpf",
            "-mcpu=v3",
            "-O2",
            "-ffreestanding",
            "-nostdlibinc",
            "-Wall",
            "-Wextra",
            "-Werror",
        ])
        .args(["-Wno-unused-parameter", "-mllvm", "-inline-threshold=100000", "-I"])
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("../sdk"))
        .arg("-c")
        .arg(&input)
        .arg("-o")
        .arg(&object)
        .output()
        .unwrap();
    let image = std::fs::read(&object);
    for file in [input, object] {
        let _ = std::fs::remove_file(file);
    }
    assert!(output.status.success(), "{}\n{source}", String::from_utf8_lossy(&output.stderr));
    Some(image.unwrap())
}

/// A script of one entry with this body. `CHECK` answers 500 with the first condition that does not hold.
fn entry(body: &str) -> String {
    format!(
        "#include <zeroserve.h>\n\
         #define CHECK(condition) do {{ if (!(condition)) {{ \\\n\
             zs_respond(500, ZS_STR(#condition)); return 0; }} }} while (0)\n\
         #define CHECK_TEXT(text, wanted) CHECK(zs_strcmp(text, wanted) == 0)\n\
         #define WILD ((char *)0x123456789000ULL)\n\
         ZS_ENTRY zs_u64 entry(void) {{ {body}\n return 0; }}\n"
    )
}

fn exchange() -> Exchange {
    let connection = ConnectionInfo { peer: "[::ffff:192.0.2.7]:4711".parse().unwrap(), is_tls: true };
    let mut exchange = Exchange::new(connection);
    exchange.journal = Journal::in_memory();
    exchange.request.set_method(b"GET").unwrap();
    exchange.request.set_target(b"/").unwrap();
    exchange.request.append_header(b"Host", b"example.org").unwrap();
    exchange
}

fn set(objects: &[(&str, Vec<u8>)], limits: &ScriptLimits) -> ScriptSet {
    let objects: Vec<_> = objects.iter().map(|(name, image)| ((*name).to_owned(), image.clone())).collect();
    ScriptSet::load(&objects, limits).unwrap()
}

fn chain(objects: &[(&str, Vec<u8>)]) -> Chain {
    set(objects, &ScriptLimits::default()).pin(&ThreadRuntime::new(INTERVAL))
}

/// What scripts of these bodies made of a request.
struct Outcome {
    status: Option<u16>,
    body: Vec<u8>,
    lines: Vec<String>,
}

fn run(chain: &Chain, exchange: &mut Exchange) -> Outcome {
    exchange.begin();
    block_on(chain.run(exchange, &Worker::default()));
    let response = exchange.response.take();
    Outcome {
        status: response.as_ref().map(|response| response.status),
        body: response.and_then(|response| response.body.in_memory().map(<[u8]>::to_vec)).unwrap_or_default(),
        lines: exchange.journal.take_lines(),
    }
}

/// Runs a script whose `CHECK`s all have to hold.
fn checks_hold(exchange: &mut Exchange, body: &str) {
    let Some(image) = compile(&entry(&format!("{body}\nzs_respond(200, ZS_STR(\"passed\"));"))) else {
        return;
    };
    let outcome = run(&chain(&[("test.o", image)]), exchange);
    assert_eq!(outcome.lines, [""; 0]);
    assert_eq!((outcome.status, outcome.body.escape_ascii().to_string()), (Some(200), "passed".into()));
}

/// Runs a script of `cases` that each have to end it, with a reason that names the helper they call.
fn each_ends_the_script(exchange: &mut Exchange, cases: &[&str]) {
    let arms: String =
        cases.iter().enumerate().map(|(number, call)| format!("case {number}: {call}; break;\n")).collect();
    let body = format!(
        "char number[8]; char out[16]; (void)out; zs_req_header(ZS_STR(\"case\"), number, sizeof number);
         int chosen = 0; for (char *digit = number; *digit; digit++) chosen = chosen * 10 + *digit - '0';
         switch (chosen) {{ {arms} }}
         zs_respond(200, ZS_STR(\"went on\"));"
    );
    let Some(image) = compile(&entry(&body)) else { return };
    for (number, call) in cases.iter().enumerate() {
        exchange.request.set_header(b"case", number.to_string().as_bytes()).unwrap();
        let outcome = run(&chain(&[("test.o", image.clone())]), exchange);
        let helper = call.split('(').next().unwrap();
        assert_eq!(outcome.status, None, "{call}");
        let reason = format!(
            "test.o: failed in zeroserve.request: {helper} was given memory that is not the script's, \
             or the same memory twice"
        );
        assert_eq!(outcome.lines, [reason], "{call}");
    }
}

/// A worker's side of taking turns, which counts them.
#[derive(Default)]
struct Worker {
    yields: Cell<u32>,
    rests: Cell<u32>,
    rested: Cell<Duration>,
}

impl Timeslicer for Worker {
    fn sleep(&self, duration: Duration) -> impl Future<Output = ()> {
        self.rests.set(self.rests.get() + 1);
        self.rested.set(self.rested.get() + duration);
        let end = Instant::now() + duration;
        poll_fn(move |_| if Instant::now() < end { Poll::Pending } else { Poll::Ready(()) })
    }

    fn yield_now(&self) -> impl Future<Output = ()> {
        self.yields.set(self.yields.get() + 1);
        let mut has_yielded = false;
        poll_fn(
            move |_| if std::mem::replace(&mut has_yielded, true) { Poll::Ready(()) } else { Poll::Pending },
        )
    }
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(value) = future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            return value;
        }
        std::thread::yield_now();
    }
}
