//! The settings that histories change.

use coppice_model::records::Setting;
use ic_coppice_interface::*;
use proptest::prelude::*;

fn instructions() -> impl Strategy<Value = Setting> {
    // Half of the histories begin with one step a tick.
    let some = (1u64..8).prop_map(|of| if of < 6 { 1 } else { 1_000_000_000 });
    prop_oneof![6 => some, 3 => Just(1_000_000_000)].prop_map(Setting::Instructions)
}

fn defensive() -> impl Strategy<Value = Setting> {
    any::<bool>().prop_map(Setting::Defensive)
}

fn retention() -> impl Strategy<Value = Setting> {
    prop_oneof![1 => Just(0u32), 5 => 1u32..4, 4 => 4u32..12].prop_map(Setting::Retention)
}

fn unmined_retention() -> impl Strategy<Value = Setting> {
    prop_oneof![1 => Just(UtxoUnminedRetention::HalfOfRetention), 3 => (0u32..8).prop_map(UtxoUnminedRetention::Blocks)]
        .prop_map(Setting::UtxoUnminedRetention)
}

fn preservation() -> impl Strategy<Value = Setting> {
    (1u32..12).prop_map(Setting::Preservation)
}

fn rule() -> impl Strategy<Value = Setting> {
    prop_oneof![3 => Just(UtxoSafeHeightRule::Persisted), 1 => Just(UtxoSafeHeightRule::PersistedPlusRetention)]
        .prop_map(Setting::SafeHeight)
}

fn chunk() -> impl Strategy<Value = Setting> {
    prop_oneof![1u32..4, Just(1_000)].prop_map(Setting::Chunk)
}

fn timeout() -> impl Strategy<Value = Setting> {
    prop_oneof![1 => Just(15u64), 3 => Just(600)].prop_map(Setting::JobTimeout)
}

fn page() -> impl Strategy<Value = Setting> {
    prop_oneof![2 => 1u32..3, 3 => Just(20_000)].prop_map(Setting::Page)
}

/// A change in the middle of a history.
pub fn setting() -> impl Strategy<Value = Setting> {
    prop_oneof![
        1 => any::<bool>().prop_map(Setting::Enabled),
        1 => prop_oneof![1 => Just(true), 3 => Just(false)].prop_map(Setting::NoDeletion),
        1 => timeout(),
        2 => chunk(),
        1 => (1u32..3).prop_map(Setting::ChunksOfATick),
        4 => defensive(),
        1 => prop_oneof![1u32..3, Just(10_000)].prop_map(Setting::DefensiveBatch),
        2 => unmined_retention(),
        1 => preservation(),
        2 => rule(),
        4 => instructions(),
        2 => retention(),
        1 => page(),
        1 => any::<bool>().prop_map(Setting::ExternalizeAll),
        2 => prop_oneof![1 => Just(true), 2 => Just(false)].prop_map(Setting::Low),
    ]
}

/// The settings at the start of a history: small values show more than those that an operator would choose.
pub fn first() -> impl Strategy<Value = Vec<Setting>> {
    let pruner = (timeout(), chunk(), defensive(), unmined_retention(), preservation(), instructions());
    let store = (rule(), retention(), page(), prop_oneof![2 => Just(false), 1 => Just(true)]);
    (pruner, store).prop_map(|((a, b, c, d, e, f), (g, h, i, all))| {
        vec![a, b, c, d, e, f, g, h, i, Setting::ExternalizeAll(all), Setting::HeightsPerDay(1)]
    })
}
