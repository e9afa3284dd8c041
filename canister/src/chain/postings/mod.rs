//! Postings: places of transaction ids and keys in the two tables, and links to the postings before them, in the log.

pub mod ids;
pub mod keys;
pub mod links;
pub mod pages;
pub mod sweep;
