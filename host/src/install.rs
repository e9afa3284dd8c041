//! Installs, upgrades and reinstalls code, completely or not at all.
//!
//! An installation is one message: it sets 300 G instructions aside, for compiling the module and for all hooks together. The messages that
//! bring the module are paid before it.

use candid::Principal;

use crate::canister::{Canister, Job, State, Surroundings};
use crate::context::Input;
use crate::cycles;
use crate::engine;
use crate::execution::Kind;
use crate::heap::HeapImage;
use crate::ingress::envelope_bytes;
use crate::instance::{Entry, Instance};
use crate::module::START;
use crate::reject::{ErrorCode, RejectResponse, no_code, out_of_cycles};
use crate::stable_memory::StableMemory;
use crate::subnet::Subnet;
use crate::trap::Trap;

/// The treatment of existing code and data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    Install,
    Upgrade,
    Reinstall,
}

impl Subnet {
    pub(crate) fn install_code(
        &mut self,
        id: Principal,
        mode: Mode,
        wasm: &[u8],
        arg: Vec<u8>,
        sender: Principal,
    ) -> Result<(), RejectResponse> {
        let limit = self.limits.install_instructions;
        let state = &self.controlled(id, sender, "install_code")?.state;
        match (mode, &state.code) {
            (Mode::Install, Some(_)) => {
                let message = format!(
                    "Canister {id} cannot be installed because the canister is not empty. Try \
                    installing with mode='reinstall' instead."
                );
                return Err(RejectResponse::new(ErrorCode::CanisterNonEmpty, message));
            }
            (Mode::Upgrade, None) => return Err(no_code(id)),
            _ => {}
        }
        let management = Principal::management_canister();
        let envelope = |bytes| envelope_bytes(management, sender, "install_code".len(), bytes);
        let bringing = cycles::bringing(wasm.len(), arg.len(), envelope);
        let needed = bringing + cycles::execution(limit);
        if state.liquid() < needed {
            return Err(out_of_cycles(id, needed + state.freezing_limit() - state.balance));
        }
        let compiled = engine::compile(wasm);
        let unpacked = compiled.as_ref().map_or(wasm.len() as u64, |code| code.unpacked);
        let compiling = cycles::compiling(unpacked).min(limit);
        let (canister, mut around) = self.split(id)?;
        canister.state.balance -= bringing + cycles::execution(compiling);
        let code = compiled.map_err(|error| {
            let message = format!("Error from Canister {id}: Canister's Wasm module is not valid: {error}");
            RejectResponse::new(ErrorCode::CanisterInvalidWasm, message)
        })?;
        let before = canister.state.clone();
        let mut hooks = Hooks { limit: limit - compiling, arg, sender, around: &mut around };
        let result = hooks.install(canister, mode, code);
        if let Err(trap) = &result {
            let failed = std::mem::replace(&mut canister.state, before);
            // Executed instructions are paid for, and printed lines stay.
            let State { balance, log, .. } = failed;
            canister.state.balance = balance;
            canister.state.log = log;
            canister.instance = None;
            return Err(trap.reject(id));
        }
        Ok(())
    }
}

/// The hooks of an installation, which share one instruction limit and one fee.
struct Hooks<'a, 'b> {
    limit: u64,
    arg: Vec<u8>,
    sender: Principal,
    around: &'a mut Surroundings<'b>,
}

impl Hooks<'_, '_> {
    fn install(
        &mut self,
        canister: &mut Canister,
        mode: Mode,
        code: std::sync::Arc<crate::module::CanisterModule>,
    ) -> Result<(), Trap> {
        if mode == Mode::Upgrade {
            self.run(canister, Kind::PreUpgrade, "canister_pre_upgrade")?;
        }
        let state = &mut canister.state;
        state.heap = HeapImage::default();
        state.timer = 0;
        state.version += 1;
        if mode != Mode::Upgrade {
            state.stable = StableMemory::default();
            state.certified_data.clear();
        }
        let mut instance = Instance::new(&code)?;
        instance.commit(&mut state.heap);
        state.code = Some(code);
        canister.instance = Some(instance);
        self.run(canister, Kind::Start, START)?;
        match mode {
            Mode::Upgrade => self.run(canister, Kind::PostUpgrade, "canister_post_upgrade"),
            Mode::Install | Mode::Reinstall => self.run(canister, Kind::Init, "canister_init"),
        }
    }

    /// Runs a hook, if the canister has it.
    fn run(&mut self, canister: &mut Canister, kind: Kind, export: &str) -> Result<(), Trap> {
        if !canister.state.exports(export) {
            return Ok(());
        }
        let takes_argument = matches!(kind, Kind::Init | Kind::PostUpgrade);
        let input = Input {
            caller: self.sender.as_slice().to_vec(),
            arg: if takes_argument { std::mem::take(&mut self.arg) } else { Vec::new() },
            answered: true,
            ..Input::default()
        };
        // The fee has been paid with the compilation.
        canister.state.balance += cycles::EXECUTION;
        let job = Job { kind, entry: Entry::Export(export.into()), input, limit: self.limit, prepaid: None };
        let done = canister.execute(job, self.around);
        self.limit -= done.instructions;
        done.result.map(|_| ())
    }
}
