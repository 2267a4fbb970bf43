//! Kubernetes' keywords, as functions for `#[schemars(transform = …)]`.

use schemars::Schema;
use serde_json::{Value, json};

use super::{DEFAULT, RULES};

/// A DNS-1123 subdomain: names of most objects.
pub(crate) const DNS_SUBDOMAIN: &str = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$";
/// A DNS-1123 label: names of pod sets.
pub(crate) const DNS_LABEL: &str = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$";
/// A qualified name: keys of labels, condition types.
pub(crate) const QUALIFIED_NAME: &str = r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$";
/// A kind's name, case ignored.
pub(crate) const KIND_NAME: &str = r"^(?i)[a-z]([-a-z0-9]*[a-z0-9])?$";
/// Rule: no two items of the list are equal.
pub(crate) const UNIQUE_ITEMS: &str = "size(self.filter(i, size(self.filter(j, j == i)) > 1)) == 0";

/// The list is a map with these keys.
pub(crate) fn list_map(keys: &'static [&'static str]) -> impl FnMut(&mut Schema) {
    move |schema| {
        schema.insert("x-kubernetes-list-type".into(), "map".into());
        schema.insert("x-kubernetes-list-map-keys".into(), json!(keys));
    }
}

/// The list is replaced as a whole.
pub(crate) fn list_atomic(schema: &mut Schema) {
    schema.insert("x-kubernetes-list-type".into(), "atomic".into());
}

/// The list is a set of scalars.
pub(crate) fn list_set(schema: &mut Schema) {
    schema.insert("x-kubernetes-list-type".into(), "set".into());
}

/// The object is replaced as a whole.
pub(crate) fn map_atomic(schema: &mut Schema) {
    schema.insert("x-kubernetes-map-type".into(), "atomic".into());
}

/// Each item of the list is replaced as a whole. Of an object so replaced the API server notes one owner and not one of each
/// field, which makes every write to an object with many such items cheaper.
pub(crate) fn items_atomic(schema: &mut Schema) {
    let items = schema.pointer_mut("/items").and_then(Value::as_object_mut);
    items.expect("a list has a schema of its items").insert("x-kubernetes-map-type".into(), "atomic".into());
}

/// A bound of every value of a map.
pub(crate) fn map_values(keyword: &'static str, bound: impl Into<Value>) -> impl FnMut(&mut Schema) {
    let bound = bound.into();
    move |schema| {
        let values = schema.pointer_mut("/additionalProperties").and_then(Value::as_object_mut);
        values.expect("a map has a schema of its values").insert(keyword.into(), bound.clone());
    }
}

/// Fields the API server demands although reading an object without them is no error.
pub(crate) fn required(fields: &'static [&'static str]) -> impl FnMut(&mut Schema) {
    move |schema| {
        let list = schema.ensure_object().entry("required").or_insert_with(|| json!([]));
        list.as_array_mut().expect("`required` is a list").extend(fields.iter().map(|&field| field.into()));
    }
}

/// What the API server fills in when the field is absent.
pub(crate) fn default(value: impl Into<Value>) -> impl FnMut(&mut Schema) {
    let value = value.into();
    move |schema| {
        schema.insert(DEFAULT.into(), value.clone());
    }
}

/// The API server fills in the object, and the defaults within it.
pub(crate) fn default_empty(schema: &mut Schema) {
    schema.insert(DEFAULT.into(), json!({}));
}

/// A CEL rule and what a user reads who breaks it. Rules are evaluated in the order in which they are added.
pub(crate) fn rule(cel: impl Into<String>, message: &'static str) -> impl FnMut(&mut Schema) {
    let cel = cel.into();
    move |schema| {
        let rules = schema.ensure_object().entry(RULES).or_insert_with(|| json!([]));
        rules
            .as_array_mut()
            .expect("only `rule` writes here")
            .push(json!({ "rule": cel, "message": message }));
    }
}

/// A rule that holds while all of these objects (`self`, `oldSelf`) have a condition: `kept` says in CEL that nothing was
/// changed.
///
/// It comes first. The API server evaluates the rules of an object with every write, that of a status too; nearly always nothing
/// was changed, and looking through conditions is what costs.
pub(crate) fn rule_while(
    condition: &str,
    objects: &[&str],
    kept: &str,
    message: &'static str,
) -> impl FnMut(&mut Schema) + use<> {
    let lacks = |object: &&str| {
        format!(
            " || !has({object}.status) || !has({object}.status.conditions) || \
             !{object}.status.conditions.exists(c, c.type == '{condition}' && c.status == 'True')"
        )
    };
    rule(kept.to_owned() + &objects.iter().map(lacks).collect::<String>(), message)
}

/// The field is set once.
pub(crate) fn immutable(schema: &mut Schema) {
    rule("self == oldSelf", "the field cannot be changed")(schema);
}

/// What Kubernetes demands of tolerations.
pub(crate) fn toleration_rules(schema: &mut Schema) {
    for (cel, message) in [
        (
            "self.all(x, !has(x.key) ? x.operator == 'Exists' : true)",
            "a toleration without key needs operator Exists",
        ),
        (
            "self.all(x, has(x.tolerationSeconds) ? x.effect == 'NoExecute' : true)",
            "tolerationSeconds needs effect NoExecute",
        ),
        (
            "self.all(x, !has(x.operator) || x.operator in ['Equal', 'Exists'])",
            "operator must be Equal or Exists",
        ),
        (
            "self.all(x, has(x.operator) && x.operator == 'Exists' ? !has(x.value) : true)",
            "operator Exists takes no value",
        ),
        (
            "self.all(x, !has(x.effect) || x.effect in ['NoSchedule', 'PreferNoSchedule', 'NoExecute'])",
            "effect must be NoSchedule, PreferNoSchedule or NoExecute",
        ),
    ] {
        rule(cel, message)(schema);
    }
}

/// An older version does not say these keywords at `pointer` (a JSON pointer from the field's own schema).
///
/// # Panics
/// When one of them is not there: the newer version changed, and the two are to be compared anew.
pub(crate) fn relax(pointer: &'static str, keywords: &'static [&'static str]) -> impl FnMut(&mut Schema) {
    move |schema| {
        let target = if pointer.is_empty() {
            Some(schema.ensure_object())
        } else {
            schema.pointer_mut(pointer).and_then(Value::as_object_mut)
        };
        let target = target.unwrap_or_else(|| panic!("no schema at {pointer}"));
        for keyword in keywords {
            assert!(target.remove(*keyword).is_some(), "{pointer} has no {keyword}");
        }
    }
}
