"""zeroserve: an HTTPS server whose whole site, scripts included, is one tarball. Knows nothing of the pre-filter."""
