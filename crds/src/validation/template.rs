//! Whether two pod templates mean the same.

use model::Quantity;
use serde_json::{Map, Value};

/// Structs that are no pointers: written without content, or not at all, they are the same.
const STRUCTS: [&str; 5] = ["metadata", "podAffinityTerm", "preference", "resources", "spec"];
/// Maps: without entries they say nothing, and their keys are names, not fields.
const MAPS: [&str; 10] = [
    "annotations",
    "labels",
    "limits",
    "matchLabels",
    "nodeSelector",
    "options",
    "overhead",
    "requests",
    "userAnnotations",
    "volumeAttributes",
];
/// Texts, numbers and switches that are pointers wherever they occur in a template (`k8s.io/api/core/v1`): absent and zero differ.
/// Of any other field Go's types do not tell the one from the other.
const POINTERS: [&str; 53] = [
    "activeDeadlineSeconds",
    "allowPrivilegeEscalation",
    "apiGroup",
    "automountServiceAccountToken",
    "blockOwnerDeletion",
    "cachingMode",
    "controller",
    "defaultMode",
    "deletionGracePeriodSeconds",
    "enableServiceLinks",
    "expirationSeconds",
    "fsGroup",
    "fsGroupChangePolicy",
    "gmsaCredentialSpec",
    "gmsaCredentialSpecName",
    "hostProcess",
    "hostUsers",
    "hostnameOverride",
    "initiatorName",
    "localhostProfile",
    "maxExpirationSeconds",
    "minDomains",
    "mode",
    "mountPropagation",
    "nodeAffinityPolicy",
    "nodeTaintsPolicy",
    "optional",
    "podGroupName",
    "preemptionPolicy",
    "priority",
    "privileged",
    "procMount",
    "readOnlyRootFilesystem",
    "recursiveReadOnly",
    "resourceClaimName",
    "resourceClaimTemplateName",
    "runAsGroup",
    "runAsNonRoot",
    "runAsUser",
    "runAsUserName",
    "runtimeClassName",
    "seLinuxChangePolicy",
    "service",
    "setHostnameAsFQDN",
    "shareProcessNamespace",
    "sizeLimit",
    "stopSignal",
    "storageClassName",
    "supplementalGroupsPolicy",
    "terminationGracePeriodSeconds",
    "tolerationSeconds",
    "volumeAttributesClassName",
    "volumeMode",
];
/// Pointers whose name is also that of a field that is none, with the field or list that they are in.
const POINTERS_IN: [(&str, &str); 14] = [
    ("azureDisk", "fsType"),
    ("azureDisk", "kind"),
    ("azureDisk", "readOnly"),
    ("clusterTrustBundle", "name"),
    ("clusterTrustBundle", "signerName"),
    ("containers", "restartPolicy"),
    ("csi", "fsType"),
    ("csi", "readOnly"),
    ("dataSourceRef", "namespace"),
    ("ephemeralContainers", "restartPolicy"),
    ("fc", "lun"),
    ("hostPath", "type"),
    ("initContainers", "restartPolicy"),
    ("options", "value"),
];
/// What Kueue's definition of a Workload fills in where nothing is said, as most definitions of jobs do: whether it was filled in
/// makes no difference.
const FILLED_IN: [(&str, &str, Said); 11] = [
    ("azureDisk", "fsType", Said::Text("ext4")),
    ("azureDisk", "readOnly", Said::No),
    ("fileKeyRef", "optional", Said::No),
    ("grpc", "service", Said::Text("")),
    ("iscsi", "iscsiInterface", Said::Text("default")),
    ("ports", "protocol", Said::Text("TCP")),
    ("rbd", "keyring", Said::Text("/etc/ceph/keyring")),
    ("rbd", "pool", Said::Text("rbd")),
    ("rbd", "user", Said::Text("admin")),
    ("scaleIO", "fsType", Said::Text("xfs")),
    ("scaleIO", "storageMode", Said::Text("ThinProvisioned")),
];
/// Maps of quantities.
const AMOUNTS: [&str; 3] = ["limits", "requests", "overhead"];
/// Single quantities.
const AMOUNT: [&str; 2] = ["divisor", "sizeLimit"];

/// A value in a list of constants.
enum Said {
    Text(&'static str),
    No,
}

impl PartialEq<Value> for Said {
    fn eq(&self, value: &Value) -> bool {
        match self {
            Self::Text(text) => value == text,
            Self::No => *value == false,
        }
    }
}

/// Whether Kubernetes' types would be equal (`equality.Semantic`): an absent field is like one that says nothing, and amounts are
/// compared as such, so that "1" and "1000m" are the same.
pub fn same_template(a: &Value, b: &Value) -> bool {
    // What a pod asks for as a whole: written without content, it is there.
    let is_whole = |template: &Value| template.pointer("/spec/resources").is_some_and(Value::is_object);
    is_whole(a) == is_whole(b) && same("", "template", a, b)
}

/// Compares what stands in `field`, which is a field of what stands in `parent`.
fn same(parent: &str, field: &str, a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Object(a), Value::Object(b)) if AMOUNTS.contains(&field) => same_amounts(a, b),
        (Value::Object(a), Value::Object(b)) if MAPS.contains(&field) => a == b,
        (Value::Object(a), Value::Object(b)) => same_fields(field, a, b),
        (Value::Array(a), Value::Array(b)) => {
            a.len() == b.len()
                && a.iter().zip(b).all(|pair| match pair {
                    (Value::Object(a), Value::Object(b)) => same_fields(field, a, b),
                    (a, b) => a == b,
                })
        }
        _ if AMOUNT.contains(&field) && same_amount(a, b) => true,
        _ => a == b || (says_nothing(parent, field, a) && says_nothing(parent, field, b)),
    }
}

fn same_fields(parent: &str, a: &Map<String, Value>, b: &Map<String, Value>) -> bool {
    a.iter().all(|(field, value)| match b.get(field) {
        Some(other) => same(parent, field, value, other),
        None => says_nothing(parent, field, value),
    }) && b.iter().all(|(field, value)| a.contains_key(field) || says_nothing(parent, field, value))
}

/// Whether Go's types have the same without it.
fn says_nothing(parent: &str, field: &str, value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(items) => items.is_empty(),
        Value::Object(map) if STRUCTS.contains(&field) => {
            map.iter().all(|(inner, value)| says_nothing(field, inner, value))
        }
        Value::Object(map) => map.is_empty() && MAPS.contains(&field),
        Value::Bool(_) | Value::Number(_) | Value::String(_) => {
            let is_zero = *value == false
                || *value == 0
                || *value == ""
                || (AMOUNT.contains(&field) && same_amount(value, &Value::from(0)));
            let is_pointer = POINTERS.contains(&field) || POINTERS_IN.contains(&(parent, field));
            let is_filled_in =
                || FILLED_IN.iter().any(|(of, name, said)| (*of, *name) == (parent, field) && said == value);
            (is_zero && !is_pointer) || is_filled_in()
        }
    }
}

fn same_amounts(a: &Map<String, Value>, b: &Map<String, Value>) -> bool {
    a.len() == b.len()
        && a.iter()
            .all(|(name, value)| b.get(name).is_some_and(|other| value == other || same_amount(value, other)))
}

fn same_amount(a: &Value, b: &Value) -> bool {
    let amount = |value: &Value| match value {
        Value::String(text) => text.parse::<Quantity>().ok(),
        other => other.to_string().parse().ok(),
    };
    amount(a).is_some_and(|a| Some(a) == amount(b))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn template(container: Value) -> Value {
        json!({ "spec": { "containers": [container] } })
    }

    #[test]
    fn a_template_written_by_another_client_is_the_same() {
        let cpu = |cpu: Value| template(json!({ "name": "c", "resources": { "requests": { "cpu": cpu } } }));
        let plain = template(json!({ "name": "c" }));
        let empty = json!({ "metadata": { "creationTimestamp": null, "labels": {} }, "spec": {
            "containers": [{ "name": "c", "resources": { "limits": {} }, "env": [] }], "nodeSelector": {}, "tolerations": null,
        }});
        for (a, b, wanted) in [
            (cpu(json!("1")), cpu(json!("1000m")), true),
            (cpu(json!("1")), cpu(json!(1)), true),
            (cpu(json!("1")), cpu(json!("2")), false),
            (plain.clone(), empty.clone(), true),
            (empty, plain.clone(), true),
            (plain.clone(), cpu(json!("1")), false),
            (plain.clone(), template(json!({ "name": "c", "securityContext": {} })), false),
            (
                json!({ "metadata": { "labels": { "limits": "1" } } }),
                json!({ "metadata": { "labels": { "limits": "1000m" } } }),
                false,
            ),
            (json!({}), json!(null), false),
            (plain.clone(), template(json!({ "name": "c", "tty": false, "workingDir": "" })), true),
            (plain.clone(), template(json!({ "name": "c", "tty": true })), false),
            (json!({ "spec": {} }), json!({ "spec": { "resources": {} } }), false),
            (json!({}), json!({ "spec": {} }), true),
        ] {
            assert_eq!(same_template(&a, &b), wanted, "{a} {b}");
        }
    }

    /// What stands at the end of a path of objects, and of lists of one, beside nothing there.
    #[test]
    fn zero_is_as_good_as_absent_where_a_field_is_no_pointer() {
        for (path, zero, wanted) in [
            ("containers[].volumeMounts[].readOnly", json!(false), true),
            ("containers[].volumeMounts[].mountPropagation", json!(""), false),
            ("containers[].terminationMessagePath", json!(""), true),
            ("containers[].ports[].protocol", json!("TCP"), true),
            ("containers[].ports[].protocol", json!("UDP"), false),
            ("containers[].livenessProbe.grpc.service", json!(""), true),
            ("volumes[].azureDisk.readOnly", json!(false), true),
            ("volumes[].azureDisk.readOnly", json!(true), false),
            ("volumes[].scaleIO.fsType", json!("xfs"), true),
            ("volumes[].csi.fsType", json!("xfs"), false),
            ("containers[].livenessProbe.initialDelaySeconds", json!(0), true),
            ("containers[].livenessProbe.terminationGracePeriodSeconds", json!(0), false),
            ("containers[].stdinOnce", json!(false), true),
            ("containers[].securityContext.readOnlyRootFilesystem", json!(false), false),
            ("containers[].env[].valueFrom.secretKeyRef.optional", json!(false), false),
            ("containers[].env[].valueFrom.resourceFieldRef.divisor", json!("0"), true),
            ("containers[].env[].valueFrom.resourceFieldRef.divisor", json!("1"), false),
            ("containers[].restartPolicy", json!(""), false),
            ("initContainers[].restartPolicy", json!(""), false),
            ("restartPolicy", json!(""), true),
            ("schedulerName", json!(""), true),
            ("hostNetwork", json!(false), true),
            ("hostUsers", json!(false), false),
            ("subdomain", json!(""), true),
            ("dnsConfig.options[].value", json!(""), false),
            ("automountServiceAccountToken", json!(false), false),
            ("tolerations[].value", json!(""), true),
            ("tolerations[].tolerationSeconds", json!(0), false),
            ("volumes[].emptyDir.medium", json!(""), true),
            ("volumes[].emptyDir.sizeLimit", json!("0"), false),
            ("volumes[].hostPath.type", json!(""), false),
            ("volumes[].csi.readOnly", json!(false), false),
            ("volumes[].csi.volumeAttributes", json!({}), true),
            ("volumes[].nfs.readOnly", json!(false), true),
        ] {
            let (way, field) = path.rsplit_once('.').unwrap_or(("", path));
            let at = |end: Value| {
                let steps = way.rsplit('.').filter(|step| !step.is_empty());
                let spec = steps.fold(end, |inner, step| match step.strip_suffix("[]") {
                    Some(list) => json!({ list: [inner] }),
                    None => json!({ step: inner }),
                });
                json!({ "spec": spec })
            };
            assert_eq!(same_template(&at(json!({})), &at(json!({ field: zero }))), wanted, "{path}");
        }
        let flex =
            |options: Value| json!({ "spec": { "volumes": [{ "flexVolume": { "options": options } }] } });
        assert!(!same_template(&flex(json!({})), &flex(json!({ "readOnly": "" }))), "an entry is no field");
        let empty = |limit: &str| json!({ "spec": { "volumes": [{ "emptyDir": { "sizeLimit": limit } }] } });
        assert!(same_template(&empty("1Gi"), &empty("1024Mi")));
    }
}
