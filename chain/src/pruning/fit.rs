//! Target of the chain and caps on stable memory: a change of one of them is refused if they do not fit together.
//!
//! ```text
//! max_stable_pages
//! ┌─ fronts, cells, directories ─┬─ target_bytes ─┬─ max_utxo_bytes, if set ─┬─ reserve ─┐
//! ```
//! A chain that cannot reach its target prunes by an effective target (`pruning/policy.rs`); this check tells the operator before.

use ic_coppice_interface::{BadArgument, Config, MAX_STABLE_PAGES, greatest_records, greatest_target, least_pages};

/// Checks a new target.
///
/// # Errors
/// The greatest target, and the least `max_stable_pages`, that would do.
pub fn check_target(config: &Config, target_bytes: u64) -> Result<(), BadArgument> {
    if fits(config, target_bytes) {
        return Ok(());
    }
    let (pages, beside, most) = (config.max_stable_pages, beside(config), greatest(config));
    let raise = match least_pages(target_bytes, config.log_class, records_bytes(config)) {
        least if least <= MAX_STABLE_PAGES => format!(", or raise max_stable_pages to {least}"),
        _ => String::new(),
    };
    let why =
        format!("{target_bytes} bytes do not fit below max_stable_pages ({pages}){beside}: at most {most}{raise}");
    Err(BadArgument::new("target_bytes", why))
}

/// Checks a change of the caps from `old` to `new` against the target in force.
///
/// # Errors
/// The value of the changed cap, and the target, that would do.
pub fn check_caps(old: &Config, new: &Config, target_bytes: u64) -> Result<(), BadArgument> {
    let (records, pages) = (records_bytes(new), new.max_stable_pages);
    let same_pages = old.max_stable_pages == pages;
    if same_pages && records_bytes(old) == records || fits(new, target_bytes) {
        return Ok(());
    }
    let lower = format!("or lower target_bytes ({target_bytes}) to {}", greatest(new));
    if same_pages {
        // 0 is the default.
        let most = greatest_records(pages, new.log_class, target_bytes).max(1);
        let why = format!("{records} bytes do not fit below max_stable_pages ({pages}): at most {most}, {lower}");
        return Err(BadArgument::new("max_utxo_bytes", why));
    }
    let least = least_pages(target_bytes, new.log_class, records);
    let why = format!("the chain does not reach its target{}: at least {least}, {lower}", beside(new));
    Err(BadArgument::new("max_stable_pages", why))
}

fn fits(config: &Config, target_bytes: u64) -> bool {
    let least = least_pages(target_bytes, config.log_class, records_bytes(config));
    target_bytes == 0 || least <= config.max_stable_pages
}

fn greatest(config: &Config) -> u64 {
    greatest_target(config.max_stable_pages, config.log_class, records_bytes(config))
}

/// Returns the cap on records that is set; 0 if none is.
fn records_bytes(config: &Config) -> u64 {
    config.utxo.as_ref().map_or(0, |utxo| utxo.max_utxo_bytes)
}

/// Returns what the records take, for a sentence.
fn beside(config: &Config) -> String {
    match records_bytes(config) {
        0 => String::new(),
        bytes => format!(" beside max_utxo_bytes ({bytes})"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ic_coppice_interface::UtxoSettings;

    const MIB: u64 = 1 << 20;

    fn config(max_stable_pages: u64, max_utxo_bytes: u64) -> Config {
        let utxo = Some(UtxoSettings { max_utxo_bytes, ..UtxoSettings::default() });
        Config { max_stable_pages, utxo, ..Config::default() }
    }

    fn number_after(why: &str, words: &str) -> u64 {
        let digits = why.split_once(words).unwrap_or_else(|| panic!("{why}")).1;
        digits.split(|digit: char| !digit.is_ascii_digit()).next().unwrap().parse().unwrap()
    }

    #[test]
    fn refused_target_is_told_the_greatest_one_and_the_least_cap() {
        for (pages, records) in [(7_024, 0), (9_073, 0), (9_073, 100 * MIB), (20_000, 3), (8_192_000, 0)] {
            let config = config(pages, records);
            let most = greatest(&config);
            assert_eq!(check_target(&config, most), Ok(()));
            let refused = check_target(&config, most + MIB).unwrap_err();
            assert_eq!(refused.field, "target_bytes");
            assert_eq!(number_after(&refused.why, ": at most "), most, "{}", refused.why);
            if pages < MAX_STABLE_PAGES {
                let least = number_after(&refused.why, "raise max_stable_pages to ");
                let raised = |max_stable_pages| Config { max_stable_pages, ..config.clone() };
                assert_eq!(check_target(&raised(least), most + MIB), Ok(()));
                assert!(check_target(&raised(least - 1), most + MIB).is_err());
            } else {
                assert!(!refused.why.contains("raise"), "{}", refused.why);
            }
        }
        assert!(check_target(&config(5_120, 0), u64::MAX).is_err());
        assert_eq!(check_target(&config(5_120, u64::MAX), 0), Ok(()), "without a target nothing is compared");
    }

    #[test]
    fn refused_cap_is_told_the_value_that_would_do() {
        let target = 199 * MIB;
        let old = config(9_073, 10 * MIB);
        let refused = check_caps(&old, &config(4_000, 10 * MIB), target).unwrap_err();
        assert_eq!(refused.field, "max_stable_pages");
        let least = number_after(&refused.why, ": at least ");
        assert_eq!(check_caps(&old, &config(least, 10 * MIB), target), Ok(()));
        assert!(check_caps(&old, &config(least - 1, 10 * MIB), target).is_err());
        let lower = number_after(&refused.why, "to ");
        assert_eq!(check_caps(&old, &config(4_000, 10 * MIB), lower), Ok(()));

        let refused = check_caps(&old, &config(9_073, 500 * MIB), target).unwrap_err();
        assert_eq!(refused.field, "max_utxo_bytes");
        let most = number_after(&refused.why, ": at most ");
        assert_eq!(check_caps(&old, &config(9_073, most), target), Ok(()));
        assert!(check_caps(&old, &config(9_073, most + 1), target).is_err());
        assert_eq!(check_caps(&old, &old, 10_000 * MIB), Ok(()), "the call changes no cap");
    }
}
