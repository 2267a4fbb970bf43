//! What is wrong with a value.

use serde_json::{Map, Value, json};

use super::{ListType, Node, Type};
use crate::error::FieldError;

impl Node {
    pub(super) fn validate(&self, value: &Value, path: &str, errors: &mut Vec<FieldError>) {
        if value.is_null() {
            if !self.nullable && (self.kind.is_some() || self.int_or_string) {
                let wanted = self.kind.map_or("integer or string", Type::name);
                let detail = format!("{path} in body must be of type {wanted}: \"null\"");
                errors.push(FieldError::type_invalid(path, "null", detail));
            }
            return;
        }
        if self.int_or_string {
            if !(value.is_string() || Type::Integer.admits(value)) {
                let detail =
                    format!("{path} in body must be of type integer,string: \"{}\"", type_name(value));
                errors.push(FieldError::type_invalid(path, type_name(value), detail));
                return;
            }
        } else if let Some(kind) = self.kind.filter(|k| !k.admits(value)) {
            let detail = format!("{path} in body must be of type {}: \"{}\"", kind.name(), type_name(value));
            errors.push(FieldError::type_invalid(path, type_name(value), detail));
            return;
        }
        if let Some(values) = self.values.as_ref().filter(|v| !v.contains(value)) {
            let supported: Vec<String> =
                values.iter().map(|v| v.as_str().map_or_else(|| v.to_string(), str::to_owned)).collect();
            errors.push(FieldError::not_supported(path, value, &supported));
        }
        match value {
            Value::Object(map) => self.validate_object(map, path, errors),
            Value::Array(list) => self.validate_list(list, path, errors),
            Value::String(text) => self.validate_text(text, value, path, errors),
            Value::Number(_) => self.validate_number(value, path, errors),
            _ => {}
        }
        self.validate_junctions(value, path, errors);
    }

    fn validate_object(&self, map: &Map<String, Value>, path: &str, errors: &mut Vec<FieldError>) {
        for name in &self.required {
            if !map.contains_key(name) {
                errors.push(FieldError::required(join(path, name), ""));
            }
        }
        if let Some(limit) = self.bounds.max_properties.filter(|l| map.len() as u64 > *l) {
            errors.push(FieldError::too_many(path, map.len(), limit));
        }
        if let Some(limit) = self.bounds.min_properties.filter(|l| (map.len() as u64) < *l) {
            let detail = format!("{path} in body should have at least {limit} properties");
            errors.push(FieldError::invalid(path, &json!(map.len()), detail));
        }
        for (key, child) in map {
            if self.embedded && matches!(key.as_str(), "apiVersion" | "kind" | "metadata") {
                continue;
            }
            if let Some(node) = self.properties.get(key) {
                node.validate(child, &join(path, key), errors);
            } else if let Some(node) = &self.additional {
                node.validate(child, &join(path, key), errors);
            }
        }
    }

    fn validate_list(&self, list: &[Value], path: &str, errors: &mut Vec<FieldError>) {
        if let Some(limit) = self.bounds.max_items.filter(|l| list.len() as u64 > *l) {
            errors.push(FieldError::too_many(path, list.len(), limit));
        }
        if let Some(limit) = self.bounds.min_items.filter(|l| (list.len() as u64) < *l) {
            let detail = format!("{path} in body should have at least {limit} items");
            errors.push(FieldError::invalid(path, &json!(list.len()), detail));
        }
        if let Some(node) = &self.items {
            for (i, item) in list.iter().enumerate() {
                node.validate(item, &format!("{path}[{i}]"), errors);
            }
        }
        let same = |a: &Value, b: &Value| match self.list {
            ListType::Atomic => false,
            ListType::Set => a == b,
            ListType::Map => self.keys.iter().all(|key| a.get(key) == b.get(key)),
        };
        if self.list != ListType::Atomic {
            for (i, item) in list.iter().enumerate() {
                if list[..i].iter().any(|earlier| same(earlier, item)) {
                    errors.push(FieldError::duplicate(format!("{path}[{i}]"), &self.shown_key(item)));
                }
            }
        }
    }

    fn shown_key(&self, item: &Value) -> Value {
        match self.list {
            ListType::Map => self
                .keys
                .iter()
                .map(|key| (key.clone(), item.get(key).cloned().unwrap_or_default()))
                .collect(),
            _ => item.clone(),
        }
    }

    fn validate_text(&self, text: &str, value: &Value, path: &str, errors: &mut Vec<FieldError>) {
        let length = text.chars().count();
        if let Some(limit) = self.bounds.max_length.filter(|l| length as u64 > *l) {
            errors.push(FieldError::too_long(path, usize::try_from(limit).unwrap_or(usize::MAX)));
        }
        if let Some(limit) = self.bounds.min_length.filter(|l| (length as u64) < *l) {
            let detail = format!("{path} in body should be at least {limit} chars long");
            errors.push(FieldError::invalid(path, value, detail));
        }
        if let Some(pattern) = self.pattern.as_ref().filter(|p| !p.matches(text)) {
            let detail = format!("{path} in body should match '{}'", pattern.text);
            errors.push(FieldError::invalid(path, value, detail));
        }
        if self.date_time && !is_time(text) {
            let detail = format!("{path} in body must be of type date-time: \"{text}\"");
            errors.push(FieldError::invalid(path, value, detail));
        }
    }

    fn validate_number(&self, value: &Value, path: &str, errors: &mut Vec<FieldError>) {
        let Some(number) = value.as_f64() else { return };
        let mut wrong = |what: String| {
            errors.push(FieldError::invalid(path, value, format!("{path} in body should be {what}")));
        };
        if self.int32 && (number > f64::from(i32::MAX) || number < f64::from(i32::MIN)) {
            wrong("a number of 32 bits".to_owned());
        }
        if let Some(limit) = self.bounds.minimum {
            if self.bounds.exclusive_minimum && number <= limit {
                wrong(format!("greater than {limit}"));
            } else if number < limit {
                wrong(format!("greater than or equal to {limit}"));
            }
        }
        if let Some(limit) = self.bounds.maximum {
            if self.bounds.exclusive_maximum && number >= limit {
                wrong(format!("less than {limit}"));
            } else if number > limit {
                wrong(format!("less than or equal to {limit}"));
            }
        }
        if let Some(step) = self.bounds.multiple_of.filter(|s| (number / s).fract() != 0.0) {
            wrong(format!("a multiple of {step}"));
        }
    }

    fn validate_junctions(&self, value: &Value, path: &str, errors: &mut Vec<FieldError>) {
        let holds = |node: &Self| {
            let mut found = Vec::new();
            node.validate(value, path, &mut found);
            found.is_empty()
        };
        for node in &self.all_of {
            node.validate(value, path, errors);
        }
        if !self.any_of.is_empty() && !self.int_or_string && !self.any_of.iter().any(holds) {
            errors.push(FieldError::invalid(
                path,
                value,
                format!("{path} in body must validate at least one schema (anyOf)"),
            ));
        }
        if !self.one_of.is_empty() && self.one_of.iter().filter(|n| holds(n)).count() != 1 {
            errors.push(FieldError::invalid(
                path,
                value,
                format!("{path} in body must validate one and only one schema (oneOf)"),
            ));
        }
        if self.not.as_ref().is_some_and(|n| holds(n)) {
            errors.push(FieldError::invalid(
                path,
                value,
                format!("{path} in body must not validate the schema (not)"),
            ));
        }
    }
}

fn join(path: &str, key: &str) -> String {
    if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") }
}

fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(n) if n.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// Whether it is a time. The last day of the year 9999, later than the last moment of the library, is one.
fn is_time(text: &str) -> bool {
    let is_last_day = text.starts_with("9999-12-3") && jiff::fmt::temporal::Pieces::parse(text).is_ok();
    is_last_day || text.parse::<jiff::Timestamp>().is_ok()
}
