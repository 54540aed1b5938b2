//! TLS 1.3 through BoringSSL, over bytes in memory. No sockets in here.
