//! The cache, with small modules: what is in its directory before, and what it makes of that.

use super::*;
use crate::engine::engine;
use std::fs::FileTimes;
use tempfile::TempDir;
use wasmtime::{Config, Instance, Store};

/// A module with a function that answers a number.
fn wasm(number: i32) -> Vec<u8> {
    wat::parse_str(format!(r#"(module (func (export "f") (result i32) (i32.const {number})))"#)).unwrap()
}

fn answer(module: &Module) -> i32 {
    let mut store = Store::new(module.engine(), ());
    store.set_fuel(1_000).unwrap();
    let instance = Instance::new(&mut store, module, &[]).unwrap();
    instance.get_typed_func::<(), i32>(&mut store, "f").unwrap().call(&mut store, ()).unwrap()
}

/// A cache in a directory that is not there yet.
fn cache() -> (TempDir, Cache) {
    let dir = tempfile::tempdir().unwrap();
    let directory = dir.path().join("build").join("compiled");
    (dir, Cache { directory })
}

impl Cache {
    fn names(&self) -> Vec<PathBuf> {
        let mut names: Vec<PathBuf> = fs::read_dir(&self.directory).unwrap().map(|file| file.unwrap().path()).collect();
        names.sort();
        names
    }

    fn answer(&self, number: i32) -> i32 {
        answer(&self.module(engine(), &wasm(number)).unwrap())
    }

    fn has(&self, number: i32) -> bool {
        self.load(engine(), &key(engine(), &wasm(number))).is_some_and(|module| answer(&module) == number)
    }

    fn path_of(&self, number: i32) -> PathBuf {
        self.path(&key(engine(), &wasm(number)))
    }
}

#[test]
fn a_module_is_compiled_once_and_then_taken_from_its_entry() {
    let (_dir, cache) = cache();
    assert!(!cache.has(7));
    assert_eq!(cache.answer(7), 7);
    assert_eq!(cache.names(), [cache.path_of(7)]);
    assert!(cache.has(7) && !cache.has(8));
    let written = fs::read(cache.path_of(7)).unwrap();
    assert_eq!((cache.answer(7), cache.answer(8)), (7, 8));
    assert_eq!((cache.names().len(), fs::read(cache.path_of(7)).unwrap()), (2, written));
    assert!(cache.module(engine(), b"\0asm").is_err(), "what cannot be compiled is no entry");
    assert_eq!(cache.names().len(), 2);
}

#[test]
fn who_comes_while_another_compiles_waits_and_takes_what_it_made() {
    let (_dir, cache) = cache();
    let turn = cache.turn().unwrap();
    let second = Cache { directory: cache.directory.clone() };
    let (send, ended) = std::sync::mpsc::channel();
    let second = std::thread::spawn(move || send.send(second.answer(7)).unwrap());
    // A real turn takes seconds, and this one long enough that who did not wait would be done.
    let waited = ended.recv_timeout(Duration::from_millis(500));
    assert_eq!(waited, Err(std::sync::mpsc::RecvTimeoutError::Timeout), "it waits");
    // An entry that tells itself from what the second would make.
    let other = Module::new(engine(), wasm(8)).unwrap().serialize().unwrap();
    cache.store(&key(engine(), &wasm(7)), &other).unwrap();
    drop(turn);
    assert_eq!(ended.recv().unwrap(), 8, "it takes the entry");
    second.join().unwrap();
}

#[test]
fn an_entry_that_is_not_as_it_was_written_is_compiled_anew_and_replaced() {
    let (_dir, cache) = cache();
    assert_eq!(cache.answer(7), 7);
    let path = cache.path_of(7);
    let whole = fs::read(&path).unwrap();
    let flipped = |at: usize| {
        let mut bytes = whole.clone();
        bytes[at] ^= 1;
        bytes
    };
    let last = whole.len() - 1;
    let mut damaged: Vec<Vec<u8>> = [0, 15, 16, 47, 48, 79, 80, whole.len() / 2, last].map(flipped).into();
    damaged.extend([0, 1, HEADER - 1, HEADER, whole.len() / 2, last].map(|length| whole[..length].to_vec()));
    damaged.push([&whole[..], &[0]].concat());
    damaged.push(b"something else altogether".to_vec());
    for bytes in damaged {
        fs::write(&path, &bytes).unwrap();
        assert!(!cache.has(7), "{} bytes", bytes.len());
        assert_eq!(cache.answer(7), 7);
        assert!(cache.has(7));
        assert_eq!(fs::read(&path).unwrap(), whole, "the same compiler makes the same of it");
    }
}

#[test]
fn another_keys_entry_under_a_name_is_not_believed() {
    let (_dir, cache) = cache();
    assert_eq!((cache.answer(7), cache.answer(8)), (7, 8));
    fs::copy(cache.path_of(8), cache.path_of(7)).unwrap();
    assert!(!cache.has(7));
    assert_eq!(cache.answer(7), 7);
    // Nor with the right key in front of it.
    let (seven, eight) = (fs::read(cache.path_of(7)).unwrap(), fs::read(cache.path_of(8)).unwrap());
    let mixed = [&seven[..MAGIC.len() + 32], &eight[MAGIC.len() + 32..]].concat();
    fs::write(cache.path_of(7), mixed).unwrap();
    assert!(!cache.has(7));
    assert_eq!((cache.answer(7), cache.answer(8)), (7, 8));
    assert!(cache.has(7) && cache.has(8));
}

/// What was compiled with other settings has another name, and would not be taken under this one.
#[test]
fn an_engine_with_other_settings_has_entries_of_its_own() {
    let (_dir, cache) = cache();
    assert_eq!(cache.answer(7), 7);
    let other = Engine::new(Config::new().consume_fuel(false)).unwrap();
    let of_other = key(&other, &wasm(7));
    assert_ne!(of_other, key(engine(), &wasm(7)));
    cache.module(&other, &wasm(7)).unwrap();
    assert_eq!(cache.names().len(), 2);
    assert!(cache.load(&other, &of_other).is_some());
    let content = fs::read(cache.path(&of_other)).unwrap().split_off(HEADER);
    cache.store(&key(engine(), &wasm(7)), &content).unwrap();
    assert!(!cache.has(7), "the engine refuses what it did not make");
    assert_eq!(cache.answer(7), 7);
    assert!(cache.has(7));
}

#[test]
fn a_directory_that_cannot_be_used_is_no_cache_and_no_error() {
    let dir = tempfile::tempdir().unwrap();
    // Below a file there is no directory, not even for root.
    let file = dir.path().join("file");
    fs::write(&file, b"").unwrap();
    for directory in [file.clone(), file.join("compiled")] {
        let cache = Cache { directory };
        assert_eq!((cache.answer(7), cache.has(7)), (7, false));
        let content = Module::new(engine(), wasm(7)).unwrap().serialize().unwrap();
        assert!(cache.store(&key(engine(), &wasm(7)), &content).is_err());
    }
    // An entry that cannot be put in its place leaves nothing behind.
    let cache = Cache { directory: dir.path().join("compiled") };
    fs::create_dir_all(cache.path_of(7).join("in the way")).unwrap();
    assert_eq!((cache.answer(7), cache.has(7)), (7, false));
    assert_eq!(cache.names(), [cache.path_of(7)]);
    assert_eq!((cache.answer(8), cache.has(8)), (8, true));
}

#[cfg(unix)]
#[test]
fn a_directory_that_others_may_write_to_is_not_used_and_a_new_one_is_its_owners() {
    use std::os::unix::fs::PermissionsExt;
    let (_dir, cache) = cache();
    assert_eq!(cache.answer(7), 7);
    assert_eq!(fs::metadata(&cache.directory).unwrap().permissions().mode() & 0o777, 0o700);
    assert_eq!(fs::metadata(cache.path_of(7)).unwrap().permissions().mode() & 0o777, 0o600);
    for mode in [0o770, 0o702, 0o777] {
        fs::set_permissions(&cache.directory, PermissionsExt::from_mode(mode)).unwrap();
        assert_eq!((cache.has(7), cache.answer(7), cache.answer(8), cache.has(8)), (false, 7, 8, false), "{mode:o}");
    }
    // Read-only: what is there is used. (Root may write to it all the same.)
    fs::set_permissions(&cache.directory, PermissionsExt::from_mode(0o500)).unwrap();
    assert_eq!((cache.has(7), cache.answer(8)), (true, 8));
    fs::set_permissions(&cache.directory, PermissionsExt::from_mode(0o700)).unwrap();
}

#[test]
fn many_threads_at_once_leave_whole_entries_and_nothing_else() {
    let (_dir, cache) = cache();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for round in 0..25 {
                    let number = round % 3;
                    assert_eq!(cache.answer(number), number);
                    // Somebody damages it in between.
                    if round % 5 == 4 {
                        let _ = fs::write(cache.path_of(number), b"damaged");
                    }
                }
            });
        }
    });
    (0..3).for_each(|number| assert_eq!(cache.answer(number), number));
    assert!((0..3).all(|number| cache.has(number)));
    assert_eq!(cache.names().len(), 3);
}

fn set_age(path: &Path, age: Duration) {
    let times = FileTimes::new().set_modified(SystemTime::now() - age);
    File::open(path).unwrap().set_times(times).unwrap();
}

#[test]
fn the_entries_used_last_are_kept_and_what_was_left_unfinished_goes() {
    let (_dir, cache) = cache();
    let most = ENTRIES as i32;
    for number in 0..most {
        assert_eq!(cache.answer(number), number);
        set_age(&cache.path_of(number), Duration::from_secs(1_000 - number as u64));
    }
    let [fresh, old, other] = ["a.unfinished", "b.unfinished", "README"].map(|name| cache.directory.join(name));
    [&fresh, &old, &other].iter().for_each(|path| fs::write(path, b"x").unwrap());
    set_age(&old, ABANDONED + Duration::from_secs(10));
    set_age(&other, ABANDONED * 1_000);
    // The oldest one is used once more.
    assert_eq!(cache.answer(0), 0);
    assert_eq!(cache.answer(most), most);
    assert!([0, 2, most].iter().all(|&number| cache.has(number)));
    assert!(!cache.has(1) && !cache.path_of(1).exists());
    assert_eq!(cache.names().len(), ENTRIES + 2);
    assert!(fresh.exists() && !old.exists() && other.exists());
    (100..130).for_each(|number| assert_eq!(cache.answer(number), number));
    assert_eq!(cache.names().len(), ENTRIES + 2);
    assert!(cache.has(129));
}

#[test]
fn the_directory_is_the_one_that_is_named_or_beside_the_build_or_the_users() {
    let chosen = |variables: &[(&str, &str)], workspace: Option<&str>| {
        let variable =
            |name: &str| variables.iter().find(|(other, _)| *other == name).map(|(_, value)| PathBuf::from(value));
        choose(&variable, workspace.map(Path::new)).map(|path| path.display().to_string())
    };
    let user = [("HOME", "/home/u"), ("XDG_CACHE_HOME", "/caches")];
    let named = |path| [("COPPICE_MODULE_CACHE", path), user[0], user[1]];
    assert_eq!(chosen(&named("here"), Some("/w")).as_deref(), Some("here"));
    assert_eq!(chosen(&named(""), Some("/w")), None);
    assert_eq!(chosen(&user, Some("/w")).as_deref(), Some("/w/target/compiled"));
    assert_eq!(chosen(&user, None).as_deref(), Some("/caches/coppice/compiled"));
    assert_eq!(chosen(&user[..1], None).as_deref(), Some("/home/u/.cache/coppice/compiled"));
    let relative = [("HOME", "/home/u"), ("XDG_CACHE_HOME", "caches")];
    assert_eq!(chosen(&relative, None).as_deref(), Some("/home/u/.cache/coppice/compiled"));
    assert_eq!(chosen(&[], None), None);
}
