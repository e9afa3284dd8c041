//! Checks of the workspace's source: the import graph of each crate, and the words of comments and pages.
//!
//! An import is a path in one file that names something that another file defines: in a `use`, an expression, a type, an attribute's
//! text or a macro's argument. A path is followed through aliases, glob imports and `pub use` to the file that defines the name.
//! Tests and the bench's endpoints are left out. A `pub use` by itself imports nothing: it passes a name on.

mod graph;
mod module;
mod paths;
pub mod words;

pub use graph::{Graph, Inherent};

/// Reads the crate whose root file is `src/lib.rs`, or `src/main.rs`, below `directory`.
///
/// # Errors
///
/// The file that cannot be read or parsed, and why.
pub fn read(directory: &std::path::Path) -> Result<Graph, String> {
    let modules = module::Modules::read(directory)?;
    Ok(graph::of(&modules))
}
