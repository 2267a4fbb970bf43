use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use serde_json::{Map, Value};

/// Namespace and name of an object; the namespace is empty for cluster-scoped kinds.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ObjectKey {
    /// Namespace, or empty.
    pub namespace: Arc<str>,
    /// Name.
    pub name: Arc<str>,
}

impl ObjectKey {
    /// A key.
    pub fn new(namespace: &str, name: &str) -> Self {
        Self { namespace: namespace.into(), name: name.into() }
    }
}

impl fmt::Display for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.namespace.is_empty() {
            f.write_str(&self.name)
        } else {
            write!(f, "{}/{}", self.namespace, self.name)
        }
    }
}

/// One version of a stored object. Immutable: a write makes a new one.
///
/// The JSON text is made once, when first asked for, and shared by every response and watch.
pub struct Object {
    value: Value,
    key: ObjectKey,
    uid: Arc<str>,
    resource_version: u64,
    bytes: OnceLock<Bytes>,
    bare: OnceLock<Bytes>,
}

impl Object {
    /// Wraps a value whose metadata is complete.
    pub fn new(value: Value, resource_version: u64) -> Self {
        let key = ObjectKey::new(namespace(&value), name(&value));
        let uid = text(&value, &["metadata", "uid"]).into();
        Self { value, key, uid, resource_version, bytes: OnceLock::new(), bare: OnceLock::new() }
    }

    /// The same state under another revision.
    pub(crate) fn relabelled(other: &Self, resource_version: u64) -> Self {
        let mut value = other.value.clone();
        metadata_mut(&mut value).insert("resourceVersion".into(), resource_version.to_string().into());
        Self::new(value, resource_version)
    }

    /// The object, in the storage version of its resource.
    pub fn value(&self) -> &Value {
        &self.value
    }

    /// Where it is stored.
    pub fn key(&self) -> &ObjectKey {
        &self.key
    }

    /// Its uid.
    pub fn uid(&self) -> &Arc<str> {
        &self.uid
    }

    /// The revision of the write that made this version.
    pub fn resource_version(&self) -> u64 {
        self.resource_version
    }

    /// The JSON text of the storage version.
    pub fn bytes(&self) -> Bytes {
        self.bytes.get_or_init(|| to_bytes(&self.value)).clone()
    }

    /// The JSON text without `kind` and `apiVersion`, as items of built-in kinds stand in lists.
    pub(crate) fn bare(&self) -> Bytes {
        let make = || {
            let fields = self.value.as_object().into_iter().flatten();
            let kept: BTreeMap<&str, &Value> = fields
                .filter(|(key, _)| *key != "kind" && *key != "apiVersion")
                .map(|(k, v)| (k.as_str(), v))
                .collect();
            serde_json::to_vec(&kept).map(Bytes::from).unwrap_or_default()
        };
        self.bare.get_or_init(make).clone()
    }

    /// Whether deletion has begun.
    pub fn is_terminating(&self) -> bool {
        !at(&self.value, &["metadata", "deletionTimestamp"]).is_null()
    }
}

impl fmt::Debug for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Object({} @{})", self.key, self.resource_version)
    }
}

/// The JSON text of a value.
pub(crate) fn to_bytes(value: &Value) -> Bytes {
    // A Value has string keys and finite numbers only, so that writing it to memory cannot fail.
    serde_json::to_vec(value).map(Bytes::from).unwrap_or_default()
}

/// The value at a path, or null.
pub(crate) fn at<'v>(value: &'v Value, path: &[&str]) -> &'v Value {
    const NULL: &Value = &Value::Null;
    path.iter().try_fold(value, |v, key| v.get(key)).unwrap_or(NULL)
}

/// The string at a path, or empty.
pub(crate) fn text<'v>(value: &'v Value, path: &[&str]) -> &'v str {
    at(value, path).as_str().unwrap_or_default()
}

/// The elements of the list at a path, or none.
pub(crate) fn items<'v>(value: &'v Value, path: &[&str]) -> &'v [Value] {
    at(value, path).as_array().map(Vec::as_slice).unwrap_or_default()
}

pub(crate) fn name(value: &Value) -> &str {
    text(value, &["metadata", "name"])
}

pub(crate) fn namespace(value: &Value) -> &str {
    text(value, &["metadata", "namespace"])
}

/// The map under `key`, made when it is absent, null or of another type.
pub(crate) fn entry<'v>(value: &'v mut Value, key: &str) -> &'v mut Map<String, Value> {
    let slot = object_mut(value).entry(key).or_insert_with(|| Value::Object(Map::new()));
    object_mut(slot)
}

/// The value as a map, replaced by an empty one when it is something else.
pub(crate) fn object_mut(value: &mut Value) -> &mut Map<String, Value> {
    if !value.is_object() {
        *value = Value::Object(Map::new());
    }
    match value {
        Value::Object(map) => map,
        _ => unreachable!("made an object above"),
    }
}

/// `metadata` of the object.
pub(crate) fn metadata_mut(value: &mut Value) -> &mut Map<String, Value> {
    entry(value, "metadata")
}

/// Puts `value` at `key` unless something other than null is there.
pub(crate) fn default_to(map: &mut Map<String, Value>, key: &str, value: impl Into<Value>) {
    match map.get(key) {
        None | Some(Value::Null) => {
            map.insert(key.to_owned(), value.into());
        }
        Some(_) => {}
    }
}
