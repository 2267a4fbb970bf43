//! Where an object sends requests, changed and changed back: pure.

use crds::names::trireme::{self, HANDED_BACK, TAKEN_OVER};
use jiff::Timestamp;
use kube::api::DynamicObject;
use serde_json::{Value, json};

use crate::config::TakeOver;

/// The label by which a namespace is selected by its name.
const NAMESPACE_NAME: &str = "kubernetes.io/metadata.name";
/// What was handed back is left alone for so long: by then whoever asked for it has stopped this program.
const HANDED_BACK_REST: jiff::SignedDuration = jiff::SignedDuration::from_mins(10);

/// The two ends that requests may be sent to.
pub(super) struct Ends {
    kueues_namespace: String,
    kueues_services: [String; 2],
    our_namespace: String,
}

impl Ends {
    pub(super) fn new(take_over: &TakeOver, our_namespace: &str) -> Self {
        Self {
            kueues_namespace: take_over.namespace.clone(),
            kueues_services: ["webhook-service", "visibility-server"]
                .map(|end| format!("{}-{end}", take_over.name)),
            our_namespace: our_namespace.to_owned(),
        }
    }

    fn is_kueues(&self, service: &Value) -> bool {
        service["namespace"] == *self.kueues_namespace
            && self.kueues_services.iter().any(|name| service["name"] == **name)
    }

    fn is_ours(&self, service: &Value) -> bool {
        service["namespace"] == *self.our_namespace && service["name"] == trireme::ADMISSION_SERVICE
    }

    /// No webhook is asked about objects of our own namespace: with no replica left it would answer for the pods that are to be the
    /// next ones. Kueue's configurations leave out Kueue's namespace for the same reason.
    fn leaves_us_alone(&self) -> Value {
        json!({ "key": NAMESPACE_NAME, "operator": "NotIn", "values": [self.our_namespace] })
    }

    fn leave_us_alone(&self, webhook: &mut Value) {
        if !self.is_ours(&webhook["clientConfig"]["service"]) {
            return;
        }
        let selector = &mut webhook["namespaceSelector"]["matchExpressions"];
        if selector.is_null() {
            *selector = json!([]);
        }
        let expression = self.leaves_us_alone();
        if let Some(all) = selector.as_array_mut().filter(|all| !all.contains(&expression)) {
            all.push(expression);
        }
    }

    fn ask_about_us(&self, webhook: &mut Value) {
        let Some(Value::Object(selector)) = webhook.get_mut("namespaceSelector") else { return };
        let Some(Value::Array(all)) = selector.get_mut("matchExpressions") else { return };
        let expression = self.leaves_us_alone();
        all.retain(|one| *one != expression);
        if all.is_empty() {
            selector.remove("matchExpressions");
        }
    }

    /// The patch by which the object sends its requests here; none if it does.
    pub(super) fn taken(
        &self,
        object: &DynamicObject,
        authority: Option<&str>,
        now: Timestamp,
    ) -> Option<Value> {
        let annotations = object.metadata.annotations.as_ref();
        let handed_back = annotations.and_then(|all| all.get(HANDED_BACK)?.parse::<Timestamp>().ok());
        if handed_back.is_some_and(|at| now.duration_since(at) < HANDED_BACK_REST) {
            return None;
        }
        let mut before = None;
        let take = |config: &mut Value| {
            if self.is_kueues(&config["service"]) {
                before.get_or_insert_with(|| Before::of(config).0);
                config["service"]["namespace"] = json!(self.our_namespace);
                config["service"]["name"] = json!(trireme::ADMISSION_SERVICE);
                remove(&mut config["service"], "port");
                remove(config, "insecureSkipTLSVerify");
                // Kueue's authority does not sign for this program.
                remove(config, "caBundle");
            }
            if let Some(authority) = authority.filter(|_| self.is_ours(&config["service"])) {
                config["caBundle"] = json!(encoded(authority));
            }
        };
        let mut body = self.changed(object, take, |webhook| self.leave_us_alone(webhook))?;
        if let Some(before) = before {
            body["metadata"]["annotations"] = json!({ TAKEN_OVER: before.to_string(), HANDED_BACK: null });
        }
        Some(body)
    }

    /// The patch by which an object that was taken sends its requests to Kueue again; none if it was not.
    pub(super) fn given_back(&self, object: &DynamicObject, now: Timestamp) -> Option<Value> {
        let kept = object.metadata.annotations.as_ref()?.get(TAKEN_OVER)?;
        let before = Before(serde_json::from_str(kept).ok()?);
        let restore = |config: &mut Value| {
            if self.is_ours(&config["service"]) {
                before.restore(config);
            }
        };
        let body = self.changed(object, restore, |webhook| self.ask_about_us(webhook));
        let mut body = body.unwrap_or_else(|| json!({}));
        body["metadata"]["annotations"] = json!({ TAKEN_OVER: null, HANDED_BACK: now.to_string() });
        Some(body)
    }

    /// The patch that changes every place of the object that names a service, and the webhooks around them; none if nothing changes.
    fn changed(
        &self,
        object: &DynamicObject,
        mut change: impl FnMut(&mut Value),
        change_webhook: impl Fn(&mut Value),
    ) -> Option<Value> {
        if let Some(webhooks) = object.data.get("webhooks").and_then(Value::as_array) {
            // A list is replaced as a whole.
            let mut changed = webhooks.clone();
            for webhook in changed.iter_mut().filter(|one| one["clientConfig"]["service"].is_object()) {
                change(&mut webhook["clientConfig"]);
                change_webhook(webhook);
            }
            return (changed != *webhooks).then(|| json!({ "webhooks": changed }));
        }
        let (place, within): (&str, fn(Value) -> Value) = match object.data.pointer("/spec/service") {
            Some(Value::Object(_)) => ("/spec", |spec| json!({ "spec": spec })),
            _ => (
                "/spec/conversion/webhook/clientConfig",
                |config| json!({ "spec": { "conversion": { "webhook": { "clientConfig": config } } } }),
            ),
        };
        let seen = object.data.pointer(place).filter(|config| config["service"].is_object())?;
        let mut changed = seen.clone();
        change(&mut changed);
        let patch = difference(seen, &changed);
        (patch != json!({})).then(|| within(patch))
    }
}

/// Where requests went before, and whom the API server trusted.
struct Before(Value);

/// What of a client configuration is kept.
const KEPT: [&str; 2] = ["caBundle", "insecureSkipTLSVerify"];

impl Before {
    fn of(config: &Value) -> Self {
        let mut service = config["service"].clone();
        remove(&mut service, "path");
        let mut kept = json!({ "service": service });
        for field in KEPT.iter().filter(|field| !config[**field].is_null()) {
            kept[*field] = config[*field].clone();
        }
        Self(kept)
    }

    fn restore(&self, config: &mut Value) {
        for field in ["namespace", "name", "port"] {
            match &self.0["service"][field] {
                Value::Null => remove(&mut config["service"], field),
                value => config["service"][field] = value.clone(),
            }
        }
        for field in KEPT {
            match &self.0[field] {
                Value::Null => remove(config, field),
                value => config[field] = value.clone(),
            }
        }
    }
}

fn remove(object: &mut Value, field: &str) {
    if let Value::Object(object) = object {
        object.remove(field);
    }
}

/// The merge patch from one object to another.
fn difference(from: &Value, to: &Value) -> Value {
    let (Value::Object(from), Value::Object(to)) = (from, to) else { return to.clone() };
    let mut patch = serde_json::Map::new();
    for field in from.keys().filter(|field| !to.contains_key(*field)) {
        patch.insert(field.clone(), Value::Null);
    }
    for (field, value) in to.iter().filter(|(field, value)| from.get(*field) != Some(*value)) {
        patch.insert(field.clone(), difference(from.get(field).unwrap_or(&Value::Null), value));
    }
    Value::Object(patch)
}

fn encoded(authority: &str) -> String {
    match serde_json::to_value(k8s_openapi::ByteString(authority.as_bytes().to_vec())) {
        Ok(Value::String(text)) => text,
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(data: Value) -> DynamicObject {
        let mut object = data;
        object["metadata"]["name"] = json!("x");
        serde_json::from_value(object).unwrap()
    }

    /// As the API server would: RFC 7386.
    fn patched(object: &DynamicObject, patch: &Value) -> DynamicObject {
        let mut value = serde_json::to_value(object).unwrap();
        json_patch::merge(&mut value, patch);
        serde_json::from_value(value).unwrap()
    }

    fn ends() -> Ends {
        Ends::new(&TakeOver::default(), "trireme-system")
    }

    #[test]
    fn what_was_taken_is_given_back_as_it_was() {
        let kueues = json!({ "namespace": "kueue-system", "name": "kueue-webhook-service", "path": "/convert", "port": 443 });
        let visibility =
            json!({ "namespace": "kueue-system", "name": "kueue-visibility-server", "port": 443 });
        let now: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        for (data, place) in [
            (
                json!({ "webhooks": [
                    { "name": "a", "clientConfig": { "service": kueues, "caBundle": "S3VldWU=" }, "namespaceSelector": {} },
                    { "name": "b", "clientConfig": { "url": "https://elsewhere" } },
                ] }),
                "/webhooks/0/clientConfig",
            ),
            (
                json!({ "webhooks": [{ "name": "a", "clientConfig": { "service": kueues },
                    "namespaceSelector": { "matchLabels": { "team": "a" }, "matchExpressions": [
                        { "key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": ["kube-system", "kueue-system"] },
                    ] } }] }),
                "/webhooks/0/clientConfig",
            ),
            (
                json!({ "spec": { "group": "kueue.x-k8s.io", "conversion": { "strategy": "Webhook", "webhook": {
                    "clientConfig": { "service": kueues, "caBundle": "S3VldWU=" }, "conversionReviewVersions": ["v1"],
                } } } }),
                "/spec/conversion/webhook/clientConfig",
            ),
            (
                json!({ "spec": { "group": "g", "service": visibility, "insecureSkipTLSVerify": true } }),
                "/spec",
            ),
        ] {
            let before = object(data);
            let patch = ends().taken(&before, Some("ours"), now).unwrap();
            let taken = patched(&before, &patch);
            let config = taken.data.pointer(place).unwrap();
            assert_eq!(config["service"]["namespace"], "trireme-system");
            assert_eq!(config["service"]["name"], "admission-controller");
            assert_eq!(config["caBundle"], "b3Vycw==");
            assert_eq!(config["service"]["path"], before.data.pointer(place).unwrap()["service"]["path"]);
            assert!(config["insecureSkipTLSVerify"].is_null());
            if let Some(webhook) = taken.data.pointer("/webhooks/0") {
                let spared = json!({ "key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": ["trireme-system"] });
                let expressions = webhook["namespaceSelector"]["matchExpressions"].as_array().unwrap();
                assert!(expressions.contains(&spared), "{webhook}");
                assert!(
                    taken.data.pointer("/webhooks/1").is_none_or(|one| one["namespaceSelector"].is_null())
                );
            }
            assert_eq!(ends().taken(&taken, Some("ours"), now), None, "once");
            let renewed = ends().taken(&taken, Some("new"), now).unwrap();
            assert!(renewed.get("metadata").is_none(), "what was before is not forgotten: {renewed}");

            let patch = ends().given_back(&patched(&taken, &renewed), now).unwrap();
            let back = patched(&patched(&taken, &renewed), &patch);
            assert_eq!(back.data, before.data);
            assert_eq!(ends().given_back(&back, now), None, "once");
            let soon = now + jiff::SignedDuration::from_mins(9);
            assert_eq!(ends().taken(&back, Some("ours"), soon), None, "left alone for a while");
            let late = now + jiff::SignedDuration::from_mins(11);
            assert!(ends().taken(&back, Some("ours"), late).is_some());
        }
    }

    #[test]
    fn what_is_not_kueues_stays() {
        let now = Timestamp::UNIX_EPOCH;
        for service in [
            json!({ "namespace": "other", "name": "kueue-webhook-service" }),
            json!({ "namespace": "kueue-system", "name": "other" }),
        ] {
            let one =
                object(json!({ "webhooks": [{ "name": "a", "clientConfig": { "service": service } }] }));
            assert_eq!(ends().taken(&one, Some("ours"), now), None);
        }
        assert_eq!(
            ends().taken(&object(json!({ "spec": { "conversion": { "strategy": "None" } } })), None, now),
            None
        );
    }
}
