//! The request as scripts read it.

use super::{checks_hold, each_ends_the_script, exchange};
use crate::http::request::Version;

#[test]
fn each_part_of_the_request_reads_as_it_came() {
    let mut exchange = exchange();
    exchange.request.set_method(b"DELETE").unwrap();
    exchange.request.set_target(b"/a%20b/../c?x=1&y=%2F").unwrap();
    exchange.request.append_header(b"X-Thing", b"first").unwrap();
    exchange.request.append_header(b"x-thing", b"second").unwrap();
    checks_hold(
        &mut exchange,
        r#"char out[64];
        CHECK(zs_req_method(out, sizeof out) == 6); CHECK_TEXT(out, "DELETE");
        CHECK(zs_req_path(out, sizeof out) == 11); CHECK_TEXT(out, "/a%20b/../c");
        CHECK(zs_req_normalized_path(out, sizeof out) == 2); CHECK_TEXT(out, "/c");
        CHECK(zs_req_uri(out, sizeof out) == 21); CHECK_TEXT(out, "/a%20b/../c?x=1&y=%2F");
        CHECK(zs_req_query(out, sizeof out) == 9); CHECK_TEXT(out, "x=1&y=%2F");
        CHECK(zs_req_scheme(out, sizeof out) == 5); CHECK_TEXT(out, "https");
        CHECK(zs_req_peer(out, sizeof out) == 9); CHECK_TEXT(out, "192.0.2.7");
        CHECK(zs_req_header(ZS_STR("X-THING"), out, sizeof out) == 5); CHECK_TEXT(out, "first");
        CHECK(zs_req_header(ZS_STR(" x-thing\t"), out, sizeof out) == 5); CHECK_TEXT(out, "first");
        CHECK(zs_req_proto_major() == 1); CHECK(zs_req_proto_minor() == 1); CHECK(zs_req_is_tls() == 1);"#,
    );
}

#[test]
fn what_a_request_does_not_have_reads_as_empty() {
    let mut exchange = exchange();
    exchange.request.set_target(b"/?a").unwrap();
    exchange.request.append_header(b"Empty", b"").unwrap();
    exchange.request.set_version(Version::Http10);
    exchange.connection.is_tls = false;
    checks_hold(
        &mut exchange,
        r#"char out[8] = "before";
        CHECK(zs_req_header(ZS_STR("absent"), out, sizeof out) == 0); CHECK_TEXT(out, "");
        out[0] = 'x';
        CHECK(zs_req_header(ZS_STR("empty"), out, sizeof out) == 0); CHECK_TEXT(out, "");
        out[0] = 'x';
        CHECK(zs_req_header(ZS_STR(""), out, sizeof out) == 0); CHECK_TEXT(out, "");
        out[0] = 'x';
        CHECK(zs_req_header(WILD, 0, out, sizeof out) == 0); CHECK_TEXT(out, "");
        out[0] = 'x';
        CHECK(zs_req_query_param(ZS_STR("a"), out, sizeof out) == 0); CHECK_TEXT(out, "");
        out[0] = 'x';
        CHECK(zs_req_query_param(ZS_STR("b"), out, sizeof out) == 0); CHECK_TEXT(out, "");
        CHECK(zs_req_scheme(out, sizeof out) == 4); CHECK_TEXT(out, "http");
        CHECK(zs_req_proto_major() == 1); CHECK(zs_req_proto_minor() == 0); CHECK(zs_req_is_tls() == 0);"#,
    );
}

#[test]
fn http_2_says_so() {
    let mut exchange = exchange();
    exchange.request.set_version(Version::Http2);
    checks_hold(&mut exchange, "CHECK(zs_req_proto_major() == 2); CHECK(zs_req_proto_minor() == 0);");
}

#[test]
fn a_path_that_climbs_out_does_not_normalize() {
    let mut exchange = exchange();
    exchange.request.set_target(b"/../etc/passwd").unwrap();
    checks_hold(
        &mut exchange,
        r#"char out[32];
        CHECK(zs_req_normalized_path(out, sizeof out) == -1);
        CHECK(zs_req_path(out, sizeof out) == 14); CHECK_TEXT(out, "/../etc/passwd");"#,
    );
}

#[test]
fn output_is_cut_as_snprintf_cuts_it() {
    let mut exchange = exchange();
    exchange.request.set_target(b"/0123456789?k=0123456789").unwrap();
    exchange.request.append_header(b"Long", b"0123456789").unwrap();
    let call = |call: &str, value: &str| {
        format!(
            r#"zs_memset(out, 'x', sizeof out);
            CHECK({call} out, 4) == {len}); CHECK_TEXT(out, "{cut}"); CHECK(out[4] == 'x');
            CHECK({call} out, 1) == {len}); CHECK_TEXT(out, ""); CHECK(out[1] == '{second}');
            CHECK({call} out, 0) == {len}); CHECK({call} WILD, 0) == {len});
            CHECK({call} out, {len}) == {len}); CHECK(out[{len} - 1] == 0);
            CHECK({call} out, {len} + 1) == {len}); CHECK_TEXT(out, "{value}");"#,
            len = value.len(),
            cut = &value[..3],
            second = &value[1..2],
        )
    };
    let body: String = [
        call("zs_req_path(", "/0123456789"),
        call("zs_req_normalized_path(", "/0123456789"),
        call("zs_req_uri(", "/0123456789?k=0123456789"),
        call("zs_req_query(", "k=0123456789"),
        call("zs_req_scheme(", "https"),
        call("zs_req_peer(", "192.0.2.7"),
        call("zs_req_header(ZS_STR(\"long\"),", "0123456789"),
        call("zs_req_query_param(ZS_STR(\"k\"),", "0123456789"),
    ]
    .concat();
    checks_hold(&mut exchange, &format!("char out[32]; {body}"));
}

#[test]
fn a_capacity_beyond_the_scripts_memory_is_no_harm_as_long_as_the_text_fits() {
    checks_hold(
        &mut exchange(),
        r#"char out[8];
        CHECK(zs_req_method(out, ~0ULL) == 3); CHECK_TEXT(out, "GET");
        CHECK(zs_req_method(out, 1ULL << 63) == 3);"#,
    );
}

#[test]
fn a_pointer_elsewhere_ends_the_script() {
    each_ends_the_script(
        &mut exchange(),
        &[
            "zs_req_method(WILD, 8)",
            "zs_req_method(0, 1)",
            "zs_req_method((char *)\"constant\", 8)",
            "zs_req_path(WILD, 8)",
            "zs_req_normalized_path(WILD, 8)",
            "zs_req_uri(WILD, 8)",
            "zs_req_query(WILD, 8)",
            "zs_req_scheme(WILD, 8)",
            "zs_req_peer(WILD, 8)",
            "zs_req_header(WILD, 4, out, 8)",
            "zs_req_header(ZS_STR(\"host\"), WILD, 8)",
            "zs_req_header(out, 1 << 20, out, 8)",
            "zs_req_header(out, ~0ULL, out, 8)",
            "zs_req_header(out, 8, out, 8)",
            "zs_req_query_param(WILD, 4, out, 8)",
            "zs_req_query_param(ZS_STR(\"a\"), WILD, 8)",
            "zs_req_query_param_matches(WILD, 4, out, 8)",
            "zs_req_query_param_matches(out, 8, WILD, 8)",
        ],
    );
}

#[test]
fn any_value_of_a_query_parameter_matches() {
    let mut exchange = exchange();
    exchange.request.set_target(b"/?a=1&b=x%20y&a=2&c").unwrap();
    checks_hold(
        &mut exchange,
        r#"char out[8];
        CHECK(zs_req_query_param(ZS_STR("b"), out, sizeof out) == 3); CHECK_TEXT(out, "x y");
        CHECK(zs_req_query_param_matches(ZS_STR("a"), ZS_STR("1")) == 1);
        CHECK(zs_req_query_param_matches(ZS_STR("a"), ZS_STR("2")) == 1);
        CHECK(zs_req_query_param_matches(ZS_STR("a"), ZS_STR("3")) == 0);
        CHECK(zs_req_query_param_matches(ZS_STR("a"), ZS_STR("")) == 0);
        CHECK(zs_req_query_param_matches(ZS_STR("b"), ZS_STR("x y")) == 1);
        CHECK(zs_req_query_param_matches(ZS_STR("c"), ZS_STR("")) == 1);
        CHECK(zs_req_query_param_matches(ZS_STR("c"), ZS_STR("*")) == 1);
        CHECK(zs_req_query_param_matches(ZS_STR("d"), ZS_STR("*")) == 0);"#,
    );
}
