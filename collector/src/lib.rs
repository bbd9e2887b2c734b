//! Serves the ranks of one host.
