//! Storage: stable memory in regions, blobs, hash tables and slots. Nothing here knows blocks, records or pruning.

pub mod blob;
pub mod memory;
pub mod slots;
pub mod table;
