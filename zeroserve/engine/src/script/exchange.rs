//! One request as the scripts see it, from its head to what answers it. Made once for a connection and used again
//! for each of its requests.

use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;

use super::Metadata;
use super::log::Journal;
use crate::http::request::Request;
use crate::http::response::{Body, Response};

/// What scripts may know of the connection.
#[derive(Debug, Clone, Copy)]
pub struct ConnectionInfo {
    pub peer: SocketAddr,
    pub is_tls: bool,
}

impl ConnectionInfo {
    /// The client's address; IPv4 in its own form also when it came in through an IPv6 socket.
    pub fn peer_ip(&self) -> IpAddr {
        self.peer.ip().to_canonical()
    }
}

pub struct Exchange {
    pub request: Request,
    pub connection: ConnectionInfo,
    pub metadata: Metadata,
    /// What a script has answered.
    pub response: Option<Response>,
    pub journal: Journal,
    /// The script that runs.
    pub(super) script: Rc<str>,
}

impl Exchange {
    pub fn new(connection: ConnectionInfo) -> Self {
        Self {
            request: Request::new(),
            connection,
            metadata: Metadata::default(),
            response: None,
            journal: Journal::default(),
            script: Rc::from(""),
        }
    }

    /// Forgets the last request's results; the new request's head is in place already.
    pub fn begin(&mut self) {
        self.metadata.clear();
        self.response = None;
        self.journal.begin();
    }

    /// What the scripts answered, with their header metadata; `None` when the site's files are to answer.
    pub fn take_answer(&mut self) -> Option<Response> {
        let mut response = self.response.take()?;
        self.metadata.apply_to(&mut response);
        let says_no_type = response.headers.get("content-type").is_none();
        if says_no_type && !matches!(response.body, Body::Empty) {
            // A constant field within the limits of any response; without room for it the script's own fields stay.
            let _ = response.append_header("Content-Type", "text/plain; charset=utf-8");
        }
        Some(response)
    }
}
