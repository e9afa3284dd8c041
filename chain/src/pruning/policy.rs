//! Pruning policy: checked settings, and the watermarks derived from them (`docs/design/pruning.md`).
//!
//! The watermarks are shares of the *effective target*: the smaller of `target_bytes` and the bytes that the chain can have under
//! `max_stable_pages` ([`ChainStore::most_bytes`](crate::ChainStore::most_bytes)). So pruning begins, and appends name what holds it
//! back, before the arena is full, whatever else takes memory.

use super::fit;
use ic_coppice_interface::{BadArgument, Config, PruneError, PrunePolicy, PrunePolicyArg, WaterMarks};

const BPS: u64 = 10_000;
/// Seconds of a day.
pub const DAY: u64 = 86_400;

/// Returns `bytes × numerator / 20,000`: the numerator is in half basis points.
fn share(bytes: u64, numerator: u64) -> u64 {
    (u128::from(bytes) * u128::from(numerator) / u128::from(2 * BPS)) as u64
}

/// Returns the policy after a change, for a log with the class and the caps of `config`.
///
/// # Errors
/// [`PruneError::BadArgument`] with the field and the reason.
pub fn changed(policy: &PrunePolicy, change: &PrunePolicyArg, config: &Config) -> Result<PrunePolicy, PruneError> {
    let new = policy.changed(change)?;
    check(&new, config.log_class)?;
    if new.target_bytes != policy.target_bytes {
        fit::check_target(config, new.target_bytes)?;
    }
    Ok(new)
}

/// Returns the blocks below the head that age leaves; a smaller `retain_blocks` replaces this floor.
pub fn floor(policy: &PrunePolicy) -> u64 {
    if policy.retain_blocks == 0 { policy.min_kept_blocks } else { policy.retain_blocks.min(policy.min_kept_blocks) }
}

/// Returns the watermarks of a chain that can have at most `most` bytes, or `None` without the capacity trigger.
pub fn marks(policy: &PrunePolicy, most: impl FnOnce() -> u64) -> Option<WaterMarks> {
    if policy.target_bytes == 0 {
        return None;
    }
    let target = policy.target_bytes.min(most());
    let headroom = u64::from(policy.headroom_ratio_bps);
    Some(WaterMarks {
        target,
        low: share(target, 2 * (BPS - headroom)),
        high: share(target, 2 * BPS - headroom),
        emergency: share(target, 2 * u64::from(policy.emergency_ratio_bps)),
    })
}

/// Returns the least `target_bytes`, in whole MiB, whose high water is at least `kept` bytes.
pub fn target_for(policy: &PrunePolicy, kept: u64) -> u64 {
    let high = u128::from(2 * BPS - u64::from(policy.headroom_ratio_bps));
    let target = (u128::from(kept) * u128::from(2 * BPS)).div_ceil(high).next_multiple_of(1 << 20);
    u64::try_from(target).unwrap_or(u64::MAX)
}

/// Returns the least target, in whole MiB, whose high water is `room` bytes above its low water, or `None` if there is none.
fn least_target(room: u64, headroom_ratio_bps: u32) -> Option<u64> {
    let headroom = Some(u64::from(headroom_ratio_bps)).filter(|headroom| *headroom > 0)?;
    Some((room * 2 * BPS).div_ceil(headroom).next_multiple_of(1 << 20))
}

fn check(policy: &PrunePolicy, log_class: u32) -> Result<(), BadArgument> {
    let Some(WaterMarks { low, high, emergency, .. }) = marks(policy, || u64::MAX) else { return Ok(()) };
    let room = 2 * u64::from(log_class);
    if low.saturating_add(room) > high {
        let raise = match least_target(room, policy.headroom_ratio_bps) {
            Some(least) => format!("target_bytes to at least {least}, or headroom_ratio_bps"),
            None => "headroom_ratio_bps".into(),
        };
        let why = format!(
            "low water {low} + two blobs of the log ({room}) must not be above high water {high}: raise {raise}"
        );
        return Err(BadArgument::new("target_bytes", why));
    }
    if high >= emergency {
        let why = format!(
            "high water {high} must be below emergency water {emergency}: raise emergency_ratio_bps or \
             headroom_ratio_bps"
        );
        return Err(BadArgument::new("emergency_ratio_bps", why));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use ic_coppice_interface::{MAX_PRUNE_INSTRUCTIONS, MAX_PRUNE_OPS};
    use ic_coppice_storage::blob::Class;

    fn class() -> Class {
        Class::of_size(1 << 20).unwrap()
    }

    fn config_of(class: Class) -> Config {
        Config { log_class: class.size(), ..Config::default() }
    }

    fn policy_of(change: &PrunePolicyArg, class: Class) -> Result<PrunePolicy, PruneError> {
        changed(&PrunePolicy::default(), change, &config_of(class))
    }

    fn unbounded(policy: &PrunePolicy) -> WaterMarks {
        marks(policy, || u64::MAX).unwrap()
    }

    fn field(arg: PrunePolicyArg) -> String {
        match policy_of(&arg, class()) {
            Err(PruneError::BadArgument(BadArgument { field, .. })) => field,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn water_marks_are_shares_of_the_effective_target() {
        let policy = |target_bytes| PrunePolicy { target_bytes, ..PrunePolicy::default() };
        let whole = WaterMarks { target: 1_000_000, low: 800_000, high: 900_000, emergency: 950_000 };
        for most in [1_000_000, 1_000_001, u64::MAX] {
            assert_eq!(marks(&policy(1_000_000), || most), Some(whole));
        }
        for target in [1_000_001, 1 << 40, u64::MAX] {
            assert_eq!(marks(&policy(target), || 1_000_000), Some(whole), "the chain cannot reach its target");
        }
        assert_eq!(marks(&policy(0), || unreachable!("it is not needed")), None);
        assert_eq!(marks(&policy(1), || 0), Some(WaterMarks { target: 0, low: 0, high: 0, emergency: 0 }));
        let WaterMarks { low, high, emergency, .. } = unbounded(&policy(u64::MAX));
        assert!(low < high && high < emergency);
    }

    #[test]
    fn target_for_kept_bytes_is_the_least_whole_mib() {
        for headroom_ratio_bps in [0, 1, 2_000, 10_000] {
            let policy = |target_bytes| PrunePolicy { target_bytes, headroom_ratio_bps, ..PrunePolicy::default() };
            for kept in [1, (1 << 20) - 1, 1 << 20, 943_718, 943_719, 123_456_789_012, 1 << 60] {
                let target = target_for(&policy(0), kept);
                assert!(target.is_multiple_of(1 << 20) && unbounded(&policy(target)).high >= kept, "{kept}");
                assert!(marks(&policy(target - (1 << 20)), || u64::MAX).is_none_or(|less| less.high < kept), "{kept}");
            }
            assert_eq!(target_for(&policy(0), u64::MAX), u64::MAX);
        }
    }

    #[test]
    fn refused_target_is_told_the_least_one() {
        for headroom_ratio_bps in [1, 3, 700, 1_999, 2_000, 4_000] {
            for class in [1 << 16, 1 << 20, 1 << 22].map(|size| Class::of_size(size).unwrap()) {
                let least = least_target(2 * u64::from(class.size()), headroom_ratio_bps).unwrap();
                let arg = |target_bytes| PrunePolicyArg {
                    target_bytes: Some(target_bytes),
                    headroom_ratio_bps: Some(headroom_ratio_bps),
                    emergency_ratio_bps: Some(10_000),
                    ..PrunePolicyArg::default()
                };
                policy_of(&arg(least), class).unwrap();
                let Err(PruneError::BadArgument(refused)) = policy_of(&arg(least - (1 << 20)), class) else {
                    assert_eq!(least, 1 << 20, "a target of 0 is none");
                    continue;
                };
                assert!(
                    refused.why.ends_with(&format!("raise target_bytes to at least {least}, or headroom_ratio_bps"))
                );
            }
        }
        assert_eq!(least_target(2 << 20, 0), None);
    }

    #[test]
    fn omitted_settings_stay_and_zero_switches_a_trigger_off() {
        let arg = PrunePolicyArg::default;
        let first = PrunePolicyArg { target_bytes: Some(1 << 30), retain_days: Some(30), ..arg() };
        let first = policy_of(&first, class()).unwrap();
        assert_eq!(changed(&first, &arg(), &config_of(class())), Ok(first.clone()));
        let second = changed(&first, &PrunePolicyArg { retain_blocks: Some(9), ..arg() }, &config_of(class())).unwrap();
        assert_eq!(second, PrunePolicy { retain_blocks: 9, ..first.clone() });
        let third = changed(&second, &PrunePolicyArg { target_bytes: Some(0), ..arg() }, &config_of(class())).unwrap();
        assert_eq!(third, PrunePolicy { target_bytes: 0, ..second.clone() });
        // Conflicting settings are refused even if they come in different calls.
        let narrow = PrunePolicyArg { headroom_ratio_bps: Some(10), ..arg() };
        let error = changed(&second, &narrow, &config_of(class()));
        assert!(matches!(error, Err(PruneError::BadArgument(BadArgument { field, .. })) if field == "target_bytes"));
        assert!(changed(&third, &narrow, &config_of(class())).is_ok());
    }

    #[test]
    fn invalid_policy_is_refused_with_its_field() {
        let arg = PrunePolicyArg::default;
        assert_eq!(policy_of(&arg(), class()), Ok(PrunePolicy::default()));
        assert_eq!(field(PrunePolicyArg { headroom_ratio_bps: Some(10_001), ..arg() }), "headroom_ratio_bps");
        assert_eq!(field(PrunePolicyArg { emergency_ratio_bps: Some(10_001), ..arg() }), "emergency_ratio_bps");
        assert_eq!(field(PrunePolicyArg { timer_interval_secs: Some(0), ..arg() }), "timer_interval_secs");
        assert_eq!(field(PrunePolicyArg { timer_interval_secs: Some(86_401), ..arg() }), "timer_interval_secs");
        assert_eq!(field(PrunePolicyArg { max_ops_per_tick: Some(0), ..arg() }), "max_ops_per_tick");
        assert_eq!(field(PrunePolicyArg { max_ops_per_tick: Some(MAX_PRUNE_OPS + 1), ..arg() }), "max_ops_per_tick");
        let too_many = Some(MAX_PRUNE_INSTRUCTIONS + 1);
        assert_eq!(field(PrunePolicyArg { max_instructions_per_tick: too_many, ..arg() }), "max_instructions_per_tick");
        // 10 % of 20 MiB is two blobs of the log exactly.
        assert_eq!(field(PrunePolicyArg { target_bytes: Some((20 << 20) - 100), ..arg() }), "target_bytes");
        policy_of(&PrunePolicyArg { target_bytes: Some(21 << 20), ..arg() }, class()).unwrap();
        let (target_bytes, emergency_ratio_bps) = (Some(1 << 30), Some(9_000));
        assert_eq!(field(PrunePolicyArg { target_bytes, emergency_ratio_bps, ..arg() }), "emergency_ratio_bps");
    }
}
