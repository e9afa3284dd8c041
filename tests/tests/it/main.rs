//! The canister through its Candid interface, on PocketIC or on the embedded host.

mod access;
mod append;
mod daemon;
mod deploy;
mod docs;
mod export;
mod interruption;
mod keeps_up;
mod keys;
mod large_index;
mod long_run;
mod machine;
mod minimum;
mod operation;
mod producers_first;
mod prune;
mod pruner;
mod pruner_machine;
mod reads;
mod rollback;
mod tomorrow;
mod uploads;
mod utxo;
