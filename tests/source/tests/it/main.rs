//! Checks of the source.

mod docs;
mod errors;
mod imports;
mod other_builds;
mod words;
