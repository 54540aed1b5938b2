//! The site's eBPF programs: loading, the chain, and the helpers they call. No sockets in here.

mod chain;
mod exchange;
mod guest;
mod log;
mod machine;
mod memory;
mod metadata;
mod request;
mod respond;

pub use chain::Chain;
pub use exchange::{ConnectionInfo, Exchange};
pub use machine::{ScriptError, ScriptLimits, ScriptSet, ThreadRuntime};
pub use metadata::Metadata;
