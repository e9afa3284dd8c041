//! `coppice-lab serve --api`: agents of other languages, and hostile requests.

mod api;
mod python;
mod served;
mod typescript;
