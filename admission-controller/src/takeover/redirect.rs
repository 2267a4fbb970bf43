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

/// By these annotations cert-manager is asked to keep its authority in an object, for a Kueue that has its certificates of it.
const INJECTED: [&str; 2] = ["cert-manager.io/inject-ca-from", "cert-manager.io/inject-ca-from-secret"];

/// An object that was taken sends its requests neither here nor to Kueue.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "its requests go to Service {found}, not to {ours}, from which they would be given back; name this program's namespace \
     (`namespace`) in the file that --config names"
)]
pub(super) struct Elsewhere {
    found: String,
    ours: String,
}

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

    /// The patch by which the object sends its requests here; none if it does, or was handed back a short time ago, while this
    /// program ran (it has done so since `begun`).
    pub(super) fn taken(
        &self,
        object: &DynamicObject,
        authority: Option<&str>,
        now: Timestamp,
        begun: Timestamp,
    ) -> Option<Value> {
        let annotations = object.metadata.annotations.as_ref();
        let handed_back = annotations.and_then(|all| all.get(HANDED_BACK)?.parse::<Timestamp>().ok());
        if handed_back.is_some_and(|at| at >= begun && now.duration_since(at) < HANDED_BACK_REST) {
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
        if let Some(mut before) = before {
            let mut changed = json!({ HANDED_BACK: null });
            // Whoever keeps Kueue's authority in the object would put it in the place of ours.
            for name in INJECTED {
                if let Some(value) = annotations.and_then(|all| all.get(name)) {
                    before["annotations"][name] = json!(value);
                    changed[name] = Value::Null;
                }
            }
            changed[TAKEN_OVER] = json!(before.to_string());
            body["metadata"]["annotations"] = changed;
        }
        Some(body)
    }

    /// The patch by which an object that was taken sends its requests to Kueue again; none if it was not.
    ///
    /// # Errors
    /// When it sends none of them here, and does not send them to Kueue either.
    pub(super) fn given_back(
        &self,
        object: &DynamicObject,
        now: Timestamp,
    ) -> Result<Option<Value>, Elsewhere> {
        let kept = object.metadata.annotations.as_ref().and_then(|all| all.get(TAKEN_OVER));
        let Some(before) = kept.and_then(|kept| serde_json::from_str(kept).ok()).map(Before) else {
            return Ok(None);
        };
        let (mut is_known, mut found) = (false, None);
        let restore = |config: &mut Value| {
            let service = &config["service"];
            if self.is_ours(service) {
                is_known = true;
                before.restore(config);
            } else if self.is_kueues(service) {
                is_known = true;
            } else {
                found = Some(service.clone());
            }
        };
        let body = self.changed(object, restore, |webhook| self.ask_about_us(webhook));
        if let Some(found) = found.filter(|_| !is_known) {
            let text = |field: &str| found[field].as_str().unwrap_or_default().to_owned();
            let found = format!("{}/{}", text("namespace"), text("name"));
            let ours = format!("{}/{}", self.our_namespace, trireme::ADMISSION_SERVICE);
            return Err(Elsewhere { found, ours });
        }
        let mut body = body.unwrap_or_else(|| json!({}));
        let mut annotations = json!({ TAKEN_OVER: null, HANDED_BACK: now.to_string() });
        for (name, value) in before.0["annotations"].as_object().into_iter().flatten() {
            annotations[name] = value.clone();
        }
        body["metadata"]["annotations"] = annotations;
        Ok(Some(body))
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

/// Where requests went before, whom the API server trusted, and annotations that saw to that.
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
            let begun = Timestamp::UNIX_EPOCH;
            let patch = ends().taken(&before, Some("ours"), now, begun).unwrap();
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
            assert_eq!(ends().taken(&taken, Some("ours"), now, begun), None, "once");
            let renewed = ends().taken(&taken, Some("new"), now, begun).unwrap();
            assert!(renewed.get("metadata").is_none(), "what was before is not forgotten: {renewed}");

            let patch = ends().given_back(&patched(&taken, &renewed), now).unwrap().unwrap();
            let back = patched(&patched(&taken, &renewed), &patch);
            assert_eq!(back.data, before.data);
            assert_eq!(ends().given_back(&back, now), Ok(None), "once");
            let soon = now + jiff::SignedDuration::from_mins(9);
            assert_eq!(ends().taken(&back, Some("ours"), soon, begun), None, "left alone for a while");
            assert!(ends().taken(&back, Some("ours"), soon, soon).is_some(), "by who ran then");
            let late = now + jiff::SignedDuration::from_mins(11);
            assert!(ends().taken(&back, Some("ours"), late, begun).is_some());
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
            assert_eq!(ends().taken(&one, Some("ours"), now, now), None);
        }
        assert_eq!(
            ends().taken(
                &object(json!({ "spec": { "conversion": { "strategy": "None" } } })),
                None,
                now,
                now
            ),
            None
        );
    }

    /// A Kueue with `enableCertManager`: cert-manager would put its authority in the place of ours.
    #[test]
    fn nobody_keeps_kueues_authority_in_what_comes_here() {
        let asks =
            json!({ "cert-manager.io/inject-ca-from": "kueue-system/kueue-serving-cert", "other": "stays" });
        let mut before = object(
            json!({ "spec": { "service": { "namespace": "kueue-system", "name": "kueue-visibility-server" } } }),
        );
        before.metadata.annotations = serde_json::from_value(asks.clone()).unwrap();
        let now = Timestamp::UNIX_EPOCH;
        let taken = patched(&before, &ends().taken(&before, Some("ours"), now, now).unwrap());
        let there: Vec<&String> = taken.metadata.annotations.iter().flatten().map(|(name, _)| name).collect();
        assert_eq!(there, ["other", TAKEN_OVER]);
        let back = patched(&taken, &ends().given_back(&taken, now).unwrap().unwrap());
        let mut annotations = json!(back.metadata.annotations);
        remove(&mut annotations, HANDED_BACK);
        assert_eq!(annotations, asks);
    }

    #[test]
    fn the_way_back_is_not_forgotten_by_who_cannot_go_it() {
        let kueues = json!({ "namespace": "kueue-system", "name": "kueue-webhook-service" });
        let before = object(json!({ "webhooks": [{ "name": "a", "clientConfig": { "service": kueues } }] }));
        let now = Timestamp::UNIX_EPOCH;
        let taken = patched(&before, &ends().taken(&before, Some("ours"), now, now).unwrap());
        let other_namespace = Ends::new(&TakeOver::default(), "elsewhere");
        let error = other_namespace.given_back(&taken, now).unwrap_err().to_string();
        assert!(error.contains("trireme-system/admission-controller"), "{error}");
        // Somebody pointed it to Kueue by hand: only the notes go.
        let mut pointed = taken.clone();
        pointed.data["webhooks"] = before.data["webhooks"].clone();
        let back = patched(&pointed, &other_namespace.given_back(&pointed, now).unwrap().unwrap());
        assert_eq!(back.data, before.data);
        assert!(!back.metadata.annotations.unwrap().contains_key(TAKEN_OVER));
    }
}
