//! Message buckets: rate limits of ingress messages per principal.
//!
//! The guard of each executed update draws one message from the sender's bucket, whatever the outcome; the bucket refills with time. The
//! ingress filter refuses a message if the sender's bucket is empty. The filter cannot draw, because it only reads, so messages that arrive
//! before the first of them is executed all pass; they leave a debt of at most an hour's refill, which is refilled first.
//!
//! | sender | bucket |
//! |---|---|
//! | a feeder (`FEEDERS` of the access table) | none, because payload must not wait |
//! | a canister | none, because its calls bypass the filter and it pays for them |
//! | any other principal with a role, controllers included | its own |
//! | a principal without a role | none, because it can only query, and the platform discards changes of a query |
//!
//! Buckets are on the heap, so an upgrade fills all of them. A full bucket needs no entry, so there are at most `SPARE` (512) more entries
//! than principals with a role.

use crate::settings::roles::Roles;
use candid::Principal;
use ic_coppice_interface::Config;
use std::cell::RefCell;
use std::collections::BTreeMap;

/// Units of a message. A unit is 1/60,000,000,000 of a message (nanoseconds of a minute), so that a bucket refills by `messages_per_minute`
/// units per nanosecond.
const MINUTE: i128 = 60_000_000_000;
/// Largest debt, in minutes of refill.
const DEBT: i128 = 60;
/// Number of entries from which on the entries of full buckets, and of principals without a role, are dropped.
const SPARE: usize = 512;
/// Last byte of the principals of canisters.
const CANISTER: u8 = 1;

/// A bucket that was not full after its last message.
#[derive(Clone, Copy, Debug)]
struct Bucket {
    /// Units after the last message; negative for a debt.
    units: i128,
    /// Time of the last message, in Unix nanoseconds.
    at: u64,
}

thread_local! {
    static BUCKETS: RefCell<BTreeMap<Principal, Bucket>> = const { RefCell::new(BTreeMap::new()) };
}

/// Drops all buckets, as an upgrade does.
#[cfg(test)]
pub fn forget() {
    BUCKETS.set(BTreeMap::new());
}

fn capacity(config: &Config) -> i128 {
    i128::from(config.message_bucket) * MINUTE
}

impl Bucket {
    /// Returns the units now. A clock that went back refills a bucket as well, because a bucket must never wait for the clock.
    fn units(self, now: u64, config: &Config) -> i128 {
        let rate = i128::from(config.messages_per_minute);
        let debt = -DEBT * rate * MINUTE;
        (self.units.max(debt) + i128::from(now.abs_diff(self.at)) * rate).min(capacity(config))
    }
}

/// Returns the key of the sender's bucket, or `None` if the sender has no bucket.
fn owner(sender: Principal, roles: &Roles) -> Option<Principal> {
    let is_canister = sender.as_slice().last() == Some(&CANISTER) && sender.as_slice().len() <= 10;
    (!roles.is_feeder(sender) && !is_canister && roles.has_any(sender)).then_some(sender)
}

/// Returns whether the sender's bucket has a message left. Called by the ingress filter.
pub fn has_one(sender: Principal, now: u64, config: &Config, roles: &Roles) -> bool {
    owner(sender, roles).is_none_or(|owner| {
        let bucket = BUCKETS.with_borrow(|buckets| buckets.get(&owner).copied());
        bucket.is_none_or(|bucket| bucket.units(now, config) >= MINUTE)
    })
}

/// Takes one executed message from the sender's bucket.
pub fn draw(sender: Principal, now: u64, config: &Config, roles: &Roles) {
    let Some(owner) = owner(sender, roles) else { return };
    BUCKETS.with_borrow_mut(|buckets| {
        if buckets.len() >= SPARE && !buckets.contains_key(&owner) {
            let is_full = |bucket: &Bucket| bucket.units(now, config) == capacity(config);
            buckets.retain(|key, bucket| !is_full(bucket) && roles.has_any(*key));
        }
        let bucket = buckets.entry(owner).or_insert(Bucket { units: capacity(config), at: now });
        *bucket = Bucket { units: bucket.units(now, config) - MINUTE, at: now };
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::platform::native;
    use ic_coppice_interface::{Grant, Role};

    const SECOND: u64 = 1_000_000_000;
    const NOW: u64 = 1_000_000 * SECOND;

    fn of(byte: u8) -> Principal {
        Principal::self_authenticating([byte])
    }

    fn granted(principals: &[(Principal, Role)]) -> Roles {
        let mut roles = Roles::default();
        principals.iter().for_each(|&(principal, role)| roles.grant(Grant { principal, role }).unwrap());
        roles
    }

    /// Returns the number of messages that pass at `now` if each is executed before the next one arrives.
    fn passing(sender: Principal, now: u64, config: &Config, roles: &Roles) -> u64 {
        let pass = |_: &u64| has_one(sender, now, config, roles);
        (0..1_000_000).take_while(pass).inspect(|_| draw(sender, now, config, roles)).count() as u64
    }

    #[test]
    fn a_bucket_holds_its_messages_and_refills_with_time() {
        forget();
        let (config, roles) = (Config::default(), granted(&[(of(1), Role::Operator), (of(2), Role::Exporter)]));
        let of_other = |now| passing(of(2), now, &config, &roles);
        let passing = |now| passing(of(1), now, &config, &roles);
        assert_eq!(passing(NOW), 3_000);
        assert_eq!(passing(NOW), 0);
        // Five messages a second; a refused message draws nothing.
        for (secs, messages) in [(1, 5), (61, 300), (62, 5), (662, 3_000), (662, 0), (9_999_999, 3_000)] {
            assert_eq!(passing(NOW + secs * SECOND), messages, "{secs} s");
        }
        assert_eq!(of_other(NOW), 3_000, "a bucket is one principal's");
        forget();
        assert_eq!(passing(NOW), 3_000, "an upgrade fills it");
    }

    #[test]
    fn messages_beyond_an_empty_bucket_are_a_debt_of_at_most_an_hour() {
        let (config, roles) = (Config::default(), granted(&[(of(1), Role::Operator)]));
        // 300 messages more than the bucket holds, and very many more.
        for (messages, secs) in [(3_300, 60), (1_000_000, 3_600)] {
            forget();
            (0..messages).for_each(|_| draw(of(1), NOW, &config, &roles));
            assert_eq!(passing(of(1), NOW + secs * SECOND, &config, &roles), 0);
            assert_eq!(passing(of(1), NOW + (secs + 1) * SECOND, &config, &roles), 5);
        }
    }

    #[test]
    fn a_clock_that_goes_back_refills_buckets() {
        forget();
        let (config, roles) = (Config::default(), granted(&[(of(1), Role::Operator)]));
        let passing = |now| passing(of(1), now, &config, &roles);
        assert_eq!(passing(NOW), 3_000);
        assert_eq!(passing(NOW - SECOND), 5);
        assert_eq!(passing(NOW - SECOND), 0);
        for now in [0, u64::MAX, 0] {
            assert_eq!(passing(now), 3_000, "{now}");
        }
    }

    #[test]
    fn smaller_settings_apply_at_once_and_the_largest_do_not_overflow() {
        forget();
        let (mut config, roles) = (Config::default(), granted(&[(of(1), Role::Operator)]));
        draw(of(1), NOW, &config, &roles);
        (config.message_bucket, config.messages_per_minute) = (10, 1);
        assert_eq!(passing(of(1), NOW, &config, &roles), 10);
        assert_eq!(passing(of(1), NOW + 60 * SECOND - 1, &config, &roles), 0);
        assert_eq!(passing(of(1), NOW + 60 * SECOND, &config, &roles), 1);
        (config.message_bucket, config.messages_per_minute) = (1_000_000, 1_000_000);
        assert_eq!(passing(of(1), u64::MAX, &config, &roles), 1_000_000);
    }

    #[test]
    fn feeders_canisters_and_strangers_have_no_bucket() {
        forget();
        native::reset();
        let canister = Principal::from_slice(&[0, 0, 0, 0, 0, 0, 0, 7, 1, 1]);
        let feeder = [(of(1), Role::Producer), (of(1), Role::Operator)];
        let roles = granted(&[&feeder[..], &[(canister, Role::Operator), (of(3), Role::Observer)]].concat());
        native::with(|world| world.controllers = vec![of(4)]);
        let config = Config::default();
        let other = Principal::from_slice(&[0, 0, 0, 0, 0, 0, 0, 8, 1, 1]);
        for without in [of(1), canister, other, of(5), Principal::anonymous()] {
            (0..4_000).for_each(|_| draw(without, NOW, &config, &roles));
            assert!(has_one(without, NOW, &config, &roles));
        }
        // An observer and a controller each have a bucket.
        assert_eq!(passing(of(3), NOW, &config, &roles), 3_000);
        assert_eq!(passing(of(4), NOW, &config, &roles), 3_000);
    }

    /// Principals that lose their role leave no entry.
    #[test]
    fn entries_are_bounded_by_principals_with_a_role_and_the_spare() {
        forget();
        let config = Config::default();
        for number in 0..10_000u32 {
            let passing = Principal::self_authenticating(number.to_le_bytes());
            let roles = granted(&[(passing, Role::Operator), (of(1), Role::Observer)]);
            draw(passing, NOW, &config, &roles);
            draw(of(1), NOW, &config, &roles);
            if number >= 3_000 && number % 500 == 0 {
                assert!(!has_one(of(1), NOW, &config, &roles), "one in use stays");
            }
        }
        assert!(BUCKETS.with_borrow(BTreeMap::len) <= SPARE);
    }
}
