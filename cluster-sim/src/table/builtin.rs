use jiff::Timestamp;
use serde_json::{Value, json};

use super::Head;
use crate::object::{at, items, name, text};

const AGE: Head = ("Age", "string", 0);
const NAME: Head = ("Name", "string", 0);

const POD: &[Head] = &[
    NAME,
    ("Ready", "string", 0),
    ("Status", "string", 0),
    ("Restarts", "string", 0),
    AGE,
    ("IP", "string", 1),
    ("Node", "string", 1),
    ("Nominated Node", "string", 1),
    ("Readiness Gates", "string", 1),
];
const NODE: &[Head] = &[
    NAME,
    ("Status", "string", 0),
    ("Roles", "string", 0),
    AGE,
    ("Version", "string", 0),
    ("Internal-IP", "string", 1),
];
const JOB: &[Head] =
    &[NAME, ("Status", "string", 0), ("Completions", "string", 0), ("Duration", "string", 0), AGE];
const EVENT: &[Head] = &[
    ("Last Seen", "string", 0),
    ("Type", "string", 0),
    ("Reason", "string", 0),
    ("Object", "string", 0),
    ("Message", "string", 0),
    ("Name", "string", 1),
];
const NAMESPACE: &[Head] = &[NAME, ("Status", "string", 0), AGE];
const DATA: &[Head] = &[NAME, ("Data", "string", 0), AGE];
const SECRET: &[Head] = &[NAME, ("Type", "string", 0), ("Data", "integer", 0), AGE];
const SERVICE: &[Head] = &[
    NAME,
    ("Type", "string", 0),
    ("Cluster-IP", "string", 0),
    ("External-IP", "string", 0),
    ("Port(s)", "string", 0),
    AGE,
];
const SCALED: &[Head] =
    &[NAME, ("Ready", "string", 0), ("Up-to-date", "string", 0), ("Available", "string", 0), AGE];
const REPLICAS: &[Head] =
    &[NAME, ("Desired", "integer", 0), ("Current", "integer", 0), ("Ready", "integer", 0), AGE];
const LEASE: &[Head] = &[NAME, ("Holder", "string", 0), AGE];
const PRIORITY: &[Head] = &[NAME, ("Value", "integer", 0), ("Global-Default", "boolean", 0), AGE];
const DEFINITION: &[Head] = &[NAME, ("Created At", "date", 0)];
const BUDGET: &[Head] = &[
    NAME,
    ("Min Available", "string", 0),
    ("Max Unavailable", "string", 0),
    ("Allowed Disruptions", "integer", 0),
    AGE,
];
const OTHER: &[Head] = &[NAME, AGE];

pub(super) fn heads(kind: &str) -> &'static [Head] {
    match kind {
        "Pod" => POD,
        "Node" => NODE,
        "Job" => JOB,
        "Event" => EVENT,
        "Namespace" => NAMESPACE,
        "ConfigMap" => DATA,
        "Secret" => SECRET,
        "Service" => SERVICE,
        "Deployment" => SCALED,
        "ReplicaSet" | "StatefulSet" => REPLICAS,
        "Lease" => LEASE,
        "PriorityClass" => PRIORITY,
        "CustomResourceDefinition" => DEFINITION,
        "PodDisruptionBudget" => BUDGET,
        _ => OTHER,
    }
}

/// The cells of an object, one a column.
pub(super) fn cells(kind: &str, object: &Value, now: Timestamp) -> Vec<Value> {
    let created = text(object, &["metadata", "creationTimestamp"]);
    let mut cells = vec![name(object).into()];
    let age = Value::from(age(created, now));
    let count = |path: &[&str]| count(object, path);
    let fields = |key: &str| at(object, &[key]).as_object().map_or(0, serde_json::Map::len);
    match kind {
        "Pod" => cells.extend(pod(object, age)),
        "Node" => cells.extend(node(object, age)),
        "Job" => cells.extend([
            job_status(object).into(),
            completions(object).into(),
            duration(object, now).into(),
            age,
        ]),
        "Event" => return event(object, now),
        "Namespace" => cells.extend([text(object, &["status", "phase"]).into(), age]),
        "ConfigMap" => cells.extend([(fields("data") + fields("binaryData")).into(), age]),
        "Secret" => cells.extend([text(object, &["type"]).into(), fields("data").into(), age]),
        "Service" => cells.extend(service(object, age)),
        "Deployment" => cells.extend(deployment(object, age)),
        "ReplicaSet" | "StatefulSet" => cells.extend([
            count(&["spec", "replicas"]),
            count(&["status", "replicas"]),
            count(&["status", "readyReplicas"]),
            age,
        ]),
        "Lease" => cells.extend([text(object, &["spec", "holderIdentity"]).into(), age]),
        "PriorityClass" => cells.extend([
            count(&["value"]),
            at(object, &["globalDefault"]).as_bool().unwrap_or(false).into(),
            age,
        ]),
        "CustomResourceDefinition" => cells.push(created.into()),
        "PodDisruptionBudget" => cells.extend([
            shown(at(object, &["spec", "minAvailable"])),
            shown(at(object, &["spec", "maxUnavailable"])),
            count(&["status", "disruptionsAllowed"]),
            age,
        ]),
        _ => cells.push(age),
    }
    cells
}

/// Behind the name, as all of these.
fn pod(object: &Value, age: Value) -> [Value; 8] {
    [
        ready(object).into(),
        pod_status(object).into(),
        restarts(object).to_string().into(),
        age,
        or_none(object, &["status", "podIP"]),
        or_none(object, &["spec", "nodeName"]),
        or_none(object, &["status", "nominatedNodeName"]),
        "<none>".into(),
    ]
}

fn node(object: &Value, age: Value) -> [Value; 5] {
    let addresses = items(object, &["status", "addresses"]);
    let internal = addresses.iter().find(|address| text(address, &["type"]) == "InternalIP");
    [
        node_status(object).into(),
        roles(object).into(),
        age,
        text(object, &["status", "nodeInfo", "kubeletVersion"]).into(),
        internal.map_or("<none>".into(), |address| text(address, &["address"]).into()),
    ]
}

fn service(object: &Value, age: Value) -> [Value; 5] {
    [
        text(object, &["spec", "type"]).into(),
        or_none(object, &["spec", "clusterIP"]),
        "<none>".into(),
        ports(object).into(),
        age,
    ]
}

fn deployment(object: &Value, age: Value) -> [Value; 4] {
    let count = |path: &[&str]| count(object, path);
    [
        format!("{}/{}", count(&["status", "readyReplicas"]), count(&["spec", "replicas"])).into(),
        count(&["status", "updatedReplicas"]),
        count(&["status", "availableReplicas"]),
        age,
    ]
}

fn or_none(object: &Value, path: &[&str]) -> Value {
    match text(object, path) {
        "" => "<none>".into(),
        text => text.into(),
    }
}

fn count(object: &Value, path: &[&str]) -> Value {
    at(object, path).as_i64().unwrap_or(0).into()
}

fn shown(value: &Value) -> Value {
    match value {
        Value::Null => "N/A".into(),
        Value::String(text) => text.as_str().into(),
        other => other.to_string().into(),
    }
}

/// A time as kubectl shows how long ago it was: two units at most.
pub(super) fn age(time: &str, now: Timestamp) -> String {
    match time.parse::<Timestamp>() {
        Ok(then) => human(now.as_second() - then.as_second()),
        Err(_) => "<unknown>".into(),
    }
}

fn human(seconds: i64) -> String {
    let seconds = seconds.max(0);
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    match seconds {
        0..120 => format!("{seconds}s"),
        120..600 if seconds % 60 != 0 => format!("{minutes}m{}s", seconds % 60),
        120..10_800 => format!("{minutes}m"),
        10_800..28_800 if minutes % 60 != 0 => format!("{hours}h{}m", minutes % 60),
        10_800..172_800 => format!("{hours}h"),
        172_800..691_200 if hours % 24 != 0 => format!("{days}d{}h", hours % 24),
        _ => format!("{days}d"),
    }
}

/// The sidecars among the init containers: they count as containers.
fn sidecars(pod: &Value) -> impl Iterator<Item = &str> {
    let init = items(pod, &["spec", "initContainers"]).iter();
    init.filter(|c| text(c, &["restartPolicy"]) == "Always").map(|c| text(c, &["name"]))
}

/// The statuses of containers and sidecars.
fn statuses(pod: &Value) -> impl Iterator<Item = &Value> {
    let init = items(pod, &["status", "initContainerStatuses"]).iter();
    let sidecars = init.filter(|s| sidecars(pod).any(|name| name == text(s, &["name"])));
    items(pod, &["status", "containerStatuses"]).iter().chain(sidecars)
}

fn ready(pod: &Value) -> String {
    let ready = statuses(pod).filter(|s| at(s, &["ready"]) == &Value::Bool(true)).count();
    format!("{ready}/{}", items(pod, &["spec", "containers"]).len() + sidecars(pod).count())
}

fn restarts(pod: &Value) -> i64 {
    statuses(pod).filter_map(|s| at(s, &["restartCount"]).as_i64()).sum()
}

fn pod_status(pod: &Value) -> String {
    if !at(pod, &["metadata", "deletionTimestamp"]).is_null() {
        return "Terminating".into();
    }
    let gated =
        |c: &&Value| text(c, &["type"]) == "PodScheduled" && text(c, &["reason"]) == "SchedulingGated";
    if items(pod, &["status", "conditions"]).iter().find(gated).is_some() {
        return "SchedulingGated".into();
    }
    let reasons = items(pod, &["status", "containerStatuses"]).iter().flat_map(|s| {
        [text(s, &["state", "waiting", "reason"]), text(s, &["state", "terminated", "reason"])]
    });
    let own = text(pod, &["status", "reason"]);
    let reason = reasons.rev().find(|r| !r.is_empty()).unwrap_or(own);
    if reason.is_empty() { text(pod, &["status", "phase"]).into() } else { reason.into() }
}

fn node_status(node: &Value) -> String {
    let ready = items(node, &["status", "conditions"]).iter().find(|c| text(c, &["type"]) == "Ready");
    let mut status = match ready.map(|c| text(c, &["status"])) {
        Some("True") => "Ready",
        Some(_) => "NotReady",
        None => "Unknown",
    }
    .to_owned();
    if at(node, &["spec", "unschedulable"]) == &Value::Bool(true) {
        status.push_str(",SchedulingDisabled");
    }
    status
}

fn roles(node: &Value) -> String {
    let labels = at(node, &["metadata", "labels"]).as_object();
    let roles: Vec<&str> = labels
        .into_iter()
        .flat_map(|l| l.keys())
        .filter_map(|k| k.strip_prefix("node-role.kubernetes.io/"))
        .collect();
    if roles.is_empty() { "<none>".into() } else { roles.join(",") }
}

fn job_status(job: &Value) -> &'static str {
    let holds = |kind: &str| {
        items(job, &["status", "conditions"])
            .iter()
            .any(|c| text(c, &["type"]) == kind && text(c, &["status"]) == "True")
    };
    if holds("Complete") {
        "Complete"
    } else if holds("Failed") {
        "Failed"
    } else if !at(job, &["metadata", "deletionTimestamp"]).is_null() {
        "Terminating"
    } else if holds("Suspended") {
        "Suspended"
    } else {
        "Running"
    }
}

fn completions(job: &Value) -> String {
    let succeeded = at(job, &["status", "succeeded"]).as_i64().unwrap_or(0);
    match at(job, &["spec", "completions"]).as_i64() {
        Some(wanted) => format!("{succeeded}/{wanted}"),
        None => format!("{succeeded}/1 of {}", at(job, &["spec", "parallelism"]).as_i64().unwrap_or(1)),
    }
}

fn duration(job: &Value, now: Timestamp) -> String {
    let time = |path: &[&str]| text(job, path).parse::<Timestamp>().ok();
    match (time(&["status", "startTime"]), time(&["status", "completionTime"])) {
        (Some(start), end) => human(end.unwrap_or(now).as_second() - start.as_second()),
        (None, _) => String::new(),
    }
}

fn event(event: &Value, now: Timestamp) -> Vec<Value> {
    let first = |paths: &[&[&str]]| {
        paths.iter().map(|p| text(event, p)).find(|t| !t.is_empty()).unwrap_or_default().to_owned()
    };
    let seen = first(&[
        &["series", "lastObservedTime"],
        &["lastTimestamp"],
        &["deprecatedLastTimestamp"],
        &["eventTime"],
        &["metadata", "creationTimestamp"],
    ]);
    let kind = first(&[&["involvedObject", "kind"], &["regarding", "kind"]]).to_lowercase();
    let object = first(&[&["involvedObject", "name"], &["regarding", "name"]]);
    vec![
        age(&seen, now).into(),
        text(event, &["type"]).into(),
        text(event, &["reason"]).into(),
        json!(format!("{kind}/{object}")),
        first(&[&["message"], &["note"]]).trim().into(),
        name(event).into(),
    ]
}

fn ports(service: &Value) -> String {
    let shown = |p: &Value| format!("{}/{}", at(p, &["port"]), text(p, &["protocol"]));
    match items(service, &["spec", "ports"]) {
        [] => "<none>".into(),
        ports => ports.iter().map(shown).collect::<Vec<_>>().join(","),
    }
}

#[cfg(test)]
mod tests {
    use super::human;

    #[test]
    fn ages_have_two_units_at_most() {
        for (seconds, shown) in [
            (-3, "0s"),
            (90, "90s"),
            (130, "2m10s"),
            (180, "3m"),
            (3_700, "61m"),
            (11_100, "3h5m"),
            (90_000, "25h"),
            (180_000, "2d2h"),
            (864_000, "10d"),
        ] {
            assert_eq!(human(seconds), shown, "{seconds}");
        }
    }
}
