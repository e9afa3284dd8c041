//! Settings and roles.

pub mod config;
pub mod fit;
pub mod roles;
