//! The example canister on `ic_coppice_storage`: `examples/shelf`.

use candid::utils::{ArgumentDecoder, ArgumentEncoder};
use candid::{Principal, decode_args, encode_args};
use coppice_ic::Ic;
use coppice_tests::coppice::Who;
use coppice_tests::wasm;
use serde_bytes::ByteBuf;

/// Documents that a shelf keeps. The example is not linked: a binary can have the exported functions of one canister only.
const KEPT: u64 = 1_500;

/// Entries of the index, and bytes of documents, of the index, and of all stable memory.
type Memory = (u64, u64, u64, u64);

struct World {
    ic: Box<dyn Ic>,
    shelf: Principal,
}

impl World {
    fn new() -> Self {
        let (ic, controller) = (coppice_ic::ic(), Who::Controller.principal());
        let shelf = ic.create_canister(controller);
        ic.install(shelf, wasm::example("coppice_shelf"), encode_args(()).unwrap(), controller);
        Self { ic, shelf }
    }

    fn put(&self, name: &str, content: &[u8]) -> Result<u64, String> {
        let arg = encode_args((name, ByteBuf::from(content))).unwrap();
        let reply = self.ic.update(self.shelf, Principal::anonymous(), "put", arg).unwrap();
        decode_args::<(Result<u64, String>,)>(&reply).unwrap().0
    }

    fn query<R: for<'a> ArgumentDecoder<'a>>(&self, method: &str, args: impl ArgumentEncoder) -> R {
        let arg = encode_args(args).unwrap();
        decode_args(&self.ic.query(self.shelf, Principal::anonymous(), method, arg).unwrap()).unwrap()
    }

    fn get(&self, name: &str) -> Option<Vec<u8>> {
        self.query::<(Option<ByteBuf>,)>("get", (name,)).0.map(ByteBuf::into_vec)
    }

    fn memory(&self) -> Memory {
        self.query("memory", ())
    }

    fn upgrade(&self) {
        let wasm = wasm::example("coppice_shelf");
        self.ic.upgrade(self.shelf, wasm, encode_args(()).unwrap(), Who::Controller.principal()).unwrap();
    }
}

#[test]
fn a_shelf_keeps_the_newest_documents_and_stops_growing() {
    let world = World::new();
    let content = |number: u64| format!("content {number}").into_bytes();
    let mut full = None;
    for number in 0..3 * KEPT {
        assert_eq!(world.put(&number.to_string(), &content(number)), Ok(number));
        match number + 1 {
            written if written == 2 * KEPT => full = Some(world.memory()),
            // A sweep is running.
            written if written == 2 * KEPT + 1 => world.upgrade(),
            _ => {}
        }
    }
    for number in [0, KEPT, 2 * KEPT - 1] {
        assert_eq!(world.get(&number.to_string()), None, "{number}");
    }
    for number in [2 * KEPT, 3 * KEPT - 1] {
        assert_eq!(world.get(&number.to_string()), Some(content(number)), "{number}");
    }
    let (full, now) = (full.unwrap(), world.memory());
    let (entries, documents, _, billed) = now;
    assert_eq!((documents, billed), (KEPT * 65_536, full.3));
    assert!(entries <= 2 * KEPT, "{now:?}");
}

#[test]
fn a_name_has_its_newest_document_and_a_long_one_is_refused() {
    let world = World::new();
    assert_eq!(world.get("a"), None);
    assert_eq!(world.put("a", b"first"), Ok(0));
    assert_eq!(world.put("a", b"second"), Ok(1));
    assert_eq!(world.put("", b""), Ok(2));
    let before = world.memory();
    assert!(world.put(&"a".repeat(256), b"").unwrap_err().contains("at most 255"));
    assert!(world.put("b", &[0; (1 << 20) + 1]).is_err());
    assert_eq!(world.memory(), before);
    assert_eq!((world.get("a"), world.get("")), (Some(b"second".to_vec()), Some(Vec::new())));
    assert_eq!(world.put("b", &[1; 1 << 20]), Ok(3));
    assert_eq!(world.get("b"), Some(vec![1; 1 << 20]));
}
