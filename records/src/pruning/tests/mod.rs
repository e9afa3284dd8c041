//! Tests of the records pruner over real stores, by subject. `service` is their fixture.

mod damage;
mod heights;
mod large;
mod meaning;
mod passes;
mod runs;
mod service;
mod size;
mod stored;
mod traps;
