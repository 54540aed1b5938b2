//! HTTP/1.1 on the wire (RFC 9112): request heads and bodies in, response heads out. Bytes only; when to read,
//! write, wait or close is the worker's decision.

mod body;
mod head;
mod write;

#[cfg(test)]
mod tests;

pub use body::{BodyEvent, BodyReader};
pub use head::{BodyFraming, Limits, Parsed, parse_request};
pub use write::write_head;

use super::response::Response;

/// The request breaks a rule: answer with this status, then close, for nothing that follows can be trusted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{status}: {reason}")]
pub struct Reject {
    pub status: u16,
    pub reason: &'static str,
}

impl Reject {
    pub(super) const fn new(status: u16, reason: &'static str) -> Self {
        Self { status, reason }
    }

    pub fn response(&self) -> Response {
        Response::text(self.status)
    }
}
