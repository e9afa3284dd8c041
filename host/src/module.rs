//! Rewrites and compiles a canister's Wasm into a module that the host can run, roll back and snapshot.
//!
//! The host needs parts that a canister does not export: its memory, its table (callbacks are indexes into it), and every mutable global,
//! because a trap must undo those, too. The host must also be able to create a second instance of an installed canister without running its
//! `start` function again. So the export section is rewritten before compiling: the host adds exports under its own prefix, and turns
//! `start` into one of them. Everything else is copied byte for byte; the code stays the same, and so does its cost.

use std::collections::{BTreeMap, HashSet};
use std::io::Read;

use flate2::read::MultiGzDecoder;
use wasm_encoder::{ExportKind, ExportSection, RawSection};
use wasmparser::{ExternalKind, Parser, Payload, TypeRef};
use wasmtime::{Engine, InstancePre, Linker};

use crate::compiled;
use crate::context::Context;

const PREFIX: &str = "ic_coppice_host:";
/// The export name of the memory.
pub(crate) const MEMORY: &str = "ic_coppice_host:memory";
/// The export name of the table.
pub(crate) const TABLE: &str = "ic_coppice_host:table";
/// Hooks of the platform that this host does not have.
const NOT_RUN: [&str; 2] = ["canister_heartbeat", "canister_on_low_wasm_memory"];
/// The export name of the former `start` function.
pub(crate) const START: &str = "ic_coppice_host:start";

/// The largest module, in bytes after decompression: 100 MiB.
const MAX_MODULE: u64 = 100 << 20;

/// Reason why bytes cannot be installed as a canister's code.
#[derive(Debug, thiserror::Error)]
pub(crate) enum InvalidModule {
    #[error("failed to decompress Wasm module: {0}")]
    Gzip(std::io::Error),
    #[error("Wasm module is larger than {MAX_MODULE} bytes")]
    TooLarge,
    #[error("{0}")]
    Parse(#[from] wasmparser::BinaryReaderError),
    #[error("Wasm module has an invalid import: {0}")]
    Import(String),
    #[error("the embedded host does not run {0}")]
    NotRun(String),
    #[error("Wasm module has an invalid export: {0}")]
    Export(String),
    #[error("{0}")]
    Compile(String),
}

/// A compiled canister module, ready to be instantiated.
pub(crate) struct CanisterModule {
    pub(crate) pre: InstancePre<Context>,
    /// SHA-256 of the bytes as installed.
    pub(crate) hash: [u8; 32],
    /// Bytes of the module as installed.
    pub(crate) size: u64,
    /// Bytes of the module after decompression.
    pub(crate) unpacked: u64,
    /// Names of the exported mutable globals.
    pub(crate) globals: Vec<String>,
    exports: HashSet<String>,
    /// The metadata that everybody may read, by name.
    pub(crate) metadata: BTreeMap<String, Vec<u8>>,
}

impl CanisterModule {
    pub(crate) fn new(
        engine: &Engine,
        linker: &Linker<Context>,
        wasm: &[u8],
        hash: [u8; 32],
    ) -> Result<Self, InvalidModule> {
        let unpacked = unpack(wasm)?;
        let rewritten = Rewritten::new(&unpacked)?;
        let compile = |error: wasmtime::Error| InvalidModule::Compile(format!("{error:#}"));
        let module = compiled::module(engine, &rewritten.wasm).map_err(compile)?;
        let pre = linker.instantiate_pre(&module).map_err(compile)?;
        Ok(CanisterModule {
            pre,
            hash,
            size: wasm.len() as u64,
            unpacked: unpacked.len() as u64,
            globals: rewritten.globals,
            exports: rewritten.exports,
            metadata: rewritten.metadata,
        })
    }

    /// Returns true if the canister exports a function of this name.
    pub(crate) fn exports(&self, name: &str) -> bool {
        self.exports.contains(name)
    }
}

fn unpack(wasm: &[u8]) -> Result<Vec<u8>, InvalidModule> {
    if !wasm.starts_with(&[0x1f, 0x8b]) {
        return Ok(wasm.to_vec());
    }
    let mut unpacked = Vec::new();
    MultiGzDecoder::new(wasm).take(MAX_MODULE + 1).read_to_end(&mut unpacked).map_err(InvalidModule::Gzip)?;
    if unpacked.len() as u64 > MAX_MODULE { Err(InvalidModule::TooLarge) } else { Ok(unpacked) }
}

struct Rewritten {
    wasm: Vec<u8>,
    globals: Vec<String>,
    exports: HashSet<String>,
    metadata: BTreeMap<String, Vec<u8>>,
}

/// The section numbers that the binary format puts after the exports.
const AFTER_EXPORTS: [u8; 5] = [8, 9, 10, 11, 12];
const EXPORT_SECTION: u8 = 7;
const START_SECTION: u8 = 8;

impl Rewritten {
    fn new(wasm: &[u8]) -> Result<Self, InvalidModule> {
        let mut module = wasm_encoder::Module::new();
        let mut section = ExportSection::new();
        let mut globals = Vec::new();
        let mut exports = HashSet::new();
        let mut metadata = BTreeMap::new();
        let mut sections = Vec::new();
        for payload in Parser::new(0).parse_all(wasm) {
            let payload = payload?;
            match &payload {
                Payload::ImportSection(reader) => {
                    for import in reader.clone().into_imports() {
                        let import = import?;
                        if !matches!(import.ty, TypeRef::Func(_)) {
                            return Err(InvalidModule::Import(format!("{}.{}", import.module, import.name)));
                        }
                    }
                }
                Payload::TableSection(reader) if reader.count() > 0 => {
                    section.export(TABLE, ExportKind::Table, 0);
                }
                Payload::MemorySection(reader) if reader.count() > 0 => {
                    section.export(MEMORY, ExportKind::Memory, 0);
                }
                Payload::GlobalSection(reader) => {
                    for (index, global) in reader.clone().into_iter().enumerate() {
                        if global?.ty.mutable {
                            let name = format!("{PREFIX}global:{index}");
                            section.export(&name, ExportKind::Global, index as u32);
                            globals.push(name);
                        }
                    }
                }
                Payload::ExportSection(reader) => {
                    for export in reader.clone() {
                        let export = export?;
                        if NOT_RUN.contains(&export.name) {
                            return Err(InvalidModule::NotRun(export.name.into()));
                        }
                        if export.name.starts_with(PREFIX) {
                            return Err(InvalidModule::Export(export.name.into()));
                        }
                        let kind = match export.kind {
                            ExternalKind::Func => {
                                exports.insert(export.name.to_string());
                                ExportKind::Func
                            }
                            ExternalKind::Table => ExportKind::Table,
                            ExternalKind::Memory => ExportKind::Memory,
                            ExternalKind::Global => ExportKind::Global,
                            _ => return Err(InvalidModule::Export(export.name.into())),
                        };
                        section.export(export.name, kind, export.index);
                    }
                }
                Payload::CustomSection(reader) => {
                    if let Some(name) = reader.name().strip_prefix("icp:public ") {
                        metadata.insert(name.to_string(), reader.data().to_vec());
                    }
                }
                Payload::StartSection { func, .. } => {
                    section.export(START, ExportKind::Func, *func);
                    exports.insert(START.into());
                }
                _ => {}
            }
            if let Some((id, range)) = payload.as_section() {
                sections.push((id, range));
            }
        }
        let mut section = Some(section);
        for (id, range) in sections {
            if AFTER_EXPORTS.contains(&id)
                && let Some(section) = section.take()
            {
                module.section(&section);
            }
            if id != EXPORT_SECTION && id != START_SECTION {
                module.section(&RawSection { id, data: &wasm[range] });
            }
        }
        if let Some(section) = section {
            module.section(&section);
        }
        Ok(Rewritten { wasm: module.finish(), globals, exports, metadata })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn module_with_a_hook_that_the_host_lacks_is_refused() {
        for name in NOT_RUN {
            let wasm = wat::parse_str(format!(r#"(module (func (export "{name}")))"#)).unwrap();
            let refused = Rewritten::new(&wasm).err().map(|error| error.to_string());
            assert_eq!(refused, Some(format!("the embedded host does not run {name}")));
        }
    }

    #[test]
    fn start_and_hidden_state_become_exports() {
        let wasm = wat::parse_str(
            r#"(module (memory 1) (table 1 funcref) (global (mut i32) (i32.const 1)) (global i32 (i32.const 1))
                 (global (export "g") (mut i64) (i64.const 1)) (func $s) (func (export "f")) (start $s))"#,
        )
        .unwrap();
        let rewritten = Rewritten::new(&wasm).unwrap();
        assert_eq!(rewritten.globals, ["ic_coppice_host:global:0", "ic_coppice_host:global:2"]);
        assert!(rewritten.exports.contains(START) && rewritten.exports.contains("f"));
        wasmtime::Module::new(crate::engine::engine(), &rewritten.wasm).unwrap();
    }

    #[test]
    fn imports_other_than_functions_are_refused() {
        let wasm = wat::parse_str(r#"(module (import "env" "memory" (memory 1)))"#).unwrap();
        assert!(matches!(Rewritten::new(&wasm), Err(InvalidModule::Import(_))));
    }

    #[test]
    fn broken_gzip_is_refused() {
        assert!(matches!(unpack(&[0x1f, 0x8b, 1, 2, 3]), Err(InvalidModule::Gzip(_))));
    }
}
