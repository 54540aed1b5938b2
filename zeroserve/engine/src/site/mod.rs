//! The tarball as a site: its index, lookup, and what a path answers. Nothing is unpacked.
