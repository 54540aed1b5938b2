//! The data plane of zeroserve: bytes in, bytes out. Python decides what is served; nothing here knows
//! of command lines, and only `python` knows of Python.

pub mod connection;
pub mod generation;
pub mod http;
pub mod io;
mod notice;
#[cfg(feature = "python")]
mod python;
pub mod script;
pub mod server;
pub mod site;
pub mod tls;
pub mod transport;
pub mod worker;
