//! Request bodies in Kubernetes' protobuf encoding, read as what they would be in JSON. Typed clients (`kubectl create job`,
//! `kubectl drain`, controllers in Go) send built-in kinds this way and do not fall back; answers they take in JSON.
//!
//! The encoding: four bytes of magic, then `runtime.Unknown` with apiVersion and kind, and in it the object
//! (`k8s.io/apimachinery/pkg/runtime/serializer/protobuf`).

use std::collections::BTreeMap;
use std::sync::OnceLock;

use base64::Engine as _;
use jiff::Timestamp;
use serde_json::{Map, Value};

use crate::error::ApiError;

/// The media type.
pub(crate) const MEDIA_TYPE: &str = "application/vnd.kubernetes.protobuf";

const MAGIC: &[u8] = b"k8s\0";

/// Kubernetes' types nest about ten deep; none contains itself.
const MAX_DEPTH: usize = 32;

/// A body as JSON.
///
/// # Errors
/// A kind or a field that the table lacks is refused as an unknown format; what is no such encoding, as a bad request.
pub(crate) fn decode(body: &[u8]) -> Result<Value, ApiError> {
    let envelope = body.strip_prefix(MAGIC).ok_or_else(|| malformed("the magic is missing"))?;
    let (mut type_meta, mut raw) = (&[][..], &[][..]);
    for field in Fields(envelope) {
        match field? {
            (1, Wire::Bytes(bytes)) => type_meta = bytes,
            (2, Wire::Bytes(bytes)) => raw = bytes,
            _ => {}
        }
    }
    let (mut api_version, mut kind) = (String::new(), String::new());
    for field in Fields(type_meta) {
        match field? {
            (1, Wire::Bytes(bytes)) => api_version = text(bytes)?,
            (2, Wire::Bytes(bytes)) => kind = text(bytes)?,
            _ => {}
        }
    }
    let message = match (api_version.as_str(), kind.as_str()) {
        (_, "DeleteOptions") => "meta.v1.DeleteOptions".to_owned(),
        (version, kind) if !version.contains('/') => format!("core.{version}.{kind}"),
        (version, kind) => format!("{}.{kind}", version.replace('/', ".")),
    };
    let mut object = Map::new();
    read(&message, raw, &mut object, 0)?;
    object.insert("apiVersion".into(), api_version.into());
    object.insert("kind".into(), kind.into());
    Ok(Value::Object(object))
}

/// One field of a message.
struct Field {
    name: &'static str,
    kind: &'static str,
    /// Whether it says nothing when it is empty.
    optional: bool,
}

type Table = BTreeMap<&'static str, BTreeMap<u64, Field>>;

/// The fields of every message, derived once in a process from a constant.
fn table() -> &'static Table {
    static TABLE: OnceLock<Table> = OnceLock::new();
    TABLE.get_or_init(|| {
        let lines = include_str!("protobuf/fields.txt").lines().filter(|line| !line.starts_with('#'));
        lines
            .filter_map(|line| {
                let mut words = line.split_whitespace();
                Some((words.next()?, words.filter_map(field).collect()))
            })
            .collect()
    })
}

fn field(word: &'static str) -> Option<(u64, Field)> {
    let (number, rest) = word.split_once(':')?;
    let (name, kind) = rest.split_once(':')?;
    let stripped = kind.strip_suffix('?');
    let field = Field { name, kind: stripped.unwrap_or(kind), optional: stripped.is_some() };
    Some((number.parse().ok()?, field))
}

/// Adds a message's fields to an object.
fn read(message: &str, bytes: &[u8], into: &mut Map<String, Value>, depth: usize) -> Result<(), ApiError> {
    let fields = table().get(message).filter(|_| depth < MAX_DEPTH);
    let fields = fields.ok_or_else(|| ApiError::unsupported_media_type(MEDIA_TYPE))?;
    for next in Fields(bytes) {
        let (number, wire) = next?;
        let Some(field) = fields.get(&number) else {
            return Err(malformed(format!("{message} has no field {number} that is known here")));
        };
        if field.name == "^" {
            read(field.kind, wire.bytes()?, into, depth + 1)?;
        } else if let Some(element) = field.kind.strip_prefix("[]") {
            let element = value(element, wire, depth)?;
            match into.entry(field.name).or_insert_with(|| Value::Array(Vec::new())) {
                Value::Array(list) => list.push(element),
                _ => return Err(malformed("a list is given twice")),
            }
        } else if let Some(element) = field.kind.strip_prefix("{}") {
            let (key, element) = entry(element, wire.bytes()?, depth)?;
            match into.entry(field.name).or_insert_with(|| Value::Object(Map::new())) {
                Value::Object(map) => drop(map.insert(key, element)),
                _ => return Err(malformed("a map is given twice")),
            }
        } else {
            let value = value(field.kind, wire, depth)?;
            if !(field.optional && is_empty(&value)) {
                into.insert(field.name.into(), value);
            }
        }
    }
    Ok(())
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(value) => !value,
        Value::Number(number) => number.as_i64() == Some(0),
        Value::String(text) => text.is_empty(),
        Value::Array(list) => list.is_empty(),
        Value::Object(map) => map.is_empty(),
    }
}

fn entry(kind: &str, bytes: &[u8], depth: usize) -> Result<(String, Value), ApiError> {
    let (mut key, mut element) = (String::new(), None);
    for field in Fields(bytes) {
        match field? {
            (1, wire) => key = text(wire.bytes()?)?,
            (2, wire) => element = Some(value(kind, wire, depth)?),
            _ => {}
        }
    }
    // An entry without a value has the empty one.
    let element = match element {
        Some(element) => element,
        None => value(kind, Wire::Bytes(&[]), depth)?,
    };
    Ok((key, element))
}

fn value(kind: &str, wire: Wire<'_>, depth: usize) -> Result<Value, ApiError> {
    Ok(match kind {
        "string" => text(wire.bytes()?)?.into(),
        "bool" => (wire.number()? != 0).into(),
        // A negative number is the two's complement of 64 bits.
        "int" => wire.number()?.cast_signed().into(),
        "bytes" => base64::engine::general_purpose::STANDARD.encode(wire.bytes()?).into(),
        "quantity" => first_text(wire.bytes()?)?.into(),
        "raw" => first_json(wire.bytes()?)?,
        "time" => time(wire.bytes()?, 0)?,
        "microtime" => time(wire.bytes()?, 6)?,
        "intorstring" => int_or_string(wire.bytes()?)?,
        message => {
            let mut object = Map::new();
            read(message, wire.bytes()?, &mut object, depth + 1)?;
            Value::Object(object)
        }
    })
}

fn first_text(bytes: &[u8]) -> Result<String, ApiError> {
    let mut found = String::new();
    for field in Fields(bytes) {
        if let (1, Wire::Bytes(bytes)) = field? {
            found = text(bytes)?;
        }
    }
    Ok(found)
}

fn first_json(bytes: &[u8]) -> Result<Value, ApiError> {
    match first_text(bytes)?.as_str() {
        "" => Ok(Value::Null),
        json => {
            serde_json::from_str(json).map_err(|error| malformed(format!("no JSON in a raw field: {error}")))
        }
    }
}

fn time(bytes: &[u8], digits: u8) -> Result<Value, ApiError> {
    let (mut seconds, mut nanos) = (None, 0);
    for field in Fields(bytes) {
        match field? {
            (1, wire) => seconds = Some(wire.number()?.cast_signed()),
            (2, wire) if digits > 0 => nanos = wire.number()?,
            _ => {}
        }
    }
    let Some(seconds) = seconds else { return Ok(Value::Null) };
    let nanos = i32::try_from(nanos).map_err(|_| malformed("a time has too many nanoseconds"))?;
    let time = Timestamp::new(seconds, nanos).map_err(|error| malformed(error.to_string()))?;
    Ok(format!("{time:.*}", usize::from(digits)).into())
}

fn int_or_string(bytes: &[u8]) -> Result<Value, ApiError> {
    let (mut is_text, mut number, mut string) = (false, 0, String::new());
    for field in Fields(bytes) {
        match field? {
            (1, wire) => is_text = wire.number()? != 0,
            (2, wire) => number = wire.number()?.cast_signed(),
            (3, wire) => string = text(wire.bytes()?)?,
            _ => {}
        }
    }
    Ok(if is_text { string.into() } else { number.into() })
}

fn text(bytes: &[u8]) -> Result<String, ApiError> {
    String::from_utf8(bytes.to_vec()).map_err(|_| malformed("a text is no UTF-8"))
}

fn malformed(why: impl AsRef<str>) -> ApiError {
    ApiError::bad_request(format!(
        "the object provided is unrecognized (no valid protobuf): {}",
        why.as_ref()
    ))
}

/// What a field holds on the wire. Kubernetes' types use no others.
#[derive(Clone, Copy, Debug)]
enum Wire<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

impl<'a> Wire<'a> {
    fn bytes(self) -> Result<&'a [u8], ApiError> {
        match self {
            Self::Bytes(bytes) => Ok(bytes),
            Self::Number(_) => Err(malformed("a number stands where a text or message should")),
        }
    }

    fn number(self) -> Result<u64, ApiError> {
        match self {
            Self::Number(number) => Ok(number),
            Self::Bytes(_) => Err(malformed("a text or message stands where a number should")),
        }
    }
}

/// The fields of a message as they come: number and content. Ends after the first error.
struct Fields<'a>(&'a [u8]);

impl<'a> Iterator for Fields<'a> {
    type Item = Result<(u64, Wire<'a>), ApiError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let field = self.field();
        if field.is_none() {
            self.0 = &[];
        }
        Some(field.ok_or_else(|| {
            malformed("it ends in the middle, or has a field of a kind that Kubernetes does not use")
        }))
    }
}

impl<'a> Fields<'a> {
    fn field(&mut self) -> Option<(u64, Wire<'a>)> {
        let tag = self.varint()?;
        let wire = match tag & 7 {
            0 => Wire::Number(self.varint()?),
            2 => {
                let length = usize::try_from(self.varint()?).ok()?;
                let (bytes, rest) = self.0.split_at_checked(length)?;
                self.0 = rest;
                Wire::Bytes(bytes)
            }
            _ => return None,
        };
        Some((tag >> 3, wire))
    }

    fn varint(&mut self) -> Option<u64> {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let (byte, rest) = self.0.split_first()?;
            self.0 = rest;
            number |= u64::from(byte & 0x7F) << shift;
            if byte & 0x80 == 0 {
                return Some(number);
            }
        }
        None
    }
}

#[cfg(test)]
#[path = "protobuf/tests.rs"]
mod tests;
