//! The site's eBPF programs: loading, the chain, and the helpers they call. No sockets in here.
