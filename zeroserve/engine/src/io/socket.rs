//! Listening and connected sockets as the worker needs them: made, tuned, asked for their peer. No reading or writing.

use std::io;
use std::mem::{MaybeUninit, size_of};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

const BACKLOG: libc::c_int = 4096;

/// A listener of which each worker has one on the same address; the kernel spreads connections over them.
///
/// # Errors
/// `EADDRINUSE`, `EACCES` and the like, as `bind` and `listen` give them.
pub fn listen(address: SocketAddr) -> io::Result<OwnedFd> {
    let fd = bind(address, true)?;
    // Accepted sockets inherit it: responses are written whole, so waiting to fill a segment only delays them.
    set_option(fd.as_raw_fd(), libc::IPPROTO_TCP, libc::TCP_NODELAY, 1)?;
    // SAFETY: plain system call on our own descriptor.
    if unsafe { libc::listen(fd.as_raw_fd(), BACKLOG) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(fd)
}

/// Fails when somebody listens on the address already. Listeners that share a port would not: the kernel would let
/// a second server take half of the first one's connections, and nobody would be told.
pub fn check_free(address: SocketAddr) -> io::Result<()> {
    bind(address, false).map(drop)
}

fn bind(address: SocketAddr, shares_port: bool) -> io::Result<OwnedFd> {
    let family = if address.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
    // SAFETY: plain system call; the descriptor is ours alone when it succeeded.
    let fd = unsafe {
        let fd = libc::socket(family, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0);
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        OwnedFd::from_raw_fd(fd)
    };
    set_option(fd.as_raw_fd(), libc::SOL_SOCKET, libc::SO_REUSEADDR, 1)?;
    set_option(fd.as_raw_fd(), libc::SOL_SOCKET, libc::SO_REUSEPORT, shares_port.into())?;
    if address.is_ipv6() {
        set_option(fd.as_raw_fd(), libc::IPPROTO_IPV6, libc::IPV6_V6ONLY, 1)?;
    }
    let (raw, len) = to_raw(address);
    // SAFETY: `raw` holds a socket address of `len` bytes.
    if unsafe { libc::bind(fd.as_raw_fd(), raw.as_ptr().cast(), len) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(fd)
}

/// The connections that wait at a listener which is about to close; none is waited for.
pub fn take_waiting(listener: BorrowedFd<'_>) -> Vec<OwnedFd> {
    let mut waiting = Vec::new();
    // SAFETY: plain system calls; each descriptor that accept4 gives is ours alone.
    unsafe {
        if libc::fcntl(listener.as_raw_fd(), libc::F_SETFL, libc::O_NONBLOCK) < 0 {
            return waiting;
        }
        loop {
            let null = std::ptr::null_mut();
            let fd = libc::accept4(listener.as_raw_fd(), null, null.cast(), libc::SOCK_CLOEXEC);
            if fd < 0 {
                return waiting;
            }
            waiting.push(OwnedFd::from_raw_fd(fd));
        }
    }
}

/// The address a socket is bound to: what port 0 became.
pub fn local_address(fd: BorrowedFd<'_>) -> io::Result<SocketAddr> {
    // SAFETY: getsockname writes at most `len` bytes.
    address_from(|raw, len| unsafe { libc::getsockname(fd.as_raw_fd(), raw, len) })
}

/// The other end of a connection.
pub fn peer_address(fd: BorrowedFd<'_>) -> io::Result<SocketAddr> {
    // SAFETY: getpeername writes at most `len` bytes.
    address_from(|raw, len| unsafe { libc::getpeername(fd.as_raw_fd(), raw, len) })
}

/// Says to the peer that nothing more will be sent; bytes still under way are delivered first.
pub fn finish_sending(fd: BorrowedFd<'_>) {
    // SAFETY: plain system call; that the peer has already gone is no error worth telling.
    unsafe { libc::shutdown(fd.as_raw_fd(), libc::SHUT_WR) };
}

fn set_option(fd: i32, level: i32, name: i32, value: libc::c_int) -> io::Result<()> {
    let len = size_of::<libc::c_int>() as libc::socklen_t;
    // SAFETY: the pointer and length describe `value`.
    let result = unsafe { libc::setsockopt(fd, level, name, (&raw const value).cast(), len) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

fn to_raw(address: SocketAddr) -> (MaybeUninit<libc::sockaddr_storage>, libc::socklen_t) {
    let mut raw = MaybeUninit::<libc::sockaddr_storage>::zeroed();
    let len = match address {
        SocketAddr::V4(v4) => {
            let inner = libc::sockaddr_in {
                sin_family: libc::AF_INET as libc::sa_family_t,
                sin_port: v4.port().to_be(),
                sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes(v4.ip().octets()) },
                sin_zero: [0; 8],
            };
            // SAFETY: sockaddr_storage is large enough and aligned for every address family.
            unsafe { raw.as_mut_ptr().cast::<libc::sockaddr_in>().write(inner) };
            size_of::<libc::sockaddr_in>()
        }
        SocketAddr::V6(v6) => {
            let inner = libc::sockaddr_in6 {
                sin6_family: libc::AF_INET6 as libc::sa_family_t,
                sin6_port: v6.port().to_be(),
                sin6_flowinfo: v6.flowinfo(),
                sin6_addr: libc::in6_addr { s6_addr: v6.ip().octets() },
                sin6_scope_id: v6.scope_id(),
            };
            // SAFETY: as above.
            unsafe { raw.as_mut_ptr().cast::<libc::sockaddr_in6>().write(inner) };
            size_of::<libc::sockaddr_in6>()
        }
    };
    (raw, len as libc::socklen_t)
}

fn address_from(
    ask: impl FnOnce(*mut libc::sockaddr, *mut libc::socklen_t) -> libc::c_int,
) -> io::Result<SocketAddr> {
    let mut raw = MaybeUninit::<libc::sockaddr_storage>::zeroed();
    let mut len = size_of::<libc::sockaddr_storage>() as libc::socklen_t;
    if ask(raw.as_mut_ptr().cast(), &mut len) < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: zeroed at first, so every field is initialised; the family says which layout the kernel wrote.
    unsafe {
        match i32::from((*raw.as_ptr()).ss_family) {
            libc::AF_INET => {
                let inner = &*raw.as_ptr().cast::<libc::sockaddr_in>();
                let ip = Ipv4Addr::from(inner.sin_addr.s_addr.to_ne_bytes());
                Ok(SocketAddr::V4(SocketAddrV4::new(ip, u16::from_be(inner.sin_port))))
            }
            libc::AF_INET6 => {
                let inner = &*raw.as_ptr().cast::<libc::sockaddr_in6>();
                let ip = Ipv6Addr::from(inner.sin6_addr.s6_addr);
                let port = u16::from_be(inner.sin6_port);
                Ok(SocketAddr::V6(SocketAddrV6::new(ip, port, inner.sin6_flowinfo, inner.sin6_scope_id)))
            }
            _ => Ok(SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0)),
        }
    }
}
