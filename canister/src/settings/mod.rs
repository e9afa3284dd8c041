//! Settings and roles.

pub mod config;
pub mod roles;
