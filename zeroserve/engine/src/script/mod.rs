//! The site's eBPF programs: loading, the chain, and the helpers they call. No sockets in here.

mod chain;
mod exchange;
mod guest;
mod log;
mod machine;
mod memory;
mod metadata;
mod object;
mod request;
mod respond;
#[cfg(test)]
mod tests;
mod time;
mod turns;

pub use chain::Chain;
pub use exchange::{ConnectionInfo, Exchange};
pub use log::Journal;
pub use machine::{ScriptError, ScriptLimits, ScriptSet, ThreadRuntime};
pub use metadata::Metadata;
