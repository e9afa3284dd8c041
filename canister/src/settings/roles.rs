//! Roles of principals.

use crate::platform;
use candid::Principal;
use ic_coppice_interface::access::FEEDERS;
use ic_coppice_interface::{Grant, Role, RoleError};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// Maximum number of grants.
const MAX_GRANTS: usize = 256;

/// The granted roles. Controllers are admins and operators without a grant.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Roles(BTreeSet<Grant>);

impl Roles {
    /// Returns whether the grant exists, or the principal controls the canister and the role is `Operator` or `Admin`.
    pub fn has(&self, principal: Principal, role: Role) -> bool {
        if principal == Principal::anonymous() {
            return false;
        }
        let of_controllers = matches!(role, Role::Operator | Role::Admin);
        self.0.contains(&Grant { principal, role }) || of_controllers && platform::is_controller(&principal)
    }

    /// Returns whether a principal has any role.
    pub fn has_any(&self, principal: Principal) -> bool {
        principal != Principal::anonymous()
            && (self.0.iter().any(|grant| grant.principal == principal) || platform::is_controller(&principal))
    }

    /// Returns whether a principal feeds the chain or the records. A feeder's messages are not limited, because payload must not wait.
    pub fn is_feeder(&self, principal: Principal) -> bool {
        FEEDERS.iter().any(|&role| self.has(principal, role))
    }

    /// Returns whether any principal has a role that feeds the chain or the records.
    pub fn has_feeder(&self) -> bool {
        self.0.iter().any(|grant| FEEDERS.contains(&grant.role))
    }

    /// Returns whether the grant exists.
    pub fn is_granted(&self, grant: &Grant) -> bool {
        self.0.contains(grant)
    }

    /// Grants a role. Granting an existing role again has no effect.
    pub fn grant(&mut self, grant: Grant) -> Result<(), RoleError> {
        if grant.principal == Principal::anonymous() {
            return Err(RoleError::Anonymous);
        }
        if self.0.len() >= MAX_GRANTS && !self.0.contains(&grant) {
            return Err(RoleError::TooMany { limit: MAX_GRANTS as u64 });
        }
        self.0.insert(grant);
        Ok(())
    }

    /// Revokes a role, and returns whether it was granted.
    pub fn revoke(&mut self, grant: &Grant) -> bool {
        self.0.remove(grant)
    }

    /// All grants.
    pub fn list(&self) -> Vec<Grant> {
        self.0.iter().copied().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::platform::native;

    #[test]
    fn controllers_are_operators_and_admins_and_anonymous_has_no_role() {
        native::reset();
        let (a, b) = (Principal::from_slice(&[1]), Principal::from_slice(&[2]));
        let mut roles = Roles::default();
        native::with(|world| world.controllers = vec![a, Principal::anonymous()]);
        assert!(roles.has(a, Role::Operator) && roles.has(a, Role::Admin) && roles.has_any(a));
        assert!(!roles.has(a, Role::Producer) && !roles.has(a, Role::Observer));
        let anonymous = Principal::anonymous();
        assert!(
            !roles.has(anonymous, Role::Operator) && !roles.has(anonymous, Role::Admin) && !roles.has_any(anonymous)
        );
        assert!(!roles.has_any(b));
        roles.grant(Grant { principal: b, role: Role::Producer }).unwrap();
        assert!(roles.has(b, Role::Producer) && roles.has_any(b) && !roles.has(b, Role::Operator));
        roles.grant(Grant { principal: b, role: Role::Operator }).unwrap();
        assert!(roles.has(b, Role::Operator) && !roles.has(b, Role::Admin), "an operator is not an admin");
        assert_eq!(
            roles.grant(Grant { principal: Principal::anonymous(), role: Role::Producer }),
            Err(RoleError::Anonymous)
        );
        assert!(roles.revoke(&Grant { principal: b, role: Role::Producer }));
        assert!(!roles.has(b, Role::Producer));
    }

    #[test]
    fn grants_are_bounded() {
        let mut roles = Roles::default();
        let grant = |i: usize| Grant { principal: Principal::from_slice(&i.to_le_bytes()), role: Role::Exporter };
        (0..MAX_GRANTS).for_each(|i| roles.grant(grant(i)).unwrap());
        assert_eq!(roles.grant(grant(MAX_GRANTS)), Err(RoleError::TooMany { limit: 256 }));
        assert_eq!(roles.grant(grant(0)), Ok(()), "what is granted already is no more");
        let mut bytes = Vec::new();
        ciborium::into_writer(&roles, &mut bytes).unwrap();
        assert!(bytes.len() < 48 << 10, "{} bytes do not fit the cell", bytes.len());
    }
}
