//! Objects as the rows that `kubectl get` prints.

mod builtin;

use serde_json::{Value, json};

use crate::cluster::Cluster;
use crate::object::{at, name, text};
use crate::resources::{Column, Resource};

/// A column: name, OpenAPI type, and 0 when it is shown without `-o wide`.
type Head = (&'static str, &'static str, i64);

/// A `Table` of the objects, in the version asked for. Rows carry the metadata of their object.
pub(crate) fn table(
    cluster: &Cluster,
    resource: &Resource,
    version: usize,
    objects: &[Value],
    revision: u64,
) -> Value {
    let now = cluster.0.clock.now();
    let columns = &resource.versions[version].columns;
    let (heads, cells): (Vec<Value>, Vec<Value>) = if resource.builtin().is_some() {
        let heads = builtin::heads(&resource.kind)
            .iter()
            .map(|(name, kind, priority)| head(name, kind, "", *priority));
        (
            heads.collect(),
            objects.iter().map(|o| Value::Array(builtin::cells(&resource.kind, o, now))).collect(),
        )
    } else {
        let mut heads = vec![head("Name", "string", "", 0)];
        heads.extend(columns.iter().map(|c| {
            let mut shown = head(&c.name, &c.kind, &c.description, c.priority);
            shown["format"] = c.format.as_str().into();
            shown
        }));
        if columns.is_empty() {
            heads.push(head("Age", "date", "", 0));
        }
        (heads, objects.iter().map(|o| custom(columns, o, now)).collect())
    };
    let rows: Vec<Value> = objects
        .iter()
        .zip(cells)
        .map(|(object, cells)| {
            let object = json!({
                "kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1",
                "metadata": object.get("metadata").cloned().unwrap_or_default(),
            });
            json!({ "cells": cells, "object": object })
        })
        .collect();
    json!({
        "kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": { "resourceVersion": revision.to_string() },
        "columnDefinitions": heads, "rows": rows,
    })
}

fn head(name: &str, kind: &str, description: &str, priority: i64) -> Value {
    let format = if name == "Name" { "name" } else { "" };
    json!({ "name": name, "type": kind, "format": format, "description": description, "priority": priority })
}

fn custom(columns: &[Column], object: &Value, now: jiff::Timestamp) -> Value {
    let mut cells = vec![name(object).into()];
    for column in columns {
        let found = json_path(object, &column.json_path);
        cells.push(match (column.kind.as_str(), found) {
            ("date", Value::String(time)) => builtin::age(&time, now).into(),
            ("string", Value::Null) => Value::Null,
            ("string", other @ (Value::Object(_) | Value::Array(_) | Value::Number(_) | Value::Bool(_))) => {
                other.to_string().into()
            }
            (_, other) => other,
        });
    }
    if columns.is_empty() {
        cells.push(builtin::age(text(object, &["metadata", "creationTimestamp"]), now).into());
    }
    Value::Array(cells)
}

/// The first value of a simple JSON path: fields, escaped dots, indices and slices (negative ones count from the end),
/// `[*]`, and filters of the form `[?(@.type=="Ready")]`.
fn json_path(object: &Value, path: &str) -> Value {
    let mut found = vec![object];
    let mut rest = path.trim_start_matches('$');
    while !rest.is_empty() {
        let (step, remaining) = next_step(rest);
        rest = remaining;
        found = found.into_iter().flat_map(|v| follow(v, &step)).collect();
    }
    found.first().map(|v| (*v).clone()).unwrap_or_default()
}

enum Step {
    Field(String),
    /// From the first up to the second; the end of the list where there is none.
    Slice(i64, Option<i64>),
    All,
    Where(Vec<String>, String),
}

fn next_step(rest: &str) -> (Step, &str) {
    if let Some(inner) = rest.strip_prefix('[') {
        let end = inner.find(']').unwrap_or(inner.len());
        let remaining = inner.get(end + 1..).unwrap_or_default();
        let content = &inner[..end];
        if let Some(filter) = content.strip_prefix("?(@.").and_then(|f| f.strip_suffix(')')) {
            let (path, value) = filter.split_once("==").unwrap_or((filter, ""));
            let value = value.trim().trim_matches(['"', '\'']);
            let path = path.trim().split('.').map(str::to_owned).collect();
            return (Step::Where(path, value.to_owned()), remaining);
        }
        if let Some(slice) = slice(content) {
            return (slice, remaining);
        }
        if content == "*" {
            return (Step::All, remaining);
        }
        return (Step::Field(content.trim_matches(['"', '\'']).to_owned()), remaining);
    }
    let rest = rest.strip_prefix('.').unwrap_or(rest);
    let mut field = String::new();
    let mut characters = rest.char_indices();
    while let Some((i, c)) = characters.next() {
        match c {
            '\\' => field.extend(characters.next().map(|(_, c)| c)),
            '.' | '[' => return (Step::Field(field), &rest[i..]),
            c => field.push(c),
        }
    }
    (Step::Field(field), "")
}

/// `[2]`, `[-1]`, `[1:3]`, `[-2:]`, `[:2]`.
fn slice(content: &str) -> Option<Step> {
    let bound = |text: &str| if text.is_empty() { Some(None) } else { text.parse::<i64>().ok().map(Some) };
    match content.split_once(':') {
        Some((start, end)) => Some(Step::Slice(bound(start)?.unwrap_or(0), bound(end)?)),
        None => {
            let index: i64 = content.parse().ok()?;
            // The one after the last is no number from the end: there is none.
            Some(Step::Slice(index, index.checked_add(1).filter(|end| *end != 0)))
        }
    }
}

/// The elements of a slice. One that reaches beyond the list has none, as with `kubectl`.
fn elements(list: &[Value], start: i64, end: Option<i64>) -> Option<&[Value]> {
    let length = i64::try_from(list.len()).ok()?;
    let place = |bound: i64| usize::try_from(if bound < 0 { bound.checked_add(length)? } else { bound }).ok();
    list.get(place(start)?..place(end.unwrap_or(length))?)
}

fn follow<'v>(value: &'v Value, step: &Step) -> Vec<&'v Value> {
    match step {
        Step::Field(name) => value.get(name).into_iter().collect(),
        Step::Slice(start, end) => {
            let list = value.as_array().and_then(|list| elements(list, *start, *end));
            list.into_iter().flatten().collect()
        }
        Step::All => value.as_array().into_iter().flatten().collect(),
        Step::Where(path, wanted) => {
            let path: Vec<&str> = path.iter().map(String::as_str).collect();
            value.as_array().into_iter().flatten().filter(|v| at(v, &path).as_str() == Some(wanted)).collect()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_paths_of_printer_columns() {
        let object = json!({
            "metadata": { "labels": { "a.b/c": "x" } }, "spec": { "list": [{ "n": 1 }, { "n": 2 }] },
            "status": { "conditions": [{ "type": "Ready", "status": "True" }] },
        });
        for (path, expected) in [
            (".spec.list[1].n", json!(2)),
            (".spec.list[2].n", Value::Null),
            (".spec.list[-1].n", json!(2)),
            (".spec.list[-1:].n", json!(2)),
            (".spec.list[-2:].n", json!(1)),
            (".spec.list[-3:].n", Value::Null),
            (".spec.list[:1].n", json!(1)),
            (".spec.list[1:2].n", json!(2)),
            (".spec.list[2:1].n", Value::Null),
            (".spec.list[9223372036854775807].n", Value::Null),
            (".spec.none[-1:].n", Value::Null),
            (".spec.list[*].n", json!(1)),
            (".metadata.labels.a\\.b/c", json!("x")),
            (".status.conditions[?(@.type==\"Ready\")].status", json!("True")),
            (".status.conditions[?(@.type=='Gone')].status", Value::Null),
            (".nowhere", Value::Null),
        ] {
            assert_eq!(json_path(&object, path), expected, "{path}");
        }
    }
}
