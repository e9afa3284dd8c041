//! Canister in this process, whose state is put back before each command.

use super::liar::{Liar, Lie};
use crate::wasm;
use candid::Principal;
use ic_coppice_client::Client;
use ic_coppice_client::command::Wait;
use ic_coppice_host::{Checkpoint, Host};
use ic_coppice_interface::{CanisterArg, Exporter, Grant, InitArg, Role};
use std::sync::Arc;

/// A canister, a caller with every role, and a directory.
pub struct World {
    pub host: Arc<Host>,
    pub canister: Principal,
    principal: Principal,
    pub dir: tempfile::TempDir,
    checkpoint: Option<Checkpoint>,
}

impl World {
    /// Installs the canister.
    #[expect(clippy::new_without_default, reason = "it installs a canister")]
    pub fn new() -> Self {
        ic_coppice_host::set_module_cache(ic_coppice_host::default_module_cache());
        let (host, principal) = (Arc::new(Host::new()), Principal::self_authenticating(b"caller"));
        let init = InitArg {
            operators: vec![principal],
            producers: vec![principal],
            admins: Some(vec![principal]),
            ..InitArg::default()
        };
        let canister = host.create_canister_with_settings(Some(principal), None);
        host.add_cycles(canister, 10_000_000_000_000_000);
        let arg = candid::encode_one(Some(CanisterArg::Init(init))).unwrap();
        host.install_canister(canister, wasm::of_tests(), arg, Some(principal));
        // Its first timer draws the hash key, so that it is ready.
        host.tick();
        let world = Self { host, canister, principal, dir: tempfile::tempdir().unwrap(), checkpoint: None };
        let client = world.client();
        client.grant_role(&Grant { principal, role: Role::BlobWorker }).done().unwrap();
        world
    }

    /// Registers the caller as an exporter.
    pub fn register(&self) {
        let exporter = Exporter { name: "indexer".into(), principal: self.principal };
        self.client().register_exporter(&exporter).done().unwrap();
    }

    /// Makes the present state the one in which commands begin.
    pub fn keep(&mut self) {
        self.checkpoint = Some(self.host.checkpoint());
    }

    /// Puts the canister back to the kept state, and returns a client of it.
    pub fn restored(&self, lie: Option<Lie>) -> Arc<Client<Liar>> {
        self.host.restore(self.checkpoint.as_ref().expect("a state was kept"));
        Arc::new(self.lying(lie))
    }

    /// Returns an honest client of the canister as it is.
    pub fn client(&self) -> Client<Liar> {
        self.lying(None)
    }

    fn lying(&self, lie: Option<Lie>) -> Client<Liar> {
        Client::new(Liar::new(self.host.clone(), self.canister, self.principal, lie))
    }

    pub fn path(&self, name: &str) -> String {
        self.dir.path().join(name).display().to_string()
    }
}
