/* SPDX-License-Identifier: MIT */
/* What a zeroserve script includes: types, sections, the server's helpers, and small string functions.
 * A script is compiled with `clang -target bpf` and runs in the server for each request. It knows no libc and no kernel.
 *
 * Strings go in as pointer and length. A helper that writes a string writes at most `cap` bytes, the terminating NUL among
 * them, and returns the full length, as snprintf does; with cap 0 it only returns the length. Errors are negative. A
 * pointer that is not the script's own memory ends the script. */
#ifndef ZEROSERVE_H
#define ZEROSERVE_H

typedef unsigned char zs_u8;
typedef unsigned short zs_u16;
typedef unsigned int zs_u32;
typedef unsigned long long zs_u64;
typedef signed char zs_s8;
typedef short zs_s16;
typedef int zs_s32;
typedef long long zs_s64;

#define ZS_INLINE static inline __attribute__((always_inline, unused))

/* A string literal as pointer, length. */
#define ZS_STR(text) (text), (sizeof(text) - 1)

/* ZS_ENTRY zs_u64 handle(void) { ... }: runs for each request. What it returns is not looked at. */
#define ZS_ENTRY __attribute__((section("zeroserve.request"), used))
/* ZS_CALL_ENTRY(name, input) { ... }: runs when another script calls it. */
#define ZS_CALL_ENTRY(name, input)                                                                                     \
    __attribute__((section("zeroserve.call." #name), used)) zs_s64 zs_call_entry_##name(zs_s64 input)
/* ZS_TLS_ENTRY zs_u64 hello(void) { ... }: runs at the ClientHello. */
#define ZS_TLS_ENTRY __attribute__((section("zeroserve.tls"), used))

/* ---- log ---- */

/* Writes a line to the server's log, with the script's name. Long lines and many lines are cut short. */
extern zs_s64 zs_log(const char *message, zs_u64 len);

/* ---- request ---- */

extern zs_s64 zs_req_method(char *out, zs_u64 cap);
/* The path as received, still percent-encoded, without the query. */
extern zs_s64 zs_req_path(char *out, zs_u64 cap);
/* The path percent-decoded once and without dot segments; -1 when it leaves the root or is malformed. */
extern zs_s64 zs_req_normalized_path(char *out, zs_u64 cap);
/* Path and query as received. */
extern zs_s64 zs_req_uri(char *out, zs_u64 cap);
/* The query without its question mark; empty when there is none. */
extern zs_s64 zs_req_query(char *out, zs_u64 cap);
/* "http" or "https". */
extern zs_s64 zs_req_scheme(char *out, zs_u64 cap);
/* The client's IP address. */
extern zs_s64 zs_req_peer(char *out, zs_u64 cap);
/* The first value of a field, whatever the case of its name; -1 when the request has none. */
extern zs_s64 zs_req_header(const char *name, zs_u64 name_len, char *out, zs_u64 cap);
/* The first value of a query parameter, decoded; -1 when there is none. */
extern zs_s64 zs_req_query_param(const char *name, zs_u64 name_len, char *out, zs_u64 cap);
/* 1 when the first value of a query parameter, decoded, is this one; otherwise 0. */
extern zs_s64 zs_req_query_param_matches(const char *name, zs_u64 name_len, const char *value, zs_u64 value_len);
extern zs_s64 zs_req_proto_major(void);
extern zs_s64 zs_req_proto_minor(void);
/* 1 when the request came over TLS; otherwise 0. */
extern zs_s64 zs_req_is_tls(void);

/* ---- metadata: one map for each request, shared by all scripts ---- */

/* -1 when the key has no value. */
extern zs_s64 zs_meta_get(const char *key, zs_u64 key_len, char *out, zs_u64 cap);
/* Keys `zs.response.header.NAME` become response headers, whatever answers the request. 0, or -1 when the key or value is
 * not allowed or the map is full. */
extern zs_s64 zs_meta_set(const char *key, zs_u64 key_len, const char *value, zs_u64 value_len);

/* ---- response ---- */

/* Answers the request and, when this script has ended, ends the chain. 0, or -1 when the status is not from 200 to 599. */
extern zs_s64 zs_respond(zs_u64 status, const char *body, zs_u64 len);

/* ---- memory ---- */

extern zs_s64 zs_memcpy(void *to, const void *from, zs_u64 len);
extern zs_s64 zs_memset(void *to, zs_u64 byte, zs_u64 len);
/* Below, equal to or above 0, as memcmp. */
extern zs_s64 zs_memcmp(const void *one, const void *other, zs_u64 len);

/* ---- strings, in the script itself ---- */

ZS_INLINE zs_u64 zs_strlen(const char *text) {
    zs_u64 len = 0;
    while (text[len])
        len++;
    return len;
}

ZS_INLINE int zs_strncmp(const char *one, const char *other, zs_u64 len) {
    for (zs_u64 at = 0; at < len; at++) {
        if (one[at] != other[at])
            return (zs_u8)one[at] < (zs_u8)other[at] ? -1 : 1;
        if (!one[at])
            return 0;
    }
    return 0;
}

ZS_INLINE int zs_strcmp(const char *one, const char *other) {
    return zs_strncmp(one, other, ~0ULL);
}

/* Returns where the terminating NUL went, so that the next part can go there. */
ZS_INLINE char *zs_stpcpy(char *to, const char *from) {
    while ((*to = *from)) {
        to++;
        from++;
    }
    return to;
}

ZS_INLINE char *zs_strcpy(char *to, const char *from) {
    zs_stpcpy(to, from);
    return to;
}

ZS_INLINE char *zs_strncpy(char *to, const char *from, zs_u64 len) {
    zs_u64 at = 0;
    for (; at < len && from[at]; at++)
        to[at] = from[at];
    for (; at < len; at++)
        to[at] = 0;
    return to;
}

/* The last place of a character, or 0. */
ZS_INLINE const char *zs_strrchr(const char *text, char wanted) {
    const char *found = 0;
    for (;; text++) {
        if (*text == wanted)
            found = text;
        if (!*text)
            return found;
    }
}

/* Writes a number in decimal and a NUL, at most 21 bytes; returns the number of digits. */
ZS_INLINE zs_u64 zs_utoa10(zs_u64 value, char *out) {
    zs_u64 digits = 1;
    for (zs_u64 rest = value; rest >= 10; rest /= 10)
        digits++;
    out[digits] = 0;
    for (zs_u64 at = digits; at > 0; at--) {
        out[at - 1] = (char)('0' + value % 10);
        value /= 10;
    }
    return digits;
}

#endif
