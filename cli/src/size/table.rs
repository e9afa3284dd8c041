//! The table of `coppice size`, and the warnings below it.

use super::needs::{Size, max_ops};
use comfy_table::presets::ASCII_MARKDOWN;
use comfy_table::{CellAlignment, Table};
use indicatif::HumanCount;

fn size(bytes: u64) -> String {
    let gib = bytes as f64 / f64::from(1 << 30);
    if gib < 1.0 { format!("{:.0} MiB", gib * 1024.0) } else { format!("{gib:.1} GiB") }
}

fn tera(cycles: u128) -> String {
    format!("{:.1} T", cycles as f64 / 1e12)
}

pub fn table(sizes: &[Size]) -> String {
    let mut table = Table::new();
    table.load_style(ASCII_MARKDOWN);
    table.set_header([
        "block",
        "days",
        "blocks kept",
        "kept",
        "`target_bytes`",
        "`max_stable_pages`",
        "billed",
        "deposit",
        "upgrade with a snapshot",
        "storage a year",
        "feeding a year by ingress",
        "by a canister",
        "daemon a year",
        "XDR a year",
    ]);
    for at in sizes {
        table.add_row([
            format!("{} KiB", HumanCount(at.workload.block_bytes >> 10)),
            at.workload.days.to_string(),
            HumanCount(at.blocks).to_string(),
            size(at.kept_bytes),
            at.target_bytes.to_string(),
            at.max_stable_pages.to_string(),
            if at.fits() { size(at.billed_bytes) } else { "over 500 GiB".into() },
            tera(at.deposit_cycles),
            tera(at.snapshot_cycles),
            tera(at.storage_cycles),
            tera(at.feeding_cycles),
            tera(at.calling_cycles),
            tera(at.daemon_cycles),
            format!("{:.1}", at.xdr),
        ]);
    }
    table.column_iter_mut().for_each(|column| column.set_cell_alignment(CellAlignment::Right));
    table.to_string()
}

/// Returns the warnings below the table: one for each chain that outruns pruning.
pub fn warnings(sizes: &[Size]) -> Vec<String> {
    let outrunning = sizes.iter().filter(|size| size.outruns_pruning);
    let warning = |size: &Size| {
        format!(
            "blocks of {} KiB outrun pruning: pruning needs {} references, blocks and blobs a second, but one tick a second handles {}; the backlog grows for ever",
            HumanCount(size.workload.block_bytes >> 10),
            HumanCount(size.ops_per_second as u64),
            HumanCount(max_ops() as u64),
        )
    };
    let mut warnings: Vec<String> = outrunning.map(warning).collect();
    warnings.dedup();
    warnings
}
