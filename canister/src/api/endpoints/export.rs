//! Exporters and their pages.

use crate::api::access::{admin, exporter, guardian};
use crate::api::wire;
use crate::operation::daemon;
use crate::platform::meter::{Hot, counted};
use crate::state::{mutate, read};
use crate::{export, platform};
use candid::candid_method;
use coppice_interface::*;
use ic_cdk::{query, update};

/// Registers an exporter and gives it the role `Exporter`; an operator's or an admin's. Nothing is pruned from then on that
/// the exporter has not acknowledged. There are 100 exporters at most. Registering the same name with the same principal
/// again changes nothing. Under a name whose key was revoked only an admin registers a principal, which goes on at the
/// name's bound.
#[candid_method(update)]
#[update(
    guard = "guardian",
    guard = "wire::readable::<(Exporter,)>",
    hidden = true,
    decode_with = "wire::arg",
    encode_with = "wire::answer"
)]
pub fn register_exporter(exporter: Exporter) -> Result<(), ExporterError> {
    mutate(|state| state.register_exporter(&exporter))
}

/// Takes an exporter and its role out; an admin's. The last exporter takes `drop_guard` as well. A second call answers
/// `Unknown`.
#[candid_method(update)]
#[update(
    guard = "admin",
    guard = "wire::readable::<(RemoveExporter,)>",
    hidden = true,
    decode_with = "wire::arg",
    encode_with = "wire::answer"
)]
pub fn remove_exporter(which: RemoveExporter) -> Result<(), ExporterError> {
    mutate(|state| {
        daemon::arm_work(state);
        state.remove_exporter(&which)
    })
}

/// Blocks in order, in chunks, from the cursor on, or from the oldest kept block where there is none; for anyone. A page
/// has `max_bytes` of payload at most; 0: as many as a reply holds. Asking again with the same cursor is safe.
#[candid_method(query)]
#[query(guard = "wire::readable::<(Option<ExportCursor>, u64,)>", hidden = true, decode_with = "wire::args")]
pub fn export_blocks(cursor: Option<ExportCursor>, max_bytes: u64) -> Result<ExportPage, ExportError> {
    counted(Hot::ExportBlocks, || read(|state| export::page(&state.chain, &state.blobs, cursor, max_bytes)))
}

/// Acknowledges all blocks up to the one with this number and hash: they may be pruned; for a registered exporter. Answers
/// the number below which all blocks are acknowledged, which a lower or a repeated acknowledgement leaves as it is.
#[candid_method(update)]
#[update(
    guard = "exporter",
    guard = "wire::readable::<(u64, BlockHash,)>",
    hidden = true,
    decode_with = "wire::args",
    encode_with = "wire::answer"
)]
pub fn ack_exported(number: u64, hash: BlockHash) -> Result<u64, AckError> {
    mutate(|state| {
        let acknowledged =
            counted(Hot::AckExported, || state.exporters.acknowledge(&state.chain, platform::caller(), number, &hash));
        daemon::on_ack(state);
        acknowledged
    })
}

/// How far all exporters are, and what they guard; for anyone.
#[query]
pub fn get_export_status() -> ExportStatus {
    read(|state| state.exporters.status(&state.chain, state.config.require_export))
}
