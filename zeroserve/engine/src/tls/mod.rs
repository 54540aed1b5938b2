//! TLS 1.3 through BoringSSL, over bytes in memory. No sockets in here.

mod context;
mod session;

pub use context::{TlsContext, TlsError};
pub use session::{Session, Step};
