//! What the site answers to a request: the file, a part of it, that it has not changed, or why not.
//! Decides only; the bytes stay where they are.

use super::{Entry, Lookup, Site};
use crate::http::conditional::{self, Outcome, Validators};
use crate::http::headers::HeaderList;
use crate::http::range::{self, RangeOutcome};
use crate::http::request::Request;
use crate::http::response::{Body, Response};

/// Answers a request with a file of the site. The body is the file's also for HEAD; `Response::sends_body` says
/// that it stays unsent.
pub fn respond(site: &Site, request: &Request) -> Response {
    if !matches!(request.method(), b"GET" | b"HEAD") {
        return with_field(Response::text(405), "Allow", "GET, HEAD");
    }
    let Some(path) = request.normalized_path() else { return Response::text(400) };
    match site.lookup(&path) {
        Lookup::File(entry) => file(entry, request),
        Lookup::Redirect(path) => redirect(path, request.query()),
        Lookup::NotFound => Response::text(404),
    }
}

fn file(entry: &Entry, request: &Request) -> Response {
    let validators = Validators { etag: entry.etag.as_bytes(), last_modified: entry.mtime };
    match conditional::evaluate(request, &validators) {
        Outcome::Proceed { range: false } => whole(entry),
        Outcome::Proceed { range: true } => part(entry, request.header("range").unwrap_or_default()),
        Outcome::NotModified => {
            Response { status: 304, headers: HeaderList::from_shared(&entry.not_modified), body: Body::Empty }
        }
        Outcome::PreconditionFailed => Response::text(412),
    }
}

fn whole(entry: &Entry) -> Response {
    Response {
        status: 200,
        headers: HeaderList::from_shared(&entry.headers),
        body: Body::File { offset: entry.offset, len: entry.len, cached: entry.cached.clone() },
    }
}

fn part(entry: &Entry, range: &[u8]) -> Response {
    let len = entry.len;
    match range::parse(range, len) {
        RangeOutcome::Whole => whole(entry),
        RangeOutcome::Unsatisfiable => {
            with_field(Response::text(416), "Content-Range", &format!("bytes */{len}"))
        }
        RangeOutcome::Part { start, end } => {
            let cached = entry.cached.as_ref().map(|bytes| bytes.slice(start as usize..end as usize));
            let response = Response {
                status: 206,
                headers: HeaderList::from_shared(&entry.headers),
                body: Body::File { offset: entry.offset + start, len: end - start, cached },
            };
            with_field(response, "Content-Range", &format!("bytes {start}-{}/{len}", end - 1))
        }
    }
}

fn redirect(mut location: String, query: Option<&[u8]>) -> Response {
    if let Some(query) = query {
        // A query holds visible ASCII only: the parser saw to it.
        location.push('?');
        location.extend(query.iter().map(|&byte| byte as char));
    }
    with_field(Response::text(301), "Location", &location)
}

/// For fields that are valid by construction.
fn with_field(mut response: Response, name: &str, value: &str) -> Response {
    let added = response.append_header(name, value);
    debug_assert_eq!(added, Ok(()), "{name}: {value}");
    response
}
