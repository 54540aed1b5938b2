//! Tests of HTTP's data and rules, one file for each; those of the wire format are beside it in `h1`.

mod conditional;
mod date;
mod headers;
mod range;
mod request;
mod syntax;
