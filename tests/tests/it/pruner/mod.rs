//! The pruner of UTXO records through the interface: a test for each numbered claim of `pruner-service.md`, with the name of its section.
//! Sections 2.1 to 2.7 are the modules; 7 is with 2.1, 3 with 2.3 and `stories`, 4 in `jobs`.
//!
//! A canister has no gRPC ports and clients (2.1), no view of the block persister before it notifies (2.2 primary 1 and 2, 2.4.1), no
//! goroutines and worker pools (4), no S3 and files (2.6; a worker deletes external blobs). Cases that need more than the interface are in
//! the canister's own tests: damaged records, blobs of the BlobStore that are already gone, and failures of phase 1 (2.3 phase 1 4).

mod heights;
mod jobs;
mod reorgs;
mod replays;
mod s2_1_settings;
mod s2_2_triggers;
mod s2_3_assembly;
mod s2_3_phase_1;
mod s2_3_phase_2;
mod s2_3_ticks;
mod s2_4_persister;
mod s2_5_defensive;
mod s2_6_external;
mod stories;
mod unset;
mod winners;
pub mod world;
mod young;
