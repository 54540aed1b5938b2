//! Helpers that answer the request.

use async_ebpf::helpers::Helper;
use async_ebpf::program::HelperScope;

use super::guest::{FAILED, bytes, with_exchange};
use crate::http::headers::HeaderList;
use crate::http::response::{Body, Response};

pub(super) const HELPERS: &[(&str, Helper)] = &[("zs_respond", respond)];

/// The last answer counts, as long as the script runs. Its length is bounded by the script's memory.
fn respond(scope: &HelperScope, status: u64, body: u64, len: u64, _: u64, _: u64) -> Result<u64, ()> {
    if !(200..=599).contains(&status) {
        return Ok(FAILED);
    }
    with_exchange(scope, |exchange| {
        let body = match bytes(scope, body, len)? {
            [] => Body::Empty,
            bytes => Body::Bytes(bytes.to_vec()),
        };
        exchange.response = Some(Response { status: status as u16, headers: HeaderList::new(), body });
        Ok(0)
    })
}
