//! A live Wasm instance, with commit and rollback.

use std::sync::Arc;

use wasmtime::{Func, Global, Instance as WasmInstance, Memory, Ref, Store, Table, Val};

use crate::context::{Context, Run};
use crate::engine;
use crate::heap::HeapImage;
use crate::module::{CanisterModule, MEMORY, TABLE};
use crate::trap::Trap;
use crate::written::Written;

/// Fuel for instantiation, which is not charged because the platform writes data segments for free.
const PLENTY: u64 = i64::MAX as u64;

/// The start of an execution.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Entry {
    /// An exported function without parameters.
    Export(String),
    /// A function of the table, with its environment: a callback.
    Callback { function: u32, env: u32 },
}

/// A live instance of a canister.
pub(crate) struct Instance {
    store: Store<Context>,
    instance: WasmInstance,
    memory: Option<Memory>,
    /// The pages of `memory` that may differ from the image.
    written: Written,
    table: Option<Table>,
    globals: Vec<Global>,
}

/// The result of an execution.
pub(crate) struct Ended {
    pub(crate) run: Box<Run>,
    pub(crate) result: Result<(), Trap>,
    pub(crate) instructions: u64,
}

impl Instance {
    /// Creates an instance with the module's initial memory and globals, without running `start`.
    pub(crate) fn new(module: &Arc<CanisterModule>) -> Result<Self, Trap> {
        let broken = |error: wasmtime::Error| Trap::Wasm(format!("instantiation failed: {error}"));
        let mut store = Store::new(engine::engine(), Context::default());
        store.limiter(|context| context);
        store.set_fuel(PLENTY).map_err(broken)?;
        let instance = module.pre.instantiate(&mut store).map_err(|e| Trap::from_wasmtime(&e, PLENTY))?;
        let memory = instance.get_memory(&mut store, MEMORY);
        let table = instance.get_table(&mut store, TABLE);
        let globals = module.globals.iter().filter_map(|name| instance.get_global(&mut store, name)).collect();
        store.data_mut().memory = memory;
        Ok(Instance { store, instance, memory, written: Written::default(), table, globals })
    }

    /// Creates an instance in the state of `image`.
    pub(crate) fn from_image(module: &Arc<CanisterModule>, image: &HeapImage) -> Result<Self, Trap> {
        let mut instance = Instance::new(module)?;
        if let Some(memory) = instance.memory {
            let missing = image.bytes().saturating_sub(memory.data_size(&instance.store) as u64);
            memory
                .grow(&mut instance.store, missing / crate::limits::WASM_PAGE)
                .map_err(|error| Trap::Wasm(error.to_string()))?;
        }
        instance.restore(image);
        Ok(instance)
    }

    /// Runs from `entry` until it ends or traps. The caller must then call [`Instance::commit`] or [`Instance::roll_back`].
    pub(crate) fn execute(&mut self, run: Box<Run>, entry: &Entry) -> Ended {
        let limit = run.fuel_limit();
        self.store.data_mut().run = Some(run);
        let mut result = self.store.set_fuel(limit).and_then(|()| self.call(entry));
        let instructions = limit - self.store.get_fuel().unwrap_or(0).min(limit);
        let run = self.store.data_mut().run.take().expect("put there above; nothing else takes it");
        if result.is_ok() {
            result = run.at_end().map_err(wasmtime::Error::new);
        }
        let result = result.map_err(|error| run.explain(Trap::from_wasmtime(&error, run.limit)));
        Ended { run, result, instructions }
    }

    fn call(&mut self, entry: &Entry) -> wasmtime::Result<()> {
        let store = &mut self.store;
        store.data_mut().run().at_start()?;
        match entry {
            Entry::Export(name) => self.instance.get_typed_func::<(), ()>(&mut *store, name)?.call(store, ()),
            Entry::Callback { function, env } => {
                let function = self.table.and_then(|table| table.get(&mut *store, u64::from(*function)));
                let Some(Ref::Func(Some(function))) = function else {
                    return Err(Trap::Wasm("table out of bounds".into()).into());
                };
                call_back(function, store, *env)
            }
        }
    }

    fn restore(&mut self, image: &HeapImage) -> u64 {
        let pages = self.memory.map_or(0, |memory| {
            let memory = memory.data_mut(&mut self.store);
            let written = self.written.take(memory);
            image.restore(memory, &written)
        });
        for (global, value) in self.globals.iter().zip(&image.globals) {
            // The types match because the values were read from these globals.
            let _ = global.set(&mut self.store, *value);
        }
        pages
    }

    /// Commits the last execution's changes of heap and globals to `image`, and returns how many 4 KiB pages of the heap it changed.
    pub(crate) fn commit(&mut self, image: &mut HeapImage) -> u64 {
        let pages = self.memory.map_or(0, |memory| {
            let memory = memory.data(&self.store);
            image.commit(memory, &self.written.take(memory))
        });
        let values = self.globals.iter().map(|global| global.get(&mut self.store));
        // No compiler makes mutable globals of references, so they are not restored.
        image.globals = values.map(|value| if value.ref_().is_some() { Val::I32(0) } else { value }).collect();
        pages
    }

    /// Rolls back to `image`, and returns how many 4 KiB pages of the heap the last execution had changed. Returns no instance if the
    /// memory has grown, because a Wasm memory cannot shrink.
    pub(crate) fn roll_back(mut self, image: &HeapImage) -> (Option<Self>, u64) {
        match self.memory {
            Some(memory) if memory.data_size(&self.store) as u64 > image.bytes() => {
                let memory = memory.data(&self.store);
                let pages = image.pages_changed(memory, &self.written.take(memory));
                (None, pages)
            }
            _ => {
                let pages = self.restore(image);
                (Some(self), pages)
            }
        }
    }
}

/// Calls a callback, whose type is `(i32) -> ()`, as on the platform.
fn call_back(function: Func, store: &mut Store<Context>, env: u32) -> wasmtime::Result<()> {
    function.typed::<u32, ()>(&mut *store)?.call(store, env)
}
