//! The host: the canister that contains the library. Its memories, its certified labels and its routes.
//!
//! | of the host | kept in |
//! |---|---|
//! | memories: spaces of the arena with names | stable memory; their names in a cell |
//! | certified labels: the digest of each label's tree | the heap; the digest of them all with the chain's state |
//! | the function that answers other paths of `http_request` | the heap |

use crate::api::certified;
use crate::memory;
use crate::places;
use crate::state::{mutate, read};
use ic_certification::{HashTree, fork, labeled, pruned};
use ic_coppice_interface::{HttpRequest, HttpResponse};
use ic_coppice_storage::Space;
use ic_coppice_storage::cell::Cell as Stored;
use ic_coppice_storage::header::Header;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

/// Cell of the names of the host's memories, in the order of their spaces.
const NAMES: Stored = Stored {
    at: places::HOST,
    capacity: places::HOST_LEN,
    header: Header { name: "names of the host's memories", magic: *b"CPHN", version: 1 },
};
/// Bytes of the longest name of a memory, or of a label.
pub const MAX_NAME: usize = 32;
/// Maximum number of labels.
const MAX_LABELS: usize = 16;

/// A memory of the host.
pub type Memory = Rc<Space>;
/// Digest of a label's tree.
pub type Digest = [u8; 32];
/// A function that answers a request for a path of the host, or returns `None`.
pub type Route = fn(&HttpRequest) -> Option<HttpResponse>;

thread_local! {
    static MEMORIES: RefCell<BTreeMap<String, Memory>> = const { RefCell::new(BTreeMap::new()) };
    static LABELS: RefCell<BTreeMap<String, Digest>> = const { RefCell::new(BTreeMap::new()) };
    static ROUTE: Cell<Option<Route>> = const { Cell::new(None) };
}

fn check_name(name: &str) -> Result<(), String> {
    match name.len() {
        1..=MAX_NAME => Ok(()),
        bytes => Err(format!("a name has 1 to {MAX_NAME} bytes, not {bytes}")),
    }
}

/// Returns the memory of a name; makes it if there is none.
///
/// # Errors
/// A sentence: the name is empty or too long, all [`places::HOST_SPACES_LEN`] memories have other names, or the chain is not opened yet.
pub fn memory(name: &str) -> Result<Memory, String> {
    if let Some(memory) = MEMORIES.with_borrow(|memories| memories.get(name).cloned()) {
        return Ok(memory);
    }
    check_name(name)?;
    let cells = memory::space(places::CELLS)?;
    if cells.is_empty() {
        return Err("there is no chain yet: call Coppice::init, or Coppice::post_upgrade, first".into());
    }
    let mut names: Vec<String> = NAMES.load(&cells)?.unwrap_or_default();
    let at = match names.iter().position(|other| other == name) {
        Some(at) => at,
        None if names.len() >= usize::from(places::HOST_SPACES_LEN) => {
            return Err(format!("there are {} memories already: {}", names.len(), names.join(", ")));
        }
        None => {
            names.push(name.to_string());
            NAMES.save(&cells, &names)?;
            names.len() - 1
        }
    };
    let space = Rc::new(memory::space(places::HOST_SPACES + at as u8)?);
    MEMORIES.with_borrow_mut(|memories| memories.insert(name.to_string(), Rc::clone(&space)));
    Ok(space)
}

/// Writes anew what the heap mirrors of the memories that are open.
pub fn rewrite() {
    MEMORIES.with_borrow(|memories| memories.values().for_each(|memory| memory.rewrite()));
}

/// Certifies the digest of a label's tree; `None` removes the label.
///
/// # Errors
/// A sentence: the label is empty or too long, or there are [`MAX_LABELS`] others.
pub fn certify(label: &str, digest: Option<Digest>) -> Result<(), String> {
    check_name(label)?;
    LABELS.with_borrow_mut(|labels| {
        match digest {
            Some(_) if labels.len() >= MAX_LABELS && !labels.contains_key(label) => {
                return Err(format!("there are {MAX_LABELS} labels already"));
            }
            Some(digest) => drop(labels.insert(label.to_string(), digest)),
            None => drop(labels.remove(label)),
        }
        mutate(|state| state.chain.set_host(tree(labels, None).as_ref()));
        Ok(())
    })
}

/// Returns the tree of the labels, with the tree of one of them.
fn tree(labels: &BTreeMap<String, Digest>, shown: Option<(&str, &HashTree)>) -> Option<HashTree> {
    let of = |(label, digest): (&String, &Digest)| {
        let below = shown.filter(|(name, _)| name == label).map_or_else(|| pruned(*digest), |(_, tree)| tree.clone());
        labeled(label.as_str(), below)
    };
    labels.iter().rev().map(of).reduce(|right, left| fork(left, right))
}

/// Returns the certificate and the tree that prove what a label's tree shows; `None` in an update, for a label that is not certified, and
/// for a tree with another digest.
pub fn witness(label: &str, shown: &HashTree) -> Option<ic_coppice_interface::TipCertificate> {
    let whole = LABELS.with_borrow(|labels| {
        labels.get(label).filter(|digest| **digest == shown.digest())?;
        tree(labels, Some((label, shown)))
    })?;
    read(|state| certified::host(&state.chain, whole))
}

/// Sets the function that answers the host's paths.
pub fn set_route(route: Route) {
    ROUTE.set(Some(route));
}

/// Returns the host's answer to a request.
pub fn answer(request: &HttpRequest) -> Option<HttpResponse> {
    ROUTE.get().and_then(|route| route(request))
}

/// Drops the heap, as an upgrade does.
#[cfg(test)]
pub fn forget() {
    MEMORIES.with_borrow_mut(BTreeMap::clear);
    LABELS.with_borrow_mut(BTreeMap::clear);
    ROUTE.set(None);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::platform::{Ic, native};
    use crate::state;
    use ic_certification::{LookupResult, leaf};
    use ic_coppice_interface::InitArg;
    use ic_coppice_storage::cbor;
    use ic_stable_structures::{Memory as _, StableBTreeMap};

    fn fresh() {
        native::reset();
        memory::forget();
        forget();
    }

    fn upgrade() {
        memory::forget();
        forget();
        state::upgrade(None).unwrap();
    }

    #[test]
    fn memory_of_a_name_keeps_its_contents_over_upgrades() {
        fresh();
        assert!(memory("ledger").is_err_and(|why| why.contains("there is no chain yet")));
        state::init(&InitArg::default()).unwrap();
        let mut ledger = StableBTreeMap::<u64, u64, _>::init(memory("ledger").unwrap());
        (0..1_000).for_each(|key| assert_eq!(ledger.insert(key, key * 2), None));
        memory("names").unwrap().grow(1);
        memory("names").unwrap().write(0, b"names");
        assert!(Rc::ptr_eq(&memory("names").unwrap(), &memory("names").unwrap()));
        upgrade();
        let cell: [u8; 24] = memory::space(places::CELLS).unwrap().read(places::HOST);
        assert_eq!(&cell[..8], b"CPHN\x01\0\0\0");
        assert_eq!(&cell[8..], b"\x0e\0\0\0\x82\x66ledger\x65nam", "a layout that later versions must read");
        // In another order.
        let mut read = [0; 5];
        memory("names").unwrap().read(0, &mut read);
        assert_eq!(&read, b"names");
        let ledger = StableBTreeMap::<u64, u64, _>::init(memory("ledger").unwrap());
        assert_eq!((ledger.len(), ledger.get(&999)), (1_000, Some(1_998)));
    }

    /// An upgrade moves the host's data to another structure in another memory; the chain stays as it is.
    #[test]
    fn upgrade_may_change_the_layout_of_the_host() {
        fresh();
        state::init(&InitArg::default()).unwrap();
        let mut old = StableBTreeMap::<u64, u32, _>::init(memory("ledger").unwrap());
        (0..500).for_each(|key| assert_eq!(old.insert(key, 7), None));
        let before = read(|state| *state.chain.state());
        upgrade();
        let old = StableBTreeMap::<u64, u32, _>::init(memory("ledger").unwrap());
        let mut new = StableBTreeMap::<Vec<u8>, u64, _>::init(memory("ledger 2").unwrap());
        old.iter().for_each(|entry| {
            new.insert(entry.key().to_be_bytes().to_vec(), u64::from(entry.value()));
        });
        // The old memory serves another structure.
        let cleared = StableBTreeMap::<u8, u8, _>::new(memory("ledger").unwrap());
        assert_eq!(cleared.len(), 0);
        upgrade();
        let new = StableBTreeMap::<Vec<u8>, u64, _>::init(memory("ledger 2").unwrap());
        assert_eq!((new.len(), new.get(&499u64.to_be_bytes().to_vec())), (500, Some(7)));
        assert_eq!(StableBTreeMap::<u8, u8, _>::init(memory("ledger").unwrap()).len(), 0);
        assert_eq!(read(|state| *state.chain.state()), before);
    }

    /// A bit of the list of leaves flips in stable memory while the canister runs: the upgrade writes the list anew.
    #[test]
    fn list_of_leaves_that_was_damaged_is_mended_by_an_upgrade() {
        fresh();
        state::init(&InitArg::default()).unwrap();
        let ledger = memory("ledger").unwrap();
        assert_eq!(ledger.grow(3), 0);
        ledger.write(2 * 65_536, b"third");
        let raw = <Ic as ic_coppice_storage::Platform>::Memory::default();
        let root =
            u64::from(memory::arena().unwrap().root(places::HOST_SPACES).granule) * ic_coppice_storage::WASM_PAGE;
        raw.write(root + 8, &[0; 4]);
        crate::Coppice::pre_upgrade();
        upgrade();
        let mut read = [0; 5];
        memory("ledger").unwrap().read(2 * 65_536, &mut read);
        assert_eq!(&read, b"third");
    }

    /// Pages that other code grew are a notice, stop no upgrade, and are not written.
    #[test]
    fn pages_of_other_code_are_named_and_stop_nothing() {
        fresh();
        state::init(&InitArg::default()).unwrap();
        let raw = <Ic as ic_coppice_storage::Platform>::Memory::default();
        let at = raw.grow(3) as u64 * ic_coppice_storage::WASM_PAGE;
        raw.write(at, b"not of Coppice");
        upgrade();
        let notice = || {
            read(|state| crate::operation::health::health(state, candid::Principal::anonymous()))
                .problems
                .into_iter()
                .find(|found| found.code == "StrayMemory")
        };
        assert!(notice().unwrap().message.starts_with("196608 bytes of stable memory are not of this chain"));
        let ledger = memory("ledger").unwrap();
        assert_eq!(ledger.grow(200), 0);
        ledger.write(0, &vec![1; 200 * 65_536]);
        let mut read = [0; 14];
        raw.read(at, &mut read);
        assert_eq!(&read, b"not of Coppice");
        upgrade();
        assert!(notice().is_some());
    }

    #[test]
    fn names_of_memories_are_bounded() {
        fresh();
        state::init(&InitArg::default()).unwrap();
        for name in ["", &"n".repeat(MAX_NAME + 1)] {
            assert!(memory(name).is_err_and(|why| why.starts_with("a name has 1 to 32 bytes")), "{name}");
        }
        let longest = |number: u8| format!("{number:0>MAX_NAME$}");
        (0..places::HOST_SPACES_LEN).for_each(|number| drop(memory(&longest(number)).unwrap()));
        assert!(memory("more").is_err_and(|why| why.starts_with("there are 16 memories already: 0000")));
        upgrade();
        assert!(memory("more").is_err() && memory(&longest(15)).is_ok());
    }

    /// Returns the value at a path of what the subnet certifies.
    fn certified(label: &str, shown: &HashTree, path: &[&str]) -> Option<Vec<u8>> {
        let proof = witness(label, shown)?;
        let tree: HashTree = cbor::read(&proof.hash_tree).unwrap();
        assert_eq!(tree.digest(), native::with(|world| world.certified_data));
        let head: HashTree = cbor::read(&read(|state| certified::head(&state.chain)).unwrap().hash_tree).unwrap();
        assert_eq!(tree.digest(), head.digest(), "one tree");
        assert!(matches!(head.lookup_path(["coppice"]), LookupResult::Found(_)));
        match tree.lookup_path(path) {
            LookupResult::Found(value) => Some(value.to_vec()),
            other => panic!("{path:?}: {other:?}"),
        }
    }

    #[test]
    fn labels_of_the_host_are_certified_with_the_chain() {
        fresh();
        state::init(&InitArg::default()).unwrap();
        let plain = native::with(|world| world.certified_data);
        let balances = |sum: u8| fork(labeled("alice", leaf([sum])), labeled("bob", leaf([7])));
        certify("balances", Some(balances(1).digest())).unwrap();
        certify("supply", Some(leaf([9]).digest())).unwrap();
        let alice = fork(labeled("alice", leaf([1])), pruned(labeled("bob", leaf([7])).digest()));
        assert_eq!(certified("balances", &alice, &["host", "balances", "alice"]), Some(vec![1]));
        assert_eq!(certified("supply", &leaf([9]), &["host", "supply"]), Some(vec![9]));
        assert_eq!(witness("balances", &balances(2)), None, "another digest");
        assert_eq!(witness("balance", &balances(1)), None, "no label");
        native::with(|world| world.replicated = true);
        assert_eq!(witness("balances", &balances(1)), None, "in an update");
        native::with(|world| world.replicated = false);
        // An upgrade keeps the digest of them all, so the chain's certificate holds, and forgets the labels.
        let before = native::with(|world| std::mem::take(&mut world.certified_data));
        upgrade();
        assert_eq!(native::with(|world| world.certified_data), before);
        assert_eq!(witness("balances", &balances(1)), None);
        let head: HashTree = cbor::read(&read(|state| certified::head(&state.chain)).unwrap().hash_tree).unwrap();
        assert_eq!(head.digest(), before);
        certify("balances", Some(balances(2).digest())).unwrap();
        assert_eq!(certified("balances", &balances(2), &["host", "balances", "alice"]), Some(vec![2]));
        certify("balances", None).unwrap();
        assert_eq!(native::with(|world| world.certified_data), plain);
    }

    #[test]
    fn labels_are_bounded() {
        fresh();
        state::init(&InitArg::default()).unwrap();
        assert!(certify("", Some([1; 32])).is_err() && certify(&"n".repeat(MAX_NAME + 1), Some([1; 32])).is_err());
        (0..MAX_LABELS).for_each(|number| certify(&number.to_string(), Some([1; 32])).unwrap());
        assert!(certify("more", Some([1; 32])).is_err_and(|why| why.contains("16 labels")));
        certify("3", Some([2; 32])).unwrap();
        certify("3", None).unwrap();
        certify("more", Some([1; 32])).unwrap();
        certify("absent", None).unwrap();
    }

    #[test]
    fn chain_is_not_created_over_another_one() {
        fresh();
        state::init(&InitArg::default()).unwrap();
        memory::forget();
        assert!(state::init(&InitArg::default()).is_err_and(|why| why.contains("contains a chain already")));
        // Memory with another layout.
        fresh();
        let raw = <Ic as ic_coppice_storage::Platform>::Memory::default();
        raw.grow(1);
        raw.write(0, b"MGR\x01");
        assert!(state::init(&InitArg::default()).is_err_and(|why| why.contains("MGR")));
    }
}
