//! A canister on a private network.

use crate::gateway::Gateway;
use candid::Principal;
use coppice_testkit::wasm;
use ic_coppice_cli::client::Client;
use ic_coppice_cli::network::{Network, NetworkArgs};
use ic_coppice_host::Host;
use ic_coppice_interface::{CanisterArg, InitArg};
use ic_ed25519::{PrivateKey, PrivateKeyFormat};
use std::process::{Command, Output};
use std::sync::Arc;

/// A canister behind a gateway, and a key with the roles of operator and producer.
pub struct Net {
    pub gateway: Gateway,
    pub host: Arc<Host>,
    pub canister: Principal,
    /// The key's principal.
    pub principal: Principal,
    pub dir: tempfile::TempDir,
}

/// Returns the argument that gives a principal all roles.
fn all_roles(of: Principal) -> InitArg {
    InitArg {
        operators: vec![of],
        producers: vec![of],
        admins: Some(vec![of]),
        least_retries: None,
        ..InitArg::default()
    }
}

fn install(host: &Host, init: InitArg) -> Principal {
    let controller = Principal::self_authenticating(b"controller");
    let canister = host.create_canister_with_settings(Some(controller), None);
    host.add_cycles(canister, 10_000_000_000_000_000);
    ic_coppice_host::set_module_cache(ic_coppice_host::default_module_cache());
    let arg = candid::encode_one(Some(CanisterArg::Init(init))).unwrap();
    host.install_canister(canister, wasm::of_tests(), arg, Some(controller));
    // Its first timer draws the hash key, so that it is ready.
    host.tick();
    canister
}

impl Net {
    pub fn start() -> Self {
        Self::with(all_roles)
    }

    /// Installs another canister on the same subnet, with the same roles.
    pub fn install_another(&self) -> Principal {
        install(&self.host, all_roles(self.principal))
    }

    /// Starts with a canister that is installed with `init` of the key's principal.
    pub fn with(init: impl FnOnce(Principal) -> InitArg) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let key = PrivateKey::generate_from_seed(b"operator");
        let path = dir.path().join("key.pem");
        std::fs::write(&path, key.serialize_pkcs8_pem(PrivateKeyFormat::Pkcs8v2)).unwrap();
        std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
        let principal = Principal::self_authenticating(key.public_key().serialize_rfc8410_der());
        let host = Arc::new(Host::new());
        let canister = install(&host, init(principal));
        Self { gateway: Gateway::start(host.clone()), host, canister, principal, dir }
    }

    pub fn path(&self, name: &str) -> String {
        self.dir.path().join(name).display().to_string()
    }

    pub fn database(&self) -> String {
        format!("sqlite://{}", self.path("index.db"))
    }

    pub fn args(&self) -> NetworkArgs {
        NetworkArgs {
            network: Some(self.gateway.url().parse().unwrap()),
            canister: Some(self.canister),
            identity: Some(self.path("key.pem").into()),
            fetch_root_key: true,
        }
    }

    pub fn client(&self) -> Client<Network> {
        self.args().connect().unwrap()
    }

    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_coppice"));
        let (url, canister) = (self.gateway.url(), self.canister.to_string());
        command.args(args).args(["--network", &url, "--canister", &canister, "--identity", &self.path("key.pem")]);
        command.args(["--fetch-root-key", "--json"]);
        // The directory of temporary files may be in memory.
        let is_sqlite = args.iter().any(|arg| arg.starts_with("sqlite:"));
        command.args((args[0] == "index" && is_sqlite).then_some("--volatile-database"));
        command
    }

    pub fn run(&self, args: &[&str]) -> Output {
        self.command(args).output().unwrap()
    }
}
