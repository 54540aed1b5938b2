//! The memory helpers, and the functions that the SDK header brings into a script.

use super::{checks_hold, each_ends_the_script, exchange};

#[test]
fn memory_helpers_do_what_c_does() {
    checks_hold(
        &mut exchange(),
        r#"char one[16]; char other[16];
        CHECK(zs_memset(one, 0x141, 15) == one); one[15] = 0; CHECK_TEXT(one, "AAAAAAAAAAAAAAA");
        CHECK(zs_memset(one + 1, 'B', 0) == one + 1); CHECK(one[1] == 'A');
        CHECK(zs_memcpy(other, one, 16) == other); CHECK_TEXT(other, "AAAAAAAAAAAAAAA");
        CHECK(zs_memcpy(one, "constant", 9) == one); CHECK_TEXT(one, "constant");
        CHECK(zs_memcpy(one, one, 16) == one); CHECK_TEXT(one, "constant");
        CHECK(zs_memcpy(WILD, WILD + 1, 0) == WILD);
        CHECK(zs_memcmp("abc", "abd", 3) < 0); CHECK(zs_memcmp("abd", "abc", 3) > 0);
        CHECK(zs_memcmp("abc", "abd", 2) == 0); CHECK(zs_memcmp("\xff", "a", 1) > 0);
        CHECK(zs_memcmp(one, one, 16) == 0); CHECK(zs_memcmp(WILD, one, 0) == 0);"#,
    );
}

#[test]
fn a_pointer_elsewhere_ends_the_script() {
    each_ends_the_script(
        &mut exchange(),
        &[
            "zs_memcpy(out, WILD, 8)",
            "zs_memcpy(WILD, out, 8)",
            "zs_memcpy(WILD, WILD, 8)",
            "zs_memcpy(out, out + 1, 8)",
            "zs_memcpy((char *)\"constant\", out, 8)",
            "zs_memcpy(out, \"constant\", 1 << 20)",
            "zs_memset(WILD, 0, 8)",
            "zs_memset(0, 0, 1)",
            "zs_memset((char *)\"constant\", 0, 8)",
            "zs_memset(out, 0, 1 << 20)",
            "zs_memset(out, 0, ~0ULL)",
            "zs_memcmp(WILD, out, 8)",
            "zs_memcmp(out, WILD, 8)",
            "zs_memcmp(out, out, ~0ULL)",
        ],
    );
}

#[test]
fn string_functions_do_what_c_does() {
    let mut exchange = exchange();
    exchange.request.append_header(b"text", b"a/b/c").unwrap();
    checks_hold(
        &mut exchange,
        r#"char text[16]; char out[32]; zs_req_header(ZS_STR("text"), text, sizeof text);
        CHECK(zs_strlen(text) == 5); CHECK(zs_strlen("") == 0);
        CHECK(zs_strcmp(text, "a/b/c") == 0); CHECK(zs_strcmp(text, "a/b") > 0); CHECK(zs_strcmp("a/b", text) < 0);
        CHECK(zs_strcmp("\xff", text) > 0); CHECK(zs_strcmp("", text) < 0); CHECK(zs_strcmp("", "") == 0);
        CHECK(zs_strncmp(text, "a/bxx", 3) == 0); CHECK(zs_strncmp(text, "a/bxx", 4) < 0);
        CHECK(zs_strncmp(text, "zz", 0) == 0); CHECK(zs_strncmp(text, "a/b/c", 99) == 0);
        CHECK(zs_strcpy(out, text) == out); CHECK_TEXT(out, "a/b/c");
        char *end = zs_stpcpy(zs_stpcpy(out, text), "!"); CHECK(end == out + 6); CHECK_TEXT(out, "a/b/c!");
        CHECK(zs_strncpy(out, text, 2) == out); CHECK_TEXT(out, "a/b/c!");
        zs_memset(out, 'x', sizeof out); zs_strncpy(out, text, 8); CHECK_TEXT(out, "a/b/c");
        CHECK(out[7] == 0); CHECK(out[8] == 'x');
        CHECK(zs_strrchr(text, '/') == text + 3); CHECK(zs_strrchr(text, 'z') == 0);
        CHECK(zs_strrchr(text, 0) == text + 5); CHECK(zs_strrchr("", 'a') == 0);"#,
    );
}

#[test]
fn numbers_are_written_in_decimal_where_they_fit() {
    let mut exchange = exchange();
    exchange.request.append_header(b"n", b"12345").unwrap();
    checks_hold(
        &mut exchange,
        r#"char out[16]; unsigned int n = (unsigned int)zs_req_header(ZS_STR("n"), out, sizeof out);
        CHECK(zs_utoa10(n - 5, out, 16) == 1); CHECK_TEXT(out, "0");
        CHECK(zs_utoa10(n * 2, out, 16) == 2); CHECK_TEXT(out, "10");
        CHECK(zs_utoa10(n * 2 - 1, out, 2) == 1); CHECK_TEXT(out, "9");
        CHECK(zs_utoa10(n - 6, out, 11) == 10); CHECK_TEXT(out, "4294967295");
        out[0] = 'x'; CHECK(zs_utoa10(n - 6, out, 10) == -1); CHECK(zs_utoa10(n, out, 1) == -1);
        CHECK(zs_utoa10(n, out, 0) == -1); CHECK(zs_utoa10(n, 0, 9) == -1); CHECK(out[0] == 'x');"#,
    );
}

#[test]
fn a_literal_is_measured_by_the_compiler_and_a_buffer_when_the_script_runs() {
    checks_hold(
        &mut exchange(),
        r#"char buffer[160]; zs_strcpy(buffer, "short");
        const char *pointer = buffer;
        zs_meta_set(ZS_STR("literal"), ZS_STR("abc"));
        zs_meta_set(ZS_STR("buffer"), ZS_STR(buffer));
        zs_meta_set(ZS_STR("pointer"), ZS_STR(pointer + 1));
        zs_meta_set(ZS_STR("null"), ZS_STR_WITH_NULL("abc"));
        CHECK(zs_meta_get(ZS_STR("literal"), 0, 0) == 3); CHECK(zs_meta_get(ZS_STR("buffer"), 0, 0) == 5);
        CHECK(zs_meta_get(ZS_STR("pointer"), 0, 0) == 4); CHECK(zs_meta_get(ZS_STR("null"), 0, 0) == 4);
        CHECK(ZS_MIN(3, 2) == 2); CHECK(ZS_MAX(3, 2) == 3);"#,
    );
}
