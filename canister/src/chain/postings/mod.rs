//! Postings: newest positions of transaction ids and keys in the two tables, and links to older ones in the log.

pub mod ids;
pub mod keys;
pub mod links;
pub mod pages;
pub mod sweep;
