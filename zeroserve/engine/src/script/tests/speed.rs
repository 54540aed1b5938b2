//! What scripts cost, for those who ask: `cargo test --release what_a_run_costs -- --ignored --nocapture`.

use std::time::Instant;

use super::{Worker, block_on, chain, compile, entry, exchange};
use crate::http::response::Response;

const RUNS: u32 = 200_000;

#[test]
#[ignore = "measures; asserts only that the scripts did their work"]
fn what_a_run_costs() {
    let header = r#"zs_meta_set(ZS_STR("zs.response.header.X-Frame-Options"), ZS_STR("DENY"));"#;
    let json = r#"zs_meta_set(ZS_STR("zs.response.header.Content-Type"), ZS_STR("application/json"));
        zs_respond(200, ZS_STR("{\"status\":\"ok\"}"));"#;
    let routed =
        r#"char path[64]; zs_req_path(path, sizeof path); if (zs_strcmp(path, "/api/ping")) return 0;"#;
    for (name, scripts, wanted) in [
        ("no script", vec![], (404, 0)),
        ("empty script", vec![String::new()], (404, 0)),
        ("one helper", vec!["zs_req_is_tls();".to_owned()], (404, 0)),
        ("ten helpers", vec!["zs_req_is_tls();".repeat(10)], (404, 0)),
        ("one response header", vec![header.to_owned()], (404, 1)),
        ("JSON response", vec![json.to_owned()], (200, 1)),
        ("route, then JSON response", vec![format!("{routed}{json}")], (200, 1)),
        ("both", vec![header.to_owned(), json.to_owned()], (200, 2)),
    ] {
        let Some(objects) =
            scripts.iter().map(|body| Some(("test.o", compile(&entry(body))?))).collect::<Option<Vec<_>>>()
        else {
            return;
        };
        let (chain, mut exchange, worker) = (chain(&objects), exchange(), Worker::default());
        exchange.request.set_target(b"/api/ping").unwrap();
        let mut rounds = Vec::new();
        for _ in 0..9 {
            let began = Instant::now();
            for _ in 0..RUNS {
                exchange.begin();
                block_on(chain.run(&mut exchange, &worker));
                let response = exchange.take_answer().unwrap_or_else(|| {
                    let mut response = Response::new(404);
                    exchange.metadata.apply_to(&mut response);
                    response
                });
                assert_eq!((response.status, response.headers.iter().count()), wanted, "{name}");
            }
            rounds.push(began.elapsed() / RUNS);
        }
        rounds.sort();
        println!("{name:<28} {:>6} ns a request (fastest {} ns)", rounds[4].as_nanos(), rounds[0].as_nanos());
    }
}
