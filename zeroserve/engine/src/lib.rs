//! The data plane of zeroserve: bytes in, bytes out. Python decides what is served; nothing here knows
//! of command lines, and only `python` knows of Python.

pub mod http;
pub mod io;
pub mod script;
pub mod site;
pub mod tls;
pub mod transport;
