//! Changes that go into the audit log.

use super::State;
use crate::logs::audit::{Call, Fields, changes};
use crate::platform;
use coppice_interface::Role;
use std::fmt::Debug;

impl State {
    /// Makes a change of an operator or an admin, and writes it into the audit log. `shown` reads the fields that the change is about.
    ///
    /// # Errors
    /// The error of `change`, which the audit log gets too.
    pub fn noting<T, E: Debug>(
        &mut self,
        method: &str,
        argument: impl Into<String>,
        shown: impl Fn(&Self) -> Fields,
        change: impl FnOnce(&mut Self) -> Result<T, E>,
    ) -> Result<T, E> {
        // Before the change: an admin may revoke its own role.
        let by_admin = self.caller_is(Role::Admin);
        let before = shown(self);
        let done = change(self);
        let changes = changes(before, shown(self));
        let argument: String = argument.into();
        let result = done.as_ref().map_or_else(|error| format!("{error:?}"), |_| "Ok".to_string());
        let (time, caller) = (platform::time_ns(), platform::caller());
        let call = Call { time, caller, method, argument: &argument, result: &result };
        self.audit.note(by_admin, &call, changes);
        done
    }
}
