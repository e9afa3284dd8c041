//! Tests of the cache, with small modules, for many initial contents of its directory.

use super::*;
use crate::engine::engine;
use std::fs::FileTimes;
use tempfile::TempDir;
use wasmtime::{Config, Instance, Store};

/// Returns a module with a function that returns a number.
fn wasm(number: i32) -> Vec<u8> {
    wat::parse_str(format!(r#"(module (func (export "f") (result i32) (i32.const {number})))"#)).unwrap()
}

fn answer(module: &Module) -> i32 {
    let mut store = Store::new(module.engine(), ());
    store.set_fuel(1_000).unwrap();
    let instance = Instance::new(&mut store, module, &[]).unwrap();
    instance.get_typed_func::<(), i32>(&mut store, "f").unwrap().call(&mut store, ()).unwrap()
}

/// Returns a cache in a directory that does not exist yet.
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
fn module_is_compiled_once_then_loaded_from_its_entry() {
    let (_dir, cache) = cache();
    assert!(!cache.has(7));
    assert_eq!(cache.answer(7), 7);
    assert_eq!(cache.names(), [cache.path_of(7)]);
    assert!(cache.has(7) && !cache.has(8));
    let written = fs::read(cache.path_of(7)).unwrap();
    assert_eq!((cache.answer(7), cache.answer(8)), (7, 8));
    assert_eq!((cache.names().len(), fs::read(cache.path_of(7)).unwrap()), (2, written));
    assert!(cache.module(engine(), b"\0asm").is_err(), "a module that cannot be compiled gets no entry");
    assert_eq!(cache.names().len(), 2);
}

#[test]
fn second_compiler_waits_and_loads_the_first_ones_entry() {
    let (_dir, cache) = cache();
    let lock = cache.lock().unwrap();
    let second = Cache { directory: cache.directory.clone() };
    let (send, ended) = std::sync::mpsc::channel();
    let second = std::thread::spawn(move || send.send(second.answer(7)).unwrap());
    // A real compilation takes seconds; this wait is long enough that a caller that does not wait would be done.
    let waited = ended.recv_timeout(Duration::from_millis(500));
    assert_eq!(waited, Err(std::sync::mpsc::RecvTimeoutError::Timeout), "it waits");
    // An entry that differs from what the second caller would compile.
    let other = Module::new(engine(), wasm(8)).unwrap().serialize().unwrap();
    cache.store(&key(engine(), &wasm(7)), &other).unwrap();
    drop(lock);
    assert_eq!(ended.recv().unwrap(), 8, "it loads the entry");
    second.join().unwrap();
}

#[test]
fn damaged_entry_is_compiled_anew_and_replaced() {
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
        assert_eq!(fs::read(&path).unwrap(), whole, "the same compiler gives the same bytes");
    }
}

#[test]
fn entry_of_another_key_is_not_loaded() {
    let (_dir, cache) = cache();
    assert_eq!((cache.answer(7), cache.answer(8)), (7, 8));
    fs::copy(cache.path_of(8), cache.path_of(7)).unwrap();
    assert!(!cache.has(7));
    assert_eq!(cache.answer(7), 7);
    // The entry's own key in front of other content is refused, too.
    let (seven, eight) = (fs::read(cache.path_of(7)).unwrap(), fs::read(cache.path_of(8)).unwrap());
    let mixed = [&seven[..MAGIC.len() + 32], &eight[MAGIC.len() + 32..]].concat();
    fs::write(cache.path_of(7), mixed).unwrap();
    assert!(!cache.has(7));
    assert_eq!((cache.answer(7), cache.answer(8)), (7, 8));
    assert!(cache.has(7) && cache.has(8));
}

/// An entry compiled with other settings has another key, and would not be loaded under this one.
#[test]
fn engine_with_other_settings_has_separate_entries() {
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
    assert!(!cache.has(7), "the engine refuses a module of other settings");
    assert_eq!(cache.answer(7), 7);
    assert!(cache.has(7));
}

#[test]
fn unusable_directory_disables_the_cache_without_an_error() {
    let dir = tempfile::tempdir().unwrap();
    // A file cannot contain a directory, not even for root.
    let file = dir.path().join("file");
    fs::write(&file, b"").unwrap();
    for directory in [file.clone(), file.join("compiled")] {
        let cache = Cache { directory };
        assert_eq!((cache.answer(7), cache.has(7)), (7, false));
        let content = Module::new(engine(), wasm(7)).unwrap().serialize().unwrap();
        assert!(cache.store(&key(engine(), &wasm(7)), &content).is_err());
    }
    // A failed rename leaves no temporary file.
    let cache = Cache { directory: dir.path().join("compiled") };
    fs::create_dir_all(cache.path_of(7).join("in the way")).unwrap();
    assert_eq!((cache.answer(7), cache.has(7)), (7, false));
    assert_eq!(cache.names(), [cache.path_of(7)]);
    assert_eq!((cache.answer(8), cache.has(8)), (8, true));
}

#[cfg(unix)]
#[test]
fn directory_writable_by_others_is_not_used_and_new_one_is_private() {
    use std::os::unix::fs::PermissionsExt;
    let (_dir, cache) = cache();
    assert_eq!(cache.answer(7), 7);
    assert_eq!(fs::metadata(&cache.directory).unwrap().permissions().mode() & 0o777, 0o700);
    assert_eq!(fs::metadata(cache.path_of(7)).unwrap().permissions().mode() & 0o777, 0o600);
    for mode in [0o770, 0o702, 0o777] {
        fs::set_permissions(&cache.directory, PermissionsExt::from_mode(mode)).unwrap();
        assert_eq!((cache.has(7), cache.answer(7), cache.answer(8), cache.has(8)), (false, 7, 8, false), "{mode:o}");
    }
    // A read-only directory is used for reading. (Root may write to it all the same.)
    fs::set_permissions(&cache.directory, PermissionsExt::from_mode(0o500)).unwrap();
    assert_eq!((cache.has(7), cache.answer(8)), (true, 8));
    fs::set_permissions(&cache.directory, PermissionsExt::from_mode(0o700)).unwrap();
}

#[test]
fn concurrent_threads_leave_only_whole_entries() {
    let (_dir, cache) = cache();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for round in 0..25 {
                    let number = round % 3;
                    assert_eq!(cache.answer(number), number);
                    // Damages the entry in between.
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
fn last_used_entries_are_kept_and_abandoned_files_removed() {
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
    // The oldest entry is used once more.
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
fn default_directory_is_the_variables_or_the_builds_or_the_users() {
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
