//! `coppice-lab serve --api`: agents of other languages, and hostile requests.

mod api;
mod served;
mod typescript;
