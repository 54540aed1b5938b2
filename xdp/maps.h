/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * What the filter and user space share: codes, record layouts and the maps themselves. No packet is read
 * here. `layout.py` mirrors it in Python; the loader compares the sizes and a unit test compares the codes.
 */
#ifndef ZS_MAPS_H
#define ZS_MAPS_H

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

enum zs_verdict {
    ZS_PASS,
    ZS_DROP,
    ZS_VERDICTS,
};

/* Why a packet got its verdict. A packet has exactly one reason: policy.py says which. */
enum zs_reason {
    ZS_CLEAN,
    ZS_NOT_IP,
    ZS_MALFORMED,
    ZS_PORT,
    ZS_SOURCE,
    ZS_FRAGMENT,
    ZS_REASONS,
};

/*
 * The whole switchable state is one 64-bit word, so that a program sees either the old policy or the new one
 * and never a mixture: the array map copies aligned 64-bit values in one store. Bits 32-63 count the policies
 * applied.
 */
enum zs_state {
    ZS_STATE_PROTECT = 1 << 0,    /* drop; otherwise monitor: count what would be dropped, and pass it */
    ZS_STATE_SLOT = 1 << 1,       /* which of the two slots below holds the rules in force */
    ZS_STATE_PORTS = 1 << 2,      /* that slot has port rules */
    ZS_STATE_SOURCES_V4 = 1 << 3, /* ... and IPv4 source rules */
    ZS_STATE_SOURCES_V6 = 1 << 4,
};

enum zs_limits {
    ZS_SLOTS = 2,
    ZS_PORT_WORDS = 65536 / 64,
    ZS_SAMPLE_EVERY = 64,
    ZS_SAMPLES_BYTES = 1 << 18, /* a multiple of every page size in use (4, 16 and 64 KiB) */
};

struct zs_ports {
    __u64 udp[ZS_PORT_WORDS]; /* bit n % 64 of word n / 64: destination port n is unwanted */
    __u64 tcp[ZS_PORT_WORDS];
};

struct zs_prefix_v4 {
    __u32 bits;
    __u8 address[4];
};

struct zs_prefix_v6 {
    __u32 bits;
    __u8 address[16];
};

struct zs_total {
    __u64 packets;
    __u64 bytes; /* of the whole frame, from the Ethernet header on */
};

struct zs_sampling {
    __u64 dropped; /* on this CPU; every ZS_SAMPLE_EVERY-th one, from the first on, is sampled */
    __u64 lost;    /* samples that found the ring full */
};

struct zs_sample {
    __u64 boot_ns; /* CLOCK_BOOTTIME */
    __u32 ifindex;
    __u32 frame_bytes;
    __u8 source[16];   /* an IPv4 address fills the first four */
    __u16 source_port; /* host order; 0 where there is none to read */
    __u16 destination_port;
    __u8 family;   /* 4, 6, or 0 when the IP header could not be read */
    __u8 protocol; /* IP protocol number; 0 when it could not be read */
    __u8 vlan_tags;
    __u8 reason; /* enum zs_reason */
};

/* Templates of what the slots hold. Sizes, not types: clang leaves a type out of BTF that only a template
 * names. */
struct ports_map {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, 1);
    __uint(key_size, sizeof(__u32));
    __uint(value_size, sizeof(struct zs_ports));
};

/* Value: the CLOCK_BOOTTIME ns at which the rule ends; all ones: never. */
struct sources_v4_map {
    __uint(type, BPF_MAP_TYPE_LPM_TRIE);
    __uint(map_flags, BPF_F_NO_PREALLOC);
    __uint(max_entries, 1 << 20);
    __uint(key_size, sizeof(struct zs_prefix_v4));
    __uint(value_size, sizeof(__u64));
};

struct sources_v6_map {
    __uint(type, BPF_MAP_TYPE_LPM_TRIE);
    __uint(map_flags, BPF_F_NO_PREALLOC);
    __uint(max_entries, 1 << 20);
    __uint(key_size, sizeof(struct zs_prefix_v6));
    __uint(value_size, sizeof(__u64));
};

struct {
    __uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
    __uint(max_entries, ZS_SLOTS);
    __type(key, __u32);
    __array(values, struct ports_map);
} zs_ports SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
    __uint(max_entries, ZS_SLOTS);
    __type(key, __u32);
    __array(values, struct sources_v4_map);
} zs_sources_v4 SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
    __uint(max_entries, ZS_SLOTS);
    __type(key, __u32);
    __array(values, struct sources_v6_map);
} zs_sources_v6 SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, 1);
    __type(key, __u32);
    __type(value, __u64);
} zs_state SEC(".maps");

/* Index: verdict * ZS_REASONS + reason. */
struct {
    __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
    __uint(max_entries, ZS_VERDICTS *ZS_REASONS);
    __type(key, __u32);
    __type(value, struct zs_total);
} zs_totals SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
    __uint(max_entries, 1);
    __type(key, __u32);
    __type(value, struct zs_sampling);
} zs_sampling SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_RINGBUF);
    __uint(max_entries, ZS_SAMPLES_BYTES);
} zs_samples SEC(".maps");

#endif
