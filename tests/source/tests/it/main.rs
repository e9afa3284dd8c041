//! Checks of the source.

mod docs;
mod errors;
mod models;
mod other_builds;
mod words;
