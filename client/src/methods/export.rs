//! Exporters: who copies the chain, and how far.

use super::methods;
use coppice_interface::*;

methods! {
    /// Makes somebody an exporter: what it has not acknowledged is not pruned. For operators and admins; for admins alone under a name whose
    /// key was revoked.
    ///
    /// Repeating it changes nothing.
    update register_exporter(exporter: &Exporter) -> (), or ExporterError;

    /// Takes an exporter out. For admins.
    ///
    /// Repeated, it is refused as `Unknown`.
    update remove_exporter(exporter: &RemoveExporter) -> (), or ExporterError;

    /// The chunks behind a cursor, `max_bytes` of them or, for 0, as many as a reply holds. [`ExportPager`](crate::ExportPager) goes through
    /// all of them.
    query export_blocks(cursor: Option<&ExportCursor>, max_bytes: u64) -> ExportPage, or ExportError;

    /// Says that everything up to and with this block is somewhere else. For registered exporters. Answers the exporter's bound, which is
    /// exclusive.
    ///
    /// Repeating it changes nothing, nor does acknowledging an older block.
    update ack_exported(number: u64, hash: &BlockHash) -> u64, or AckError;

    /// How far all exporters are.
    query get_export_status() -> ExportStatus;
}
