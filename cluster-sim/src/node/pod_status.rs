//! The status a kubelet reports for a pod. Pure.

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::devices::Millis;
use super::pod::Pod;
use super::run::{ContainerRun, Ended, Phase, PodRun, Role, State};

/// The condition types that a kubelet owns; all others are left as they are.
const OWNED: [&str; 5] =
    ["PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled"];

/// Where the pod is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Addresses {
    pub(crate) host: String,
    pub(crate) pod: String,
}

/// A time as Kubernetes writes it: whole seconds, UTC.
pub(crate) fn rfc3339(at: Millis) -> String {
    let seconds = at.div_euclid(1000);
    Timestamp::from_second(seconds).unwrap_or(Timestamp::UNIX_EPOCH).to_string()
}

/// The other way round; `None` for what is no time.
pub(crate) fn parse_rfc3339(text: &str) -> Option<Millis> {
    text.parse::<Timestamp>().ok().map(|at| at.as_millisecond())
}

/// The status of a pod that the node has taken.
pub(crate) fn running(
    old: &Value,
    pod: &Pod,
    run: &PodRun,
    trouble: Option<&str>,
    at: &Addresses,
    taken: Millis,
    now: Millis,
) -> Value {
    let phase = if pod.is_terminal() { pod.phase.clone() } else { phase_name(run.phase()).to_owned() };
    let finished = matches!(phase.as_str(), "Succeeded" | "Failed");
    let completed = |ok: bool| match (finished, ok) {
        (true, _) => ("False", if phase == "Succeeded" { "PodCompleted" } else { "PodFailed" }),
        (false, true) => ("True", ""),
        (false, false) => ("False", "ContainersNotReady"),
    };
    let initialized = if run.is_initialized() {
        ("True", if phase == "Succeeded" { "PodCompleted" } else { "" })
    } else {
        ("False", "ContainersNotInitialized")
    };
    let ready = completed(run.is_ready() && !run.is_stopping());
    let over = run.is_over();
    let conditions = [
        ("PodReadyToStartContainers", (if over { "False" } else { "True" }, "")),
        ("Initialized", initialized),
        ("Ready", ready),
        ("ContainersReady", ready),
        ("PodScheduled", ("True", "")),
    ];
    let mut status = old.as_object().cloned().unwrap_or_default();
    status.insert("phase".into(), phase.into());
    status.insert("conditions".into(), merge_conditions(&old["conditions"], &conditions, now));
    status.insert("hostIP".into(), at.host.clone().into());
    status.insert("hostIPs".into(), json!([{ "ip": at.host }]));
    status.insert("podIP".into(), at.pod.clone().into());
    status.insert("podIPs".into(), json!([{ "ip": at.pod }]));
    status.insert("startTime".into(), rfc3339(taken).into());
    let of = |main: bool| -> Vec<Value> {
        let statuses = run.containers.iter().filter(|one| (one.role == Role::Main) == main);
        statuses.map(|one| container_status(pod, one, trouble, run.is_initialized())).collect()
    };
    status.insert("containerStatuses".into(), of(true).into());
    let init = of(false);
    if !init.is_empty() {
        status.insert("initContainerStatuses".into(), init.into());
    }
    Value::Object(status)
}

/// The status of a pod that the node refuses.
pub(crate) fn refused(old: &Value, reason: &str, message: &str, now: Millis) -> Value {
    let mut status = old.as_object().cloned().unwrap_or_default();
    status.insert("phase".into(), "Failed".into());
    status.insert("reason".into(), reason.into());
    status.insert("message".into(), format!("Pod was rejected: {message}").into());
    status.insert("startTime".into(), rfc3339(now).into());
    Value::Object(status)
}

fn phase_name(phase: Phase) -> &'static str {
    match phase {
        Phase::Pending => "Pending",
        Phase::Running => "Running",
        Phase::Succeeded => "Succeeded",
        Phase::Failed => "Failed",
    }
}

fn merge_conditions(old: &Value, new: &[(&str, (&str, &str))], now: Millis) -> Value {
    let old = old.as_array().map(Vec::as_slice).unwrap_or_default();
    let mut merged: Vec<Value> = new
        .iter()
        .map(|(kind, (status, reason))| {
            let before = old.iter().find(|one| one["type"] == *kind);
            let since = match before {
                Some(before) if before["status"] == *status => before["lastTransitionTime"].clone(),
                _ => rfc3339(now).into(),
            };
            let mut condition = json!({ "type": kind, "status": status, "lastTransitionTime": since });
            if !reason.is_empty() {
                condition["reason"] = (*reason).into();
            }
            condition
        })
        .collect();
    let foreign = old.iter().filter(|one| one["type"].as_str().is_none_or(|kind| !OWNED.contains(&kind)));
    merged.extend(foreign.cloned());
    merged.into()
}

fn container_status(pod: &Pod, run: &ContainerRun, trouble: Option<&str>, initialized: bool) -> Value {
    let id = format!("sim://{}/{}/{}", pod.uid, run.name, run.restarts);
    let started = !matches!(run.state, State::Waiting { .. });
    let running = matches!(run.state, State::Running { .. });
    let ready =
        running || matches!((&run.state, run.role), (State::Ended(Ended { code: 0, .. }), Role::Init));
    let state = match &run.state {
        State::Running { started, .. } => json!({ "running": { "startedAt": rfc3339(*started) } }),
        State::Ended(ended) => terminated(ended, &id),
        State::Waiting { .. } => waiting(run, trouble, initialized),
    };
    let mut status = Map::new();
    status.insert("name".into(), run.name.clone().into());
    status.insert("image".into(), run.image.clone().into());
    status.insert("imageID".into(), "".into());
    status.insert("ready".into(), ready.into());
    status.insert("restartCount".into(), run.restarts.into());
    status.insert("started".into(), running.into());
    status.insert("state".into(), state);
    status.insert("lastState".into(), run.last.as_ref().map_or(json!({}), |ended| terminated(ended, &id)));
    if started {
        status.insert("containerID".into(), id.into());
    }
    Value::Object(status)
}

fn waiting(run: &ContainerRun, trouble: Option<&str>, initialized: bool) -> Value {
    if let Some(trouble) = trouble {
        return json!({ "waiting": { "reason": "CreateContainerConfigError", "message": trouble } });
    }
    let reason = match (run.last, initialized) {
        (Some(_), _) => "CrashLoopBackOff",
        (None, false) => "PodInitializing",
        (None, true) => "ContainerCreating",
    };
    json!({ "waiting": { "reason": reason } })
}

fn terminated(ended: &Ended, id: &str) -> Value {
    json!({ "terminated": {
        "exitCode": ended.code,
        "reason": if ended.code == 0 { "Completed" } else { "Error" },
        "startedAt": rfc3339(ended.started),
        "finishedAt": rfc3339(ended.finished),
        "containerID": id,
    } })
}

#[cfg(test)]
mod tests {
    use super::super::pod::Behaviour;
    use super::*;

    fn pod() -> Pod {
        Pod::read(&json!({
            "metadata": { "name": "p", "uid": "u" },
            "spec": { "restartPolicy": "Never", "containers": [{ "name": "c", "image": "i" }] },
        }))
        .unwrap()
    }

    fn condition<'v>(status: &'v Value, kind: &str) -> &'v Value {
        status["conditions"].as_array().unwrap().iter().find(|one| one["type"] == kind).unwrap()
    }

    #[test]
    fn from_bound_to_done() {
        let (pod, at) = (pod(), Addresses { host: "10.0.0.1".into(), pod: "10.1.0.1".into() });
        let behaviour =
            Behaviour { run_for: Some(std::time::Duration::from_secs(5)), ..Behaviour::default() };
        let mut run = PodRun::new(&pod, behaviour, 0);
        let old = json!({ "phase": "Pending", "conditions": [
            { "type": "PodScheduled", "status": "True", "lastTransitionTime": "1969-12-31T23:59:59Z" },
            { "type": "example.com/own", "status": "False" },
        ] });

        run.advance(0);
        let status = running(&old, &pod, &run, None, &at, 0, 0);
        assert_eq!(status["phase"], "Running");
        assert_eq!(condition(&status, "Ready")["status"], "True");
        assert_eq!(condition(&status, "PodScheduled")["lastTransitionTime"], "1969-12-31T23:59:59Z");
        assert_eq!(condition(&status, "example.com/own")["status"], "False", "others' conditions are kept");
        assert_eq!(status["containerStatuses"][0]["state"]["running"]["startedAt"], "1970-01-01T00:00:00Z");

        run.advance(5_000);
        let status = running(&status, &pod, &run, None, &at, 0, 5_000);
        assert_eq!(status["phase"], "Succeeded");
        assert_eq!(condition(&status, "Ready")["reason"], "PodCompleted");
        assert_eq!(condition(&status, "Ready")["lastTransitionTime"], "1970-01-01T00:00:05Z");
        assert_eq!(status["containerStatuses"][0]["state"]["terminated"]["exitCode"], 0);
    }

    #[test]
    fn trouble_keeps_a_container_waiting() {
        let (pod, at) = (pod(), Addresses { host: "h".into(), pod: "p".into() });
        let run = PodRun::new(&pod, Behaviour::default(), 0);
        let status = running(&Value::Null, &pod, &run, Some("no such secret"), &at, 0, 0);
        let waiting = &status["containerStatuses"][0]["state"]["waiting"];
        assert_eq!(
            (&waiting["reason"], &waiting["message"]),
            (&json!("CreateContainerConfigError"), &json!("no such secret"))
        );
        assert_eq!(status["phase"], "Pending");
    }
}
