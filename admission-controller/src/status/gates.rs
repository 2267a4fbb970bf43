//! Preemption gates: `status.preemptionGates`.

use crds::view::workload::{PreemptionGate, Workload};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::whole_second;

/// All that the status knows of, closed: an evicted workload starts anew.
pub(super) fn closed(view: &Workload, now: Timestamp) -> Vec<Value> {
    view.status.preemption_gates.iter().map(|gate| shut(&gate.name, now)).collect()
}

/// The states of the gates that the spec names; one that has none yet is closed. `None` where the status says so already.
pub fn gates(view: &Workload, now: Timestamp) -> Option<Value> {
    let seen = &view.status.preemption_gates;
    let state = |gate: &PreemptionGate| match seen.iter().find(|one| one.name == gate.name) {
        Some(one) => json!({
            "name": one.name, "position": one.position, "lastTransitionTime": one.last_transition_time,
        }),
        None => shut(&gate.name, now),
    };
    let named = |wanted: &[PreemptionGate], name: &str| wanted.iter().any(|gate| gate.name == name);
    let same = seen.iter().all(|gate| named(&view.spec.preemption_gates, &gate.name))
        && view.spec.preemption_gates.iter().all(|gate| named(seen, &gate.name));
    let states = || match view.spec.preemption_gates.as_slice() {
        [] => Value::Null,
        gates => gates.iter().map(state).collect(),
    };
    (!same).then(|| json!({ "status": { "preemptionGates": states() } }))
}

fn shut(name: &str, now: Timestamp) -> Value {
    json!({ "name": name, "position": "Closed", "lastTransitionTime": whole_second(now) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn workload(spec: &[&str], status: &[(&str, &str)]) -> Workload {
        let gates: Vec<Value> = spec.iter().map(|name| json!({ "name": name })).collect();
        let state = |(name, position): &(&str, &str)| json!({ "name": name, "position": position, "lastTransitionTime": "2026-01-01T00:00:00Z" });
        let states: Vec<Value> = status.iter().map(state).collect();
        serde_json::from_value(json!({
            "metadata": {}, "spec": { "preemptionGates": gates }, "status": { "preemptionGates": states },
        }))
        .unwrap()
    }

    #[test]
    fn the_status_follows_the_spec() {
        let now = "2026-01-02T00:00:00Z".parse().unwrap();
        let told = |spec: &[&str], status: &[(&str, &str)]| {
            let body = gates(&workload(spec, status), now)?;
            let list = body["status"]["preemptionGates"].as_array().cloned().unwrap_or_default();
            let text = |one: &Value| {
                let day = one["lastTransitionTime"].as_str().unwrap()[8..10].to_owned();
                format!("{} {} {day}", one["name"].as_str().unwrap(), one["position"].as_str().unwrap())
            };
            Some(list.iter().map(text).collect::<Vec<_>>())
        };
        assert_eq!(told(&[], &[]), None);
        assert_eq!(told(&["a"], &[("a", "Open")]), None);
        assert_eq!(told(&["a", "b"], &[("a", "Open")]).unwrap(), ["a Open 01", "b Closed 02"]);
        assert_eq!(told(&["b"], &[("a", "Open"), ("b", "Open")]).unwrap(), ["b Open 01"]);
        assert_eq!(told(&[], &[("a", "Open")]).unwrap(), Vec::<String>::new());
    }
}
