//! Checks of the source.

mod errors;
mod imports;
mod other_builds;
mod words;
