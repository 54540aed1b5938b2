//! HTTP as data: requests, responses, parsing, serializing, conditions, ranges and dates. No sockets in here.

pub mod conditional;
pub mod date;
pub mod h1;
pub mod headers;
pub mod range;
pub mod request;
pub mod response;
pub mod syntax;

#[cfg(test)]
mod tests;
