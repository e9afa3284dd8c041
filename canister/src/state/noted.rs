//! Changes that are written to the audit log.

use super::State;
use crate::logs::audit::{Call, Fields, changes};
use crate::platform;
use ic_coppice_interface::Role;
use std::fmt::{Debug, Display};

impl State {
    /// Runs a change by an operator or an admin, and writes it to the audit log. `shown` returns the fields that may change.
    ///
    /// # Errors
    /// The error of `change`, which is logged too.
    pub fn noting<T, E: Debug + Display>(
        &mut self,
        method: &str,
        argument: impl Into<String>,
        shown: impl Fn(&Self) -> Fields,
        change: impl FnOnce(&mut Self) -> Result<T, E>,
    ) -> Result<T, E> {
        // Read before the change, because an admin may revoke its own role.
        let by_admin = self.caller_is(Role::Admin);
        let before = shown(self);
        let done = change(self);
        let changes = changes(before, shown(self));
        let argument: String = argument.into();
        let result = done.as_ref().map_or_else(coded, |_| "Ok".to_string());
        let (time, caller) = (platform::time_ns(), platform::caller());
        let call = Call { time, caller, method, argument: &argument, result: &result };
        self.audit.note(by_admin, &call, changes);
        done
    }
}

/// Returns an error as its stable word and its sentence.
fn coded<E: Debug + Display>(of: &E) -> String {
    // The name of the case comes first.
    let fields = format!("{of:?}");
    format!("{}: {of}", fields.split(|c: char| !c.is_alphanumeric()).next().unwrap_or_default())
}
