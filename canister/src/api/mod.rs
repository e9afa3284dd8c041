//! Interface: access control, Candid encoding, endpoints and HTTP.

pub mod access;
pub mod buckets;
pub mod certified;
pub mod endpoints;
pub mod http;
pub mod wire;
