//! HTTP as data: requests, responses, parsing, serializing, conditions, ranges and dates. No sockets in here.
