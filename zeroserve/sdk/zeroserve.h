/* SPDX-License-Identifier: MIT */
/* What a zeroserve script includes: types, sections, the server's helpers, and small string functions.
 * A script is compiled with `clang -target bpf` and runs in the server for each request. It knows no libc and
 * no kernel, and its memory is its stack: what it stores in a variable outside a function can't be changed.
 *
 * Strings go in as pointer and length. A helper that writes a string writes at most out_len bytes, the
 * terminating NUL among them, and returns the full length, as snprintf does; with out_len 0 it only returns
 * the length. What a request does not have reads as the empty string. Errors are negative. A pointer that is
 * not the script's own memory ends the script. */
#ifndef ZEROSERVE_H
#define ZEROSERVE_H

typedef signed char int8_t;
typedef short int16_t;
typedef int int32_t;
typedef long long int64_t;
typedef unsigned char uint8_t;
typedef unsigned short uint16_t;
typedef unsigned int uint32_t;
typedef unsigned long long uint64_t;
typedef __SIZE_TYPE__ size_t;
typedef __PTRDIFF_TYPE__ ssize_t;

typedef int8_t zs_s8;
typedef int16_t zs_s16;
typedef int32_t zs_s32;
typedef int64_t zs_s64;
typedef uint8_t zs_u8;
typedef uint16_t zs_u16;
typedef uint32_t zs_u32;
typedef uint64_t zs_u64;

#define ZS_SECTION(name) __attribute__((section(name)))
#define ZS_INLINE __attribute__((always_inline))
#define ZS_MAYBE_UNUSED __attribute__((unused))
#define ZS_MIN(a, b) ((a) < (b) ? (a) : (b))
#define ZS_MAX(a, b) ((a) > (b) ? (a) : (b))

/* A string as pointer, length: a literal (measured by the compiler) or anything that ends with a NUL. */
#define ZS_STR(text) (text), ZS_STRLEN(text)
/* The same with the NUL counted. */
#define ZS_STR_WITH_NULL(text) (text), (ZS_STRLEN(text) + 1)
#define ZS_STRLEN(text)                                                                                      \
    __builtin_choose_expr(__builtin_constant_p(text), __builtin_strlen(text), zs_strlen(text))

/* ---- where a script begins: one function for each section of an object, and nothing global before it ----
 */

/* ZS_ENTRY zs_u64 entry(void) { ... } runs for each request. What it returns is not looked at. */
#define ZS_ENTRY ZS_SECTION("zeroserve.request")
/* ZS_TLS_ENTRY zs_u64 hello(void) { ... } runs at the ClientHello. */
#define ZS_TLS_ENTRY ZS_SECTION("zeroserve.tls")
/* ZS_CALL_ENTRY(name, input) { ... return output; } runs when a script calls it. Input and output are zs_s64.
 */
#define ZS_CALL_ENTRY(name, input)                                                                           \
    static ZS_INLINE zs_s64 zs_call_body_##name(zs_s64 input);                                               \
    ZS_SECTION("zeroserve.call." #name) zs_s64 zs_call_entry_##name(const zs_s64 *zs_call_input) {           \
        return zs_call_body_##name(*zs_call_input);                                                          \
    }                                                                                                        \
    static ZS_INLINE zs_s64 zs_call_body_##name(zs_s64 input)

/* ---- log and time ---- */

/* Writes a line to the server's log, with the script's name. 0, or -1 when the request has said enough (32
 * lines of at most 1024 bytes; what is longer is cut). */
extern zs_s64 zs_log(const char *message, zs_u64 len);
/* Milliseconds since 1970. */
extern zs_u64 zs_now_ms(void);

/* ---- request ---- */

extern zs_s64 zs_req_method(char *out, zs_u64 out_len);
/* The path as received, still percent-encoded, without the query. */
extern zs_s64 zs_req_path(char *out, zs_u64 out_len);
/* The path percent-decoded once and without dot segments: what names the file that is served. -1 when it
 * leaves the root or is malformed. */
extern zs_s64 zs_req_normalized_path(char *out, zs_u64 out_len);
/* Path and query as received. */
extern zs_s64 zs_req_uri(char *out, zs_u64 out_len);
/* The query without its question mark. */
extern zs_s64 zs_req_query(char *out, zs_u64 out_len);
/* "http" or "https". */
extern zs_s64 zs_req_scheme(char *out, zs_u64 out_len);
/* The client's IP address. */
extern zs_s64 zs_req_peer(char *out, zs_u64 out_len);
/* The first value of a field, whatever the case of its name. */
extern zs_s64 zs_req_header(const char *name, zs_u64 name_len, char *out, zs_u64 out_len);
/* The first value of a query parameter, decoded. */
extern zs_s64 zs_req_query_param(const char *name, zs_u64 name_len, char *out, zs_u64 out_len);
/* 1 when any value of a query parameter, decoded, is this one, or when value is "*" and there is one; else 0.
 */
extern zs_s64 zs_req_query_param_matches(const char *name, zs_u64 name_len, const char *value,
                                         zs_u64 value_len);
/* HTTP's version: 1 and 0, 1 and 1, or 2 and 0. */
extern zs_s64 zs_req_proto_major(void);
extern zs_s64 zs_req_proto_minor(void);
/* 1 when the request came over TLS; otherwise 0. */
extern zs_s64 zs_req_is_tls(void);

/* ---- metadata: one map for each request, shared by all scripts ---- */

extern zs_s64 zs_meta_get(const char *key, zs_u64 key_len, char *out, zs_u64 out_len);
/* A key zs.response.header.NAME becomes a response header, whatever answers the request. 0, or -1 when the
 * key or value is not allowed (no header's name or value, or one that the server manages) or the map is full
 * (128 keys of at most 256 bytes, 64 KiB together). */
extern zs_s64 zs_meta_set(const char *key, zs_u64 key_len, const char *value, zs_u64 value_len);

/* ---- response ---- */

/* Answers the request and, when this script has returned, ends the chain; of several answers the last counts.
 * 0, or -1 when the status is not from 200 to 599. */
extern zs_s64 zs_respond(zs_u64 status, const void *body, zs_u64 len);

/* ---- memory ---- */

extern void *zs_memcpy(void *to, const void *from, size_t len);
extern int zs_memcmp(const void *one, const void *other, size_t len);
extern void *zs_memset(void *to, int byte, size_t len);

/* ---- strings, in the script itself ---- */

static ZS_INLINE ZS_MAYBE_UNUSED size_t zs_strlen(const char *text) {
    size_t len = 0;
    while (text[len])
        len++;
    return len;
}

static ZS_INLINE ZS_MAYBE_UNUSED int zs_strncmp(const char *one, const char *other, size_t len) {
    for (; len > 0; len--, one++, other++) {
        int difference = (int)(unsigned char)*one - (int)(unsigned char)*other;
        if (difference || !*one)
            return difference;
    }
    return 0;
}

static ZS_INLINE ZS_MAYBE_UNUSED int zs_strcmp(const char *one, const char *other) {
    return zs_strncmp(one, other, (size_t)-1);
}

/* Returns where the terminating NUL went, so that the next part can go there. */
static ZS_INLINE ZS_MAYBE_UNUSED char *zs_stpcpy(char *to, const char *from) {
    while ((*to = *from)) {
        to++;
        from++;
    }
    return to;
}

static ZS_INLINE ZS_MAYBE_UNUSED char *zs_strcpy(char *to, const char *from) {
    zs_stpcpy(to, from);
    return to;
}

/* As in C: fills up with NULs, and leaves them all out when the text has len bytes or more. */
static ZS_INLINE ZS_MAYBE_UNUSED char *zs_strncpy(char *to, const char *from, size_t len) {
    size_t at = 0;
    for (; at < len && from[at]; at++)
        to[at] = from[at];
    for (; at < len; at++)
        to[at] = 0;
    return to;
}

/* The last place of a character, or 0. */
static ZS_INLINE ZS_MAYBE_UNUSED char *zs_strrchr(const char *text, int wanted) {
    const char *found = 0;
    for (;; text++) {
        if (*text == (char)wanted)
            found = text;
        if (!*text)
            return (char *)found;
    }
}

/* Writes a number in decimal and a NUL. The number of digits, or -1 when out_size is too small for them. */
static ZS_INLINE ZS_MAYBE_UNUSED int zs_utoa10(unsigned int value, char *out, size_t out_size) {
    int digits = 1;
    for (unsigned int rest = value; rest >= 10; rest /= 10)
        digits++;
    if (!out || out_size <= (size_t)digits)
        return -1;
    out[digits] = 0;
    for (int at = digits - 1; at >= 0; at--) {
        out[at] = (char)('0' + value % 10);
        value /= 10;
    }
    return digits;
}

#endif
