// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * The XDP program: parse, look up, count, verdict. What a rule means is defined in policy.py; how a frame is
 * read is in parse.h; what user space sees is in maps.h.
 *
 * `make bpf` builds it (tools/bpf.sh), with clang 14 or later. The verifiers of Linux 6.1, 6.18 and 7.3 were
 * seen to accept the objects of clang 14 and 19.
 */
#include "maps.h"
#include "parse.h"

#define ZS_NEVER (~0ULL)

static __always_inline bool is_unwanted_port(const struct packet *packet, __u32 slot) {
    void *ports = bpf_map_lookup_elem(&zs_ports, &slot);
    struct zs_ports *rules;
    __u32 first = 0, port = packet->destination_port;
    __u64 word;

    if (!ports)
        return false;
    rules = bpf_map_lookup_elem(ports, &first);
    if (!rules)
        return false;
    if (packet->protocol == IPPROTO_UDP)
        word = rules->udp[port / 64];
    else
        word = rules->tcp[port / 64];
    return word >> (port % 64) & 1;
}

/* User space has given each prefix the latest end of all rules that cover it, so the longest match is the
 * answer. */
static __always_inline bool is_unwanted_source(const struct packet *packet, __u64 state, __u32 slot) {
    __u64 *expires = NULL;
    void *sources;

    if (packet->family == 4 && state & ZS_STATE_SOURCES_V4) {
        struct zs_prefix_v4 key = {.bits = 32};

        __builtin_memcpy(key.address, packet->source, sizeof(key.address));
        sources = bpf_map_lookup_elem(&zs_sources_v4, &slot);
        if (sources)
            expires = bpf_map_lookup_elem(sources, &key);
    } else if (packet->family == 6 && state & ZS_STATE_SOURCES_V6) {
        struct zs_prefix_v6 key = {.bits = 128};

        __builtin_memcpy(key.address, packet->source, sizeof(key.address));
        sources = bpf_map_lookup_elem(&zs_sources_v6, &slot);
        if (sources)
            expires = bpf_map_lookup_elem(sources, &key);
    }
    return expires && (*expires == ZS_NEVER || bpf_ktime_get_boot_ns() < *expires);
}

static __always_inline enum zs_reason judge(const struct packet *packet, enum zs_reading reading,
                                            __u64 state) {
    __u32 slot = (state & ZS_STATE_SLOT) != 0;

    if (reading == ZS_FOREIGN)
        return ZS_NOT_IP;
    if (reading == ZS_UNREADABLE)
        return ZS_MALFORMED;
    if (packet->has_ports && state & ZS_STATE_PORTS && is_unwanted_port(packet, slot))
        return ZS_PORT;
    if (is_unwanted_source(packet, state, slot))
        return ZS_SOURCE;
    return packet->later_fragment ? ZS_FRAGMENT : ZS_CLEAN;
}

static __always_inline bool is_unwanted(enum zs_reason reason) {
    return reason == ZS_MALFORMED || reason == ZS_PORT || reason == ZS_SOURCE;
}

static __always_inline void count(enum zs_verdict verdict, enum zs_reason reason, __u32 frame_bytes) {
    __u32 index = verdict * ZS_REASONS + reason;
    struct zs_total *total = bpf_map_lookup_elem(&zs_totals, &index);

    if (!total)
        return;
    total->packets++;
    total->bytes += frame_bytes;
}

static __always_inline void sample(const struct packet *packet, enum zs_reason reason, __u32 ifindex,
                                   __u32 frame_bytes) {
    __u32 first = 0;
    struct zs_sampling *sampling = bpf_map_lookup_elem(&zs_sampling, &first);
    struct zs_sample *sample;

    if (!sampling || sampling->dropped++ % ZS_SAMPLE_EVERY)
        return;
    sample = bpf_ringbuf_reserve(&zs_samples, sizeof(*sample), 0);
    if (!sample) {
        sampling->lost++;
        return;
    }
    sample->boot_ns = bpf_ktime_get_boot_ns();
    sample->ifindex = ifindex;
    sample->frame_bytes = frame_bytes;
    __builtin_memcpy(sample->source, packet->source, sizeof(sample->source));
    sample->source_port = packet->source_port;
    sample->destination_port = packet->destination_port;
    sample->family = packet->family;
    sample->protocol = packet->protocol;
    sample->vlan_tags = packet->vlan_tags;
    sample->reason = reason;
    bpf_ringbuf_submit(sample, 0);
}

SEC("xdp")
int zs_prefilter(struct xdp_md *context) {
    __u32 first = 0, frame_bytes = context->data_end - context->data;
    __u64 *state = bpf_map_lookup_elem(&zs_state, &first);
    struct packet packet = {};
    enum zs_verdict verdict = ZS_PASS;
    enum zs_reason reason;
    __u64 now;

    if (!state)
        return XDP_PASS;
    now = *(volatile __u64 *)state; /* read once: a new policy may be switched in meanwhile */
    reason = judge(&packet, read_packet(context, &packet), now);
    if (now & ZS_STATE_PROTECT && is_unwanted(reason))
        verdict = ZS_DROP;
    count(verdict, reason, frame_bytes);
    if (verdict == ZS_PASS)
        return XDP_PASS;
    sample(&packet, reason, context->ingress_ifindex, frame_bytes);
    return XDP_DROP;
}

char _license[] SEC("license") = "Dual MIT/GPL";
