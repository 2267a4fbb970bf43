//! Structural schemas: pruning, defaulting and validation of custom resources.
//!
//! CEL rules (`x-kubernetes-validations`) are not evaluated.

mod validate;

use std::collections::BTreeMap;
use std::sync::OnceLock;

use regex::Regex;
use serde_json::Value;

use crate::error::{FieldError, Path};
use crate::object::{at, items, text};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Type {
    Object,
    Array,
    String,
    Integer,
    Number,
    Boolean,
}

impl Type {
    fn parse(name: &str) -> Option<Self> {
        Some(match name {
            "object" => Self::Object,
            "array" => Self::Array,
            "string" => Self::String,
            "integer" => Self::Integer,
            "number" => Self::Number,
            "boolean" => Self::Boolean,
            _ => return None,
        })
    }

    fn name(self) -> &'static str {
        match self {
            Self::Object => "object",
            Self::Array => "array",
            Self::String => "string",
            Self::Integer => "integer",
            Self::Number => "number",
            Self::Boolean => "boolean",
        }
    }

    fn admits(self, value: &Value) -> bool {
        match self {
            Self::Object => value.is_object(),
            Self::Array => value.is_array(),
            Self::String => value.is_string(),
            Self::Integer => {
                value.is_i64() || value.is_u64() || value.as_f64().is_some_and(|f| f.fract() == 0.0)
            }
            Self::Number => value.is_number(),
            Self::Boolean => value.is_boolean(),
        }
    }
}

/// A pattern, compiled when first used: most of a large schema's patterns never are.
struct Pattern {
    text: String,
    regex: OnceLock<Option<Regex>>,
}

impl Pattern {
    fn new(text: &str) -> Self {
        Self { text: text.to_owned(), regex: OnceLock::new() }
    }

    fn matches(&self, value: &str) -> bool {
        // A pattern that only the server's engine understands constrains nothing here.
        self.regex.get_or_init(|| Regex::new(&self.text).ok()).as_ref().is_none_or(|r| r.is_match(value))
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum ListType {
    #[default]
    Atomic,
    Set,
    Map,
}

impl ListType {
    fn parse(name: &str) -> Self {
        match name {
            "set" => Self::Set,
            "map" => Self::Map,
            _ => Self::Atomic,
        }
    }
}

#[derive(Default)]
struct Bounds {
    minimum: Option<f64>,
    exclusive_minimum: bool,
    maximum: Option<f64>,
    exclusive_maximum: bool,
    multiple_of: Option<f64>,
    min_length: Option<u64>,
    max_length: Option<u64>,
    min_items: Option<u64>,
    max_items: Option<u64>,
    min_properties: Option<u64>,
    max_properties: Option<u64>,
}

impl Bounds {
    fn of(schema: &Value) -> Self {
        let flag = |key: &str| schema.get(key).and_then(Value::as_bool).unwrap_or(false);
        let number = |key: &str| schema.get(key).and_then(Value::as_f64);
        let count = |key: &str| schema.get(key).and_then(Value::as_u64);
        Self {
            minimum: number("minimum"),
            exclusive_minimum: flag("exclusiveMinimum"),
            maximum: number("maximum"),
            exclusive_maximum: flag("exclusiveMaximum"),
            multiple_of: number("multipleOf"),
            min_length: count("minLength"),
            max_length: count("maxLength"),
            min_items: count("minItems"),
            max_items: count("maxItems"),
            min_properties: count("minProperties"),
            max_properties: count("maxProperties"),
        }
    }
}

#[derive(Default)]
struct Node {
    kind: Option<Type>,
    int_or_string: bool,
    nullable: bool,
    preserve: bool,
    embedded: bool,
    properties: BTreeMap<String, Node>,
    additional: Option<Box<Node>>,
    any_additional: bool,
    items: Option<Box<Node>>,
    required: Vec<String>,
    values: Option<Vec<Value>>,
    pattern: Option<Pattern>,
    date_time: bool,
    /// `format: int32`, which the real server enforces as a range.
    int32: bool,
    bounds: Bounds,
    list: ListType,
    keys: Vec<String>,
    default: Option<Value>,
    /// Whether anything in this subtree has a default.
    defaults: bool,
    all_of: Vec<Node>,
    any_of: Vec<Node>,
    one_of: Vec<Node>,
    not: Option<Box<Node>>,
}

/// A compiled `openAPIV3Schema`.
pub(crate) struct Schema(Node);

impl std::fmt::Debug for Schema {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Schema")
    }
}

impl Schema {
    pub(crate) fn compile(schema: &Value) -> Self {
        Self(Node::compile(schema))
    }

    /// Removes what the schema does not know, and names it in `unknown`.
    pub(crate) fn prune(&self, value: &mut Value, unknown: &mut Vec<String>) {
        self.0.prune(value, true, &Path::Root, unknown);
    }

    /// Sets what is absent and has a default.
    pub(crate) fn default(&self, value: &mut Value) {
        self.0.apply_defaults(value);
    }

    /// What is wrong with `value`. Top-level fields that equal those of `old` were valid when they were written and are
    /// not walked again.
    pub(crate) fn validate(&self, value: &Value, old: Option<&Value>) -> Vec<FieldError> {
        let mut errors = Vec::new();
        let Some(map) = value.as_object() else { return errors };
        for name in &self.0.required {
            if !map.contains_key(name) {
                errors.push(FieldError::required(name, ""));
            }
        }
        for (key, child) in map {
            if matches!(key.as_str(), "apiVersion" | "kind" | "metadata")
                || old.and_then(|o| o.get(key)) == Some(child)
            {
                continue;
            }
            if let Some(node) = self.0.properties.get(key) {
                node.validate(child, key, &mut errors);
            }
        }
        for node in &self.0.all_of {
            node.validate(value, "", &mut errors);
        }
        errors
    }
}

impl Node {
    fn compile(schema: &Value) -> Self {
        let flag = |key: &str| schema.get(key).and_then(Value::as_bool).unwrap_or(false);
        let nodes = |key: &str| items(schema, &[key]).iter().map(Self::compile).collect::<Vec<_>>();
        let strings =
            |key: &str| items(schema, &[key]).iter().filter_map(Value::as_str).map(str::to_owned).collect();
        let properties: BTreeMap<String, Self> = at(schema, &["properties"])
            .as_object()
            .into_iter()
            .flatten()
            .map(|(key, child)| (key.clone(), Self::compile(child)))
            .collect();
        let additional = schema.get("additionalProperties");
        let mut node = Self {
            kind: schema.get("type").and_then(Value::as_str).and_then(Type::parse),
            int_or_string: flag("x-kubernetes-int-or-string"),
            nullable: flag("nullable"),
            preserve: flag("x-kubernetes-preserve-unknown-fields"),
            embedded: flag("x-kubernetes-embedded-resource"),
            properties,
            additional: additional.filter(|a| a.is_object()).map(|a| Box::new(Self::compile(a))),
            any_additional: additional == Some(&Value::Bool(true)),
            items: schema.get("items").map(|i| Box::new(Self::compile(i))),
            required: strings("required"),
            values: schema.get("enum").and_then(Value::as_array).cloned(),
            pattern: schema.get("pattern").and_then(Value::as_str).map(Pattern::new),
            date_time: text(schema, &["format"]) == "date-time",
            int32: text(schema, &["format"]) == "int32",
            bounds: Bounds::of(schema),
            list: ListType::parse(text(schema, &["x-kubernetes-list-type"])),
            keys: strings("x-kubernetes-list-map-keys"),
            default: schema.get("default").cloned(),
            defaults: false,
            all_of: nodes("allOf"),
            any_of: nodes("anyOf"),
            one_of: nodes("oneOf"),
            not: schema.get("not").map(|n| Box::new(Self::compile(n))),
        };
        node.defaults = node.default.is_some()
            || node.properties.values().any(|n| n.defaults)
            || node.additional.as_ref().is_some_and(|n| n.defaults)
            || node.items.as_ref().is_some_and(|n| n.defaults);
        node
    }

    fn prune(&self, value: &mut Value, root: bool, path: &Path<'_>, unknown: &mut Vec<String>) {
        match value {
            Value::Object(map) => {
                let object = root || self.embedded;
                map.retain(|key, child| {
                    let keeps = self.keeps(key, child, object);
                    if !keeps && !child.is_null() {
                        unknown.push(Path::Field(path, key).to_string());
                    }
                    keeps
                });
                for (key, child) in map.iter_mut() {
                    if object && matches!(key.as_str(), "apiVersion" | "kind" | "metadata") {
                        continue;
                    }
                    if let Some(node) = self.properties.get(key).or(self.additional.as_deref()) {
                        node.prune(child, false, &Path::Field(path, key), unknown);
                    }
                }
            }
            Value::Array(list) => {
                if let Some(node) = &self.items {
                    for (i, item) in list.iter_mut().enumerate() {
                        node.prune(item, false, &Path::Index(path, i), unknown);
                    }
                }
            }
            _ => {}
        }
    }

    /// Whether a field stays: known ones do, unless they are null where null is no value.
    fn keeps(&self, key: &str, child: &Value, object: bool) -> bool {
        if object && matches!(key, "apiVersion" | "kind" | "metadata") {
            return true;
        }
        match self.properties.get(key).or(self.additional.as_deref()) {
            Some(node) => !child.is_null() || node.nullable || node.default.is_none(),
            None => self.preserve || self.any_additional,
        }
    }

    fn apply_defaults(&self, value: &mut Value) {
        if !self.defaults {
            return;
        }
        match value {
            Value::Object(map) => {
                for (key, node) in &self.properties {
                    if let (Some(default), None) = (&node.default, map.get(key)) {
                        map.insert(key.clone(), default.clone());
                    }
                    if let Some(child) = map.get_mut(key) {
                        node.apply_defaults(child);
                    }
                }
                if let Some(node) = &self.additional {
                    for (_, child) in map.iter_mut().filter(|(key, _)| !self.properties.contains_key(*key)) {
                        node.apply_defaults(child);
                    }
                }
            }
            Value::Array(list) => {
                if let Some(node) = &self.items {
                    list.iter_mut().for_each(|item| node.apply_defaults(item));
                }
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn schema() -> Schema {
        Schema::compile(&json!({ "type": "object", "properties": { "spec": {
            "type": "object", "required": ["size"], "properties": {
                "size": { "type": "integer", "minimum": 1, "maximum": 9 },
                "mode": { "type": "string", "enum": ["A", "B"], "default": "A" },
                "name": { "type": "string", "pattern": "^[a-z]+$", "maxLength": 5 },
                "port": { "x-kubernetes-int-or-string": true, "anyOf": [{"type": "integer"}, {"type": "string"}] },
                "free": { "type": "object", "x-kubernetes-preserve-unknown-fields": true },
                "labels": { "type": "object", "additionalProperties": { "type": "string" } },
                "list": { "type": "array", "maxItems": 2, "x-kubernetes-list-type": "map",
                    "x-kubernetes-list-map-keys": ["k"],
                    "items": { "type": "object", "properties": { "k": { "type": "string" }, "v": { "type": "integer", "default": 7 } } } },
            },
        }}}))
    }

    #[test]
    fn unknown_fields_go_and_defaults_come() {
        let mut value = json!({
            "apiVersion": "x/v1", "kind": "X", "metadata": { "name": "a" }, "extra": 1,
            "spec": { "size": 1, "mode": null, "gone": true, "free": { "any": { "thing": 1 } }, "list": [{ "k": "a", "z": 1 }] },
        });
        let schema = schema();
        let mut unknown = Vec::new();
        schema.prune(&mut value, &mut unknown);
        unknown.sort();
        assert_eq!(unknown, ["extra", "spec.gone", "spec.list[0].z"]);
        schema.default(&mut value);
        assert_eq!(
            value,
            json!({
                "apiVersion": "x/v1", "kind": "X", "metadata": { "name": "a" },
                "spec": { "size": 1, "mode": "A", "free": { "any": { "thing": 1 } }, "list": [{ "k": "a", "v": 7 }] },
            })
        );
    }

    #[test]
    fn each_violation_names_its_field() {
        for (spec, field, reason) in [
            (json!({}), "spec.size", "FieldValueRequired"),
            (json!({"size": "1"}), "spec.size", "FieldValueTypeInvalid"),
            (json!({"size": 0}), "spec.size", "FieldValueInvalid"),
            (json!({"size": 10}), "spec.size", "FieldValueInvalid"),
            (json!({"size": 1, "mode": "C"}), "spec.mode", "FieldValueNotSupported"),
            (json!({"size": 1, "name": "A"}), "spec.name", "FieldValueInvalid"),
            (json!({"size": 1, "name": "abcdef"}), "spec.name", "FieldValueTooLong"),
            (json!({"size": 1, "port": true}), "spec.port", "FieldValueTypeInvalid"),
            (json!({"size": 1, "labels": {"a": 1}}), "spec.labels.a", "FieldValueTypeInvalid"),
            (
                json!({"size": 1, "list": [{"k": "a"}, {"k": "b"}, {"k": "c"}]}),
                "spec.list",
                "FieldValueTooMany",
            ),
            (json!({"size": 1, "list": [{"k": "a"}, {"k": "a"}]}), "spec.list[1]", "FieldValueDuplicate"),
        ] {
            let errors = schema().validate(&json!({ "spec": spec }), None);
            assert_eq!(errors.len(), 1, "{spec}: {errors:?}");
            assert_eq!((errors[0].field.as_str(), errors[0].reason), (field, reason), "{spec}");
        }
        let good = json!({"spec": {"size": 9, "port": "http", "name": "abc"}});
        assert_eq!(schema().validate(&good, None), vec![]);
    }

    #[test]
    fn unchanged_fields_are_not_judged_again() {
        let bad = json!({"spec": {"size": 0}, "status": {}});
        assert_eq!(schema().validate(&bad, Some(&bad)), vec![]);
    }
}
