/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * Reads a frame's headers, each through a bounds-checked cursor, as far as the ports. It decides nothing and
 * counts nothing; `packet.py` is the same reading in Python, and the tests hold the two against each other.
 */
#ifndef ZS_PARSE_H
#define ZS_PARSE_H

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <stdbool.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

enum zs_parse_limits {
    ZS_MAX_VLAN_TAGS = 2,   /* one tag, or QinQ */
    ZS_MAX_EXTENSIONS = 8,  /* RFC 8504 section 5.3 allows a host such a limit */
    ZS_MAX_OFFSET = 0x7fff, /* all ones, and above eight extension headers of 2048 bytes */
};

enum zs_extension {
    ZS_HOP_BY_HOP = 0,
    ZS_ROUTING = 43,
    ZS_FRAGMENT_HEADER = 44,
    ZS_AUTHENTICATION = 51,
    ZS_DESTINATION = 60,
};

#define ZS_IPV4_OFFSET 0x1fff /* in units of eight bytes */
#define ZS_IPV6_OFFSET 0xfff8 /* in bytes: the low three bits are flags */

enum zs_reading {
    ZS_READ,       /* the headers were read as far as they go */
    ZS_FOREIGN,    /* not IP */
    ZS_UNREADABLE, /* truncated, or lengths that contradict each other */
};

struct packet {
    __u32 source[4]; /* network order; an IPv4 address fills the first word */
    __u16 source_port;
    __u16 destination_port;
    __u8 family; /* 4, 6, or 0 */
    __u8 protocol;
    __u8 vlan_tags;
    bool later_fragment; /* not the first fragment: its ports are in another packet */
    bool has_ports;
};

/* `left` is what the IP header says remains, which may be less than the frame holds (Ethernet padding). */
struct cursor {
    void *position;
    void *end;
    __u32 left;
};

struct vlan_tag {
    __be16 control;
    __be16 ether_type;
};

struct extension {
    __u8 next;
    __u8 length;
    __be16 offset_and_flags; /* in a fragment header only */
};

struct port_pair {
    __be16 source;
    __be16 destination;
};

/* The header at the cursor, or NULL where the frame ends before it does. The cursor stays. */
#define ZS_PEEK(cursor, type)                                                                                \
    ((cursor)->position + sizeof(type) > (cursor)->end ? (type *)0 : (type *)(cursor)->position)

/*
 * The address `offset` bytes into the frame. The mask changes nothing, since no chain gets that far; it is
 * the bound that the verifier wants, on the very register that is added, and the compiler must not see that
 * it changes nothing.
 */
static __always_inline void *frame_at(void *data, __u64 offset) {
    asm volatile("" : "+r"(offset));
    return data + (offset & ZS_MAX_OFFSET);
}

static __always_inline bool is_vlan(__be16 ether_type) {
    return ether_type == bpf_htons(ETH_P_8021Q) || ether_type == bpf_htons(ETH_P_8021AD);
}

static __always_inline enum zs_reading read_ethernet(struct cursor *cursor, struct packet *packet,
                                                     __be16 *ether_type) {
    struct ethhdr *ethernet = ZS_PEEK(cursor, struct ethhdr);

    if (!ethernet)
        return ZS_UNREADABLE;
    *ether_type = ethernet->h_proto;
    cursor->position = ethernet + 1;
    for (int i = 0; i < ZS_MAX_VLAN_TAGS && is_vlan(*ether_type); i++) {
        struct vlan_tag *tag = ZS_PEEK(cursor, struct vlan_tag);

        if (!tag)
            return ZS_UNREADABLE;
        *ether_type = tag->ether_type;
        cursor->position = tag + 1;
        packet->vlan_tags++;
    }
    return is_vlan(*ether_type) ? ZS_UNREADABLE : ZS_READ;
}

static __always_inline enum zs_reading read_ports(struct cursor *cursor, struct packet *packet) {
    struct port_pair *ports;

    if (packet->protocol != IPPROTO_UDP && packet->protocol != IPPROTO_TCP)
        return ZS_READ;
    ports = ZS_PEEK(cursor, struct port_pair);
    if (!ports || cursor->left < sizeof(*ports))
        return ZS_UNREADABLE;
    packet->source_port = bpf_ntohs(ports->source);
    packet->destination_port = bpf_ntohs(ports->destination);
    packet->has_ports = true;
    return ZS_READ;
}

static __always_inline enum zs_reading read_ipv4(struct cursor *cursor, struct packet *packet) {
    struct iphdr *ip = ZS_PEEK(cursor, struct iphdr);
    __u32 header_bytes, total_bytes;

    if (!ip || ip->version != 4)
        return ZS_UNREADABLE;
    header_bytes = ip->ihl * 4;
    total_bytes = bpf_ntohs(ip->tot_len);
    if (header_bytes < sizeof(*ip) || total_bytes < header_bytes ||
        total_bytes > cursor->end - cursor->position)
        return ZS_UNREADABLE;
    packet->family = 4;
    packet->protocol = ip->protocol;
    packet->source[0] = ip->saddr;
    if (ip->frag_off & bpf_htons(ZS_IPV4_OFFSET)) {
        packet->later_fragment = true;
        return ZS_READ;
    }
    cursor->position += header_bytes;
    cursor->left = total_bytes - header_bytes;
    return read_ports(cursor, packet);
}

/* One bit a protocol, so that the verifier has one branch to follow and not five: the numbers are all
 * below 64. */
static __always_inline bool is_extension(__u8 protocol) {
    const __u64 extensions = 1ULL << ZS_HOP_BY_HOP | 1ULL << ZS_ROUTING | 1ULL << ZS_FRAGMENT_HEADER |
                             1ULL << ZS_AUTHENTICATION | 1ULL << ZS_DESTINATION;

    return protocol < 64 && extensions >> protocol & 1;
}

/* Where a walk along extension headers stands. Offsets, because a function of its own cannot be handed
 * pointers. */
struct chain {
    __u32 offset; /* of the next header, from the start of the frame */
    __u32 left;
    __u8 protocol;
    bool seen_fragment;
    bool later_fragment;
};

/*
 * Steps over the extension header that `chain` names. A global function: the verifier looks at it once, on
 * its own, instead of along every way through eight headers, which takes the load time from 60 ms to a few.
 */
__noinline int zs_step_extension(struct xdp_md *context, struct chain *chain) {
    void *data = (void *)(long)context->data;
    struct cursor cursor = {.end = (void *)(long)context->data_end};
    struct extension *header;
    __u32 bytes;

    if (!chain)
        return ZS_UNREADABLE;
    cursor.position = frame_at(data, chain->offset);
    header = ZS_PEEK(&cursor, struct extension);
    if (!header)
        return ZS_UNREADABLE;
    if (chain->protocol == ZS_FRAGMENT_HEADER) {
        if (chain->seen_fragment)
            return ZS_UNREADABLE;
        chain->seen_fragment = true;
        chain->later_fragment = (header->offset_and_flags & bpf_htons(ZS_IPV6_OFFSET)) != 0;
        bytes = 8;
    } else if (chain->protocol == ZS_AUTHENTICATION) {
        bytes = (header->length + 2) * 4; /* RFC 4302 section 2.2 */
    } else {
        bytes = (header->length + 1) * 8; /* RFC 8200 section 4 */
    }
    if (chain->left < bytes)
        return ZS_UNREADABLE;
    chain->protocol = header->next;
    chain->offset += bytes;
    chain->left -= bytes;
    return ZS_READ;
}

static __always_inline enum zs_reading walk_extensions(struct xdp_md *context, struct chain *chain) {
    for (int i = 0; i < ZS_MAX_EXTENSIONS && is_extension(chain->protocol) && !chain->later_fragment; i++) {
        if (zs_step_extension(context, chain) != ZS_READ)
            return ZS_UNREADABLE;
    }
    return is_extension(chain->protocol) && !chain->later_fragment ? ZS_UNREADABLE : ZS_READ;
}

static __always_inline enum zs_reading read_ipv6(struct xdp_md *context, struct cursor *cursor,
                                                 struct packet *packet) {
    void *data = (void *)(long)context->data;
    struct ipv6hdr *ip = ZS_PEEK(cursor, struct ipv6hdr);
    struct chain chain = {};

    if (!ip || ip->version != 6)
        return ZS_UNREADABLE;
    cursor->position = ip + 1;
    cursor->left = bpf_ntohs(ip->payload_len);
    if (cursor->left > cursor->end - cursor->position)
        return ZS_UNREADABLE;
    packet->family = 6;
    packet->protocol = ip->nexthdr;
    __builtin_memcpy(packet->source, &ip->saddr, sizeof(packet->source));
    if (!is_extension(ip->nexthdr))
        return read_ports(cursor, packet);
    chain.offset = cursor->position - data;
    chain.left = cursor->left;
    chain.protocol = ip->nexthdr;
    if (walk_extensions(context, &chain) != ZS_READ)
        return ZS_UNREADABLE;
    packet->protocol = chain.protocol;
    packet->later_fragment = chain.later_fragment;
    if (chain.later_fragment)
        return ZS_READ;
    cursor->position = frame_at(data, chain.offset);
    cursor->left = chain.left;
    return read_ports(cursor, packet);
}

static __always_inline enum zs_reading read_packet(struct xdp_md *context, struct packet *packet) {
    struct cursor cursor = {.position = (void *)(long)context->data, .end = (void *)(long)context->data_end};
    __be16 ether_type = 0;
    enum zs_reading reading = read_ethernet(&cursor, packet, &ether_type);

    if (reading != ZS_READ)
        return reading;
    if (ether_type == bpf_htons(ETH_P_IP))
        return read_ipv4(&cursor, packet);
    if (ether_type == bpf_htons(ETH_P_IPV6))
        return read_ipv6(context, &cursor, packet);
    return ZS_FOREIGN;
}

#endif
