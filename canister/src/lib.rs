//! Coppice.
pub mod blob;
pub mod memory;
pub mod runtime;
