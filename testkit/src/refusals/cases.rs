//! Errors of every method, made from the table of methods: the cases of each, and a canister's answer with each case.

use super::samples;
use candid::CandidType;
use candid::types::internal::TypeContainer;
use candid::types::value::{IDLArgs, IDLValue};
use ic_coppice_interface::*;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use std::fmt::Debug;
use std::marker::PhantomData;

/// A method, with the cases of its error; no cases for a method that refuses nothing.
pub struct Method {
    pub name: &'static str,
    pub cases: Vec<Case>,
}

/// Encodes the answer to an encoded argument.
pub type Answering = Box<dyn Fn(&[u8]) -> Vec<u8> + Send + Sync>;

/// A case of a method's error.
pub struct Case {
    pub name: String,
    /// The error's `Display`.
    pub sentence: String,
    /// The error's `Debug`, which no user may see.
    pub debug: String,
    /// Returns the answer to an argument.
    pub answer: Answering,
}

/// An error that has a sentence.
trait Told: Clone + Debug + CandidType + DeserializeOwned + Send + Sync + 'static {
    /// Returns the sentence that a command shows.
    fn sentence(&self) -> String;

    /// Returns the debug form of the error with that sentence.
    fn debug(&self) -> String {
        format!("{self:?}")
    }
}

/// An answer that may refuse.
trait Answer: CandidType {
    type Error: Told;

    /// Returns the answer to an argument that refuses everything for one reason.
    fn refused(error: Self::Error, arg: &[u8]) -> Self;
}

impl<T: CandidType, E: Told> Answer for Result<T, E> {
    type Error = E;

    fn refused(error: E, _: &[u8]) -> Self {
        Err(error)
    }
}

impl<T: CandidType, E: Told> Answer for Batch<Result<T, E>> {
    type Error = E;

    fn refused(error: E, arg: &[u8]) -> Self {
        Self { results: (0..items(arg)).map(|_| Err(error.clone())).collect(), remaining: 0 }
    }
}

/// The answer of a canister without a certificate, which names no error.
#[derive(Clone, Debug, CandidType, Deserialize)]
enum NoCertificate {
    NoCertificate,
}

impl Told for NoCertificate {
    fn sentence(&self) -> String {
        "it has no certificate".into()
    }
}

impl Answer for Option<TipCertificate> {
    type Error = NoCertificate;

    fn refused(_: NoCertificate, _: &[u8]) -> Self {
        None
    }
}

/// Refuses the first block of the list.
impl Answer for AppendedBlocks {
    type Error = AppendError;

    fn refused(error: AppendError, _: &[u8]) -> Self {
        Self { next: 0, stopped: Some(AppendStop::Refused(error)) }
    }
}

/// Returns the number of items of a batch.
fn items(arg: &[u8]) -> usize {
    let arg = IDLArgs::from_bytes(arg).unwrap().args.remove(0);
    let IDLValue::Record(fields) = arg else { panic!("no batch: {arg:?}") };
    let list = fields.into_iter().find_map(|field| match field.val {
        IDLValue::Vec(items) => Some(items),
        _ => None,
    });
    list.expect("a batch has items").len()
}

macro_rules! told {
    ($($error:ty),*) => {
        $(impl Told for $error {
            fn sentence(&self) -> String {
                self.to_string()
            }
        })*
    };
}
told!(
    AckError,
    AppendError,
    BlobDeletionError,
    ConfigError,
    ConflictError,
    DeletionsError,
    ExportError,
    ExporterError,
    KeyError,
    PruneError,
    ReadError,
    ResetError,
    RoleError,
    RollbackError,
    TransactionUploadError,
    UploadError,
    UtxoApplyError,
    UtxoCreateError,
    UtxoError,
    UtxoPrunerError,
    UtxoSpendError
);

impl Told for Vec<RefusedSpend> {
    fn sentence(&self) -> String {
        self[0].error.to_string()
    }

    fn debug(&self) -> String {
        format!("{:?}", self[0].error)
    }
}

/// A type of answers. `cases` takes the first of the two traits if the type is an [`Answer`], otherwise the second.
struct Of<T>(PhantomData<T>);

trait Refuses {
    fn cases(&self) -> Vec<Case>;
}

impl<T: Answer> Refuses for Of<T> {
    fn cases(&self) -> Vec<Case> {
        let case = |(name, error): (String, T::Error)| Case {
            name,
            sentence: error.sentence(),
            debug: error.debug(),
            answer: Box::new(move |arg| candid::encode_one(T::refused(error.clone(), arg)).unwrap()),
        };
        samples::of::<T::Error>().into_iter().map(case).collect()
    }
}

trait Accepts {
    fn cases(&self) -> Vec<Case>;
}

impl<T> Accepts for &Of<T> {
    fn cases(&self) -> Vec<Case> {
        Vec::new()
    }
}

/// Returns a method, after a check that an answer with an error has cases.
fn method<T: CandidType>(name: &'static str, cases: Vec<Case>) -> Method {
    let mut types = TypeContainer::new();
    let of = types.add::<T>();
    let may_refuse = samples::has_result(&types.env, &of)
        || ["get_tip_certificate", "append_blocks", "append_compressed"].contains(&name);
    assert_eq!(may_refuse, !cases.is_empty(), "{name}: an error of it is not Told");
    Method { name, cases }
}

macro_rules! all {
    (@of $name:ident $answer:ty, $error:ty) => { all!(@of $name Result<$answer, $error>) };
    (@of $name:ident $answer:ty) => { method::<$answer>(stringify!($name), (&Of::<$answer>(PhantomData)).cases()) };
    ($($area:ident {
        $($(#[doc = $doc:literal])* $kind:ident $name:ident $args:tt -> $answer:ty $(, or $error:ty)?: $roles:ident, $largest:expr;)*
    })*) => {
        /// Returns every method of the interface.
        pub fn all() -> Vec<Method> {
            vec![$($(all!(@of $name $answer $(, $error)?),)*)*]
        }
    };
}
methods!(all);

#[test]
fn cases_are_those_of_the_candid_types_with_nested_reasons() {
    let all = all();
    let names = |method: &str| -> Vec<String> {
        let method = all.iter().find(|of| of.name == method).unwrap();
        method.cases.iter().map(|case| case.name.clone()).collect()
    };
    assert_eq!(names("ack_exported").len(), 6);
    assert!(names("utxo_unspend").contains(&"NotSpendable/NoMemory/LowCycles".into()));
    assert!(names("put_block_chunk").contains(&"Append/CapacityExhausted/PruneLag".into()));
    assert!(names("export_blocks").contains(&"Behind/none".into()));
    assert_eq!(names("get_tip_certificate"), ["NoCertificate"]);
    assert!(names("health").is_empty());
    assert_eq!(all.len(), methods::TABLE.len());
}
