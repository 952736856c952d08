//! Gesta.
