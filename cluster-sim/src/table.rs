//! Objects as the rows that `kubectl get` prints.

use serde_json::{Value, json};

use crate::cluster::Cluster;
use crate::object::name;
use crate::resources::Resource;

/// A `Table` of the objects, in the version asked for.
pub(crate) fn table(
    _cluster: &Cluster,
    _resource: &Resource,
    _version: usize,
    objects: &[Value],
    revision: u64,
    _single: bool,
) -> Value {
    let rows: Vec<Value> = objects.iter().map(|o| json!({ "cells": [name(o)], "object": o })).collect();
    json!({
        "kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": { "resourceVersion": revision.to_string() },
        "columnDefinitions": [{ "name": "Name", "type": "string", "format": "name", "description": "", "priority": 0 }],
        "rows": rows,
    })
}
