//! Endpoints for exporters and their pages.

use super::arming_work;
use crate::operation::daemon;
use crate::platform;
use crate::platform::meter::{Hot, counted};
use crate::state::{mutate, read};
use ic_coppice_chain::export;
use ic_coppice_interface::*;

pub fn register_exporter(exporter: Exporter) -> Result<(), ExporterError> {
    mutate(|state| state.register_exporter(&exporter))
}

pub fn remove_exporter(which: RemoveExporter) -> Result<(), ExporterError> {
    arming_work(|state| state.remove_exporter(&which))
}

pub fn export_blocks(cursor: Option<ExportCursor>, max_bytes: u64) -> Result<ExportPage, ExportError> {
    counted(Hot::ExportBlocks, || read(|state| export::page(&state.chain, &state.blobs, cursor, max_bytes)))
}

pub fn ack_exported(number: u64, hash: BlockHash) -> Result<u64, AckError> {
    mutate(|state| {
        let acknowledged =
            counted(Hot::AckExported, || state.exporters.acknowledge(&state.chain, platform::caller(), number, &hash));
        daemon::on_ack(state);
        acknowledged
    })
}

pub fn get_export_status() -> ExportStatus {
    read(|state| state.exporters.status(&state.chain, state.config.require_export))
}
