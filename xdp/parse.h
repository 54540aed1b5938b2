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
    ZS_MAX_VLAN_TAGS = 2,  /* one tag, or QinQ */
    ZS_MAX_EXTENSIONS = 8, /* RFC 8504 section 5.3 allows a host such a limit */
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

static __always_inline bool is_extension(__u8 protocol) {
    return protocol == ZS_HOP_BY_HOP || protocol == ZS_ROUTING || protocol == ZS_FRAGMENT_HEADER ||
           protocol == ZS_AUTHENTICATION || protocol == ZS_DESTINATION;
}

/* Steps over one extension header; true when the walk ends here, with *reading set. */
static __always_inline bool step_extension(struct cursor *cursor, struct packet *packet, bool *was_fragment,
                                           enum zs_reading *reading) {
    struct extension *header = ZS_PEEK(cursor, struct extension);
    __u32 bytes;

    *reading = ZS_UNREADABLE;
    if (!header)
        return true;
    if (packet->protocol == ZS_FRAGMENT_HEADER) {
        bytes = 8;
        if (cursor->left < bytes || *was_fragment)
            return true;
        *was_fragment = true;
        packet->later_fragment = (header->offset_and_flags & bpf_htons(ZS_IPV6_OFFSET)) != 0;
    } else if (packet->protocol == ZS_AUTHENTICATION) {
        bytes = (header->length + 2) * 4; /* RFC 4302 section 2.2 */
    } else {
        bytes = (header->length + 1) * 8; /* RFC 8200 section 4 */
    }
    if (cursor->left < bytes)
        return true;
    packet->protocol = header->next;
    cursor->position += bytes;
    cursor->left -= bytes;
    *reading = ZS_READ;
    return packet->later_fragment;
}

static __always_inline enum zs_reading read_ipv6(struct cursor *cursor, struct packet *packet) {
    struct ipv6hdr *ip = ZS_PEEK(cursor, struct ipv6hdr);
    enum zs_reading reading = ZS_UNREADABLE;
    bool was_fragment = false;

    if (!ip || ip->version != 6)
        return ZS_UNREADABLE;
    cursor->position = ip + 1;
    cursor->left = bpf_ntohs(ip->payload_len);
    if (cursor->left > cursor->end - cursor->position)
        return ZS_UNREADABLE;
    packet->family = 6;
    packet->protocol = ip->nexthdr;
    __builtin_memcpy(packet->source, &ip->saddr, sizeof(packet->source));
    for (int i = 0; i < ZS_MAX_EXTENSIONS && is_extension(packet->protocol); i++) {
        if (step_extension(cursor, packet, &was_fragment, &reading))
            return reading;
    }
    return is_extension(packet->protocol) ? ZS_UNREADABLE : read_ports(cursor, packet);
}

static __always_inline enum zs_reading read_packet(void *data, void *end, struct packet *packet) {
    struct cursor cursor = {.position = data, .end = end};
    __be16 ether_type = 0;
    enum zs_reading reading = read_ethernet(&cursor, packet, &ether_type);

    if (reading != ZS_READ)
        return reading;
    if (ether_type == bpf_htons(ETH_P_IP))
        return read_ipv4(&cursor, packet);
    if (ether_type == bpf_htons(ETH_P_IPV6))
        return read_ipv6(&cursor, packet);
    return ZS_FOREIGN;
}

#endif
