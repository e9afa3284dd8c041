//! Tests of the whole crate: layouts of stable memory, random histories, and memory that blocks and records share.

mod layouts;
mod machine;
mod persisted;
mod shared_memory;
