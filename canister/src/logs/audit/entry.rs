//! Entry of the audit log: the calls of one caller through one method within an hour.

use super::fields::Change;
use crate::{places, platform};
use candid::Principal;
use ic_coppice_interface::AuditEntry;
use ic_coppice_interface::text::{MARK, cut};
use ic_coppice_storage::cbor;
use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::Xxh3Default;

/// Bytes of a method's name.
const METHOD: usize = 48;
/// Bytes of a logged argument.
const ARGUMENT: usize = 512;
/// Bytes of a logged result.
const RESULT: usize = 384;
/// Bytes of a changed field's name.
const NAME: usize = 128;
/// Bytes of a field's value, before or after.
const VALUE: usize = 256;

/// Bytes before an entry.
pub const HEAD: usize = 36;
/// Bytes of the longest entry.
pub const MOST: usize = places::AUDIT_LEN - HEAD;

/// An entry's head: 36 bytes before the CBOR.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// Number of the entry within its ring.
    pub place: u64,
    /// Number of the entry over all rings.
    pub number: u64,
    /// The time of the first call, in Unix nanoseconds.
    pub first: u64,
    /// Hash of caller and method.
    pub key: u64,
}

/// A call to be logged.
#[derive(Clone, Copy, Debug)]
pub struct Call<'a> {
    /// Time of the call, in Unix nanoseconds.
    pub time: u64,
    /// The caller.
    pub caller: Principal,
    /// The method.
    pub method: &'a str,
    /// The argument.
    pub argument: &'a str,
    /// The result.
    pub result: &'a str,
}

impl Call<'_> {
    /// Hash of caller and method, for finding the entry.
    pub fn key(&self) -> u64 {
        let mut hash = Xxh3Default::new();
        hash.update(self.caller.as_slice());
        hash.update(self.method.as_bytes());
        hash.digest()
    }
}

/// A persisted entry.
#[derive(Debug, Serialize, Deserialize)]
pub struct Entry {
    caller: Principal,
    method: String,
    calls: u64,
    last: u64,
    argument: String,
    result: String,
    changes: Vec<Change>,
    /// True if the calls changed more fields than fit into the entry.
    more: bool,
}

impl Entry {
    /// Creates an entry without a call.
    pub fn new(call: &Call) -> Self {
        Self {
            caller: call.caller,
            method: cut(call.method, METHOD),
            calls: 0,
            last: 0,
            argument: String::new(),
            result: String::new(),
            changes: Vec::new(),
            more: false,
        }
    }

    /// Returns whether the entry belongs to the call's caller and method.
    pub fn is_of(&self, call: &Call) -> bool {
        self.caller == call.caller && self.method == cut(call.method, METHOD)
    }

    /// Adds a call. A field that several calls change keeps its first `before` and gets the last `after`.
    pub fn add(&mut self, call: &Call, changes: Vec<Change>) {
        self.calls += 1;
        self.last = call.time;
        self.argument = cut(call.argument, ARGUMENT);
        self.result = cut(call.result, RESULT);
        for new in changes {
            let value = |value: Option<String>| value.map(|value| cut(&value, VALUE));
            let new = Change { name: cut(&new.name, NAME), before: value(new.before), after: value(new.after) };
            match self.changes.iter_mut().find(|change| change.name == new.name) {
                Some(change) => change.after = new.after,
                None => self.changes.push(new),
            }
        }
    }

    fn bytes(&self) -> Vec<u8> {
        cbor::write_onto(Vec::new(), self).unwrap_or_else(|why| platform::trap(&format!("the audit log: {why}")))
    }

    /// True if all changes of the entry fit its slot.
    pub fn has_room(&self) -> bool {
        !self.more && self.bytes().len() <= MOST
    }

    /// Encodes the entry. If it is too long, drops the oldest changes and sets `more`.
    pub fn encode(&mut self) -> Vec<u8> {
        let mut bytes = self.bytes();
        while bytes.len() > MOST && !self.changes.is_empty() {
            self.changes.remove(0);
            self.more = true;
            bytes = self.bytes();
        }
        bytes
    }

    /// The entry in the form used in replies.
    pub fn shown(self, head: &Head) -> AuditEntry {
        let values = |value: fn(&Change) -> Option<&String>| {
            let values = self.changes.iter().filter_map(|change| Some(format!("{} = {}", change.name, value(change)?)));
            let more = self.more.then(|| MARK.to_string());
            values.chain(more).collect::<Vec<_>>().join("; ")
        };
        AuditEntry {
            number: head.number,
            first_time_ns: head.first,
            last_time_ns: self.last,
            calls: self.calls,
            before: values(|change| change.before.as_ref()),
            after: values(|change| change.after.as_ref()),
            caller: self.caller,
            method: self.method,
            argument: self.argument,
            result: self.result,
        }
    }
}
