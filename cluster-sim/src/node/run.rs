//! What becomes of a pod's containers once the node has taken it. Pure: told the time, it says what started, what is
//! over, and when to ask again.
//!
//! Rules: pod lifecycle of Kubernetes (init containers in order, sidecars of KEP-753, restart policies, the back-off of
//! `pkg/kubelet/kuberuntime`, the phases of `getPhase`).

use std::time::Duration;

use super::devices::Millis;
use super::pod::{Behaviour, Pod, RestartPolicy};

/// First pause before a container that ended is started again; doubled each time.
const BACKOFF: Millis = 10_000;
/// The longest such pause (`MaxCrashLoopBackOff`).
const MAX_BACKOFF: Millis = 300_000;
/// A container that ran this long starts again without a pause.
const FORGIVEN: Millis = 2 * MAX_BACKOFF;
/// What a process ended by SIGTERM exits with.
const TERMINATED: i32 = 143;

/// The part a container plays in its pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// Runs to its end before the next one starts.
    Init,
    /// Starts in its turn and keeps running.
    Sidecar,
    /// One of the pod's containers.
    Main,
}

/// One run that is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ended {
    pub(crate) started: Millis,
    pub(crate) finished: Millis,
    pub(crate) code: i32,
}

/// What a container does now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// Not before its turn, or not before this time.
    Waiting { until: Option<Millis> },
    /// Since then, to end by itself then, with this code.
    Running { started: Millis, ends: Option<Millis>, code: i32 },
    /// For good, or until a restart.
    Ended(Ended),
}

/// One container.
#[derive(Clone, Debug)]
pub(crate) struct ContainerRun {
    pub(crate) name: String,
    pub(crate) image: String,
    pub(crate) role: Role,
    pub(crate) state: State,
    pub(crate) last: Option<Ended>,
    pub(crate) restarts: u32,
    backoff: Millis,
}

/// The phase of a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    Pending,
    Running,
    Succeeded,
    Failed,
}

/// All containers of one pod.
#[derive(Clone, Debug)]
pub(crate) struct PodRun {
    pub(crate) containers: Vec<ContainerRun>,
    behaviour: Behaviour,
    policy: RestartPolicy,
    stopping: bool,
}

impl PodRun {
    pub(crate) fn new(pod: &Pod, behaviour: Behaviour, not_before: Millis) -> Self {
        let init = pod.spec.init_containers.iter().map(|container| {
            (container, if container.restart_policy == "Always" { Role::Sidecar } else { Role::Init })
        });
        let main = pod.spec.containers.iter().map(|container| (container, Role::Main));
        let containers = init
            .chain(main)
            .map(|(container, role)| ContainerRun {
                name: container.name.clone(),
                image: container.image.clone(),
                role,
                state: State::Waiting { until: Some(not_before) },
                last: None,
                restarts: 0,
                backoff: 0,
            })
            .collect();
        Self { containers, behaviour, policy: pod.spec.restart_policy, stopping: false }
    }

    /// Brings everything up to `now`. Returns the containers that were started, in order.
    pub(crate) fn advance(&mut self, now: Millis) -> Vec<String> {
        let mut started = Vec::new();
        // Each round starts or ends at least one container, and a container ends at most once per round of time: a
        // container that runs for no time at all waits out a back-off before it can end again.
        loop {
            let ended = self.end_due(now);
            let began = self.start_due(now, &mut started);
            if !ended && !began {
                return started;
            }
        }
    }

    /// When something will happen by itself, if anything will.
    pub(crate) fn next(&self) -> Option<Millis> {
        let startable = self.startable();
        self.containers
            .iter()
            .enumerate()
            .filter_map(|(index, container)| match container.state {
                State::Running { ends, .. } => ends,
                State::Waiting { until } if startable.contains(&index) => until,
                State::Waiting { .. } | State::Ended(_) => None,
            })
            .min()
    }

    /// The pod is to stop: every container gets at most `after`, and none is started again.
    pub(crate) fn stop(&mut self, now: Millis, grace: Duration) {
        let after = self.behaviour.stop_after.map_or(grace, |after| after.min(grace));
        let limit = now.saturating_add(Millis::try_from(after.as_millis()).unwrap_or(Millis::MAX));
        self.stopping = true;
        for container in &mut self.containers {
            if let State::Running { ends, code, .. } = &mut container.state
                && ends.is_none_or(|ends| ends > limit)
            {
                (*ends, *code) = (Some(limit), TERMINATED);
            }
        }
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping
    }

    /// Whether nothing runs and nothing will.
    pub(crate) fn is_over(&self) -> bool {
        let quiet = !self.containers.iter().any(|one| matches!(one.state, State::Running { .. }));
        quiet && (self.stopping || matches!(self.phase(), Phase::Succeeded | Phase::Failed))
    }

    /// Whether every init container has done its part.
    pub(crate) fn is_initialized(&self) -> bool {
        self.containers.iter().all(|one| match one.role {
            Role::Init => matches!(one.state, State::Ended(Ended { code: 0, .. })),
            Role::Sidecar => one.has_started(),
            Role::Main => true,
        })
    }

    /// Whether every container that is to serve runs.
    pub(crate) fn is_ready(&self) -> bool {
        self.is_initialized()
            && self
                .containers
                .iter()
                .all(|one| one.role == Role::Init || matches!(one.state, State::Running { .. }))
    }

    pub(crate) fn phase(&self) -> Phase {
        let init_failed = self.containers.iter().any(|one| {
            one.role == Role::Init && matches!(one.state, State::Ended(Ended { code, .. }) if code != 0)
        });
        if init_failed {
            return Phase::Failed;
        }
        let mains = || self.containers.iter().filter(|one| one.role == Role::Main);
        let over = mains().all(|one| matches!(one.state, State::Ended(_)));
        if over {
            let well = mains().all(|one| matches!(one.state, State::Ended(Ended { code: 0, .. })));
            return if well { Phase::Succeeded } else { Phase::Failed };
        }
        if self.stopping && !self.containers.iter().any(|one| matches!(one.state, State::Running { .. })) {
            return Phase::Failed;
        }
        let all_started = self.is_initialized() && mains().all(ContainerRun::has_started);
        if all_started { Phase::Running } else { Phase::Pending }
    }

    fn end_due(&mut self, now: Millis) -> bool {
        let (policy, stopping) = (self.policy, self.stopping);
        let mut any = false;
        for container in &mut self.containers {
            let State::Running { started, ends: Some(finished), code } = container.state else { continue };
            if finished <= now {
                container.end(
                    Ended { started, finished, code },
                    restarts(policy, container.role, code) && !stopping,
                );
                any = true;
            }
        }
        if any && !self.stopping && matches!(self.phase(), Phase::Succeeded | Phase::Failed) {
            // Sidecars end with the containers they serve.
            self.stop(now, Duration::ZERO);
        }
        any
    }

    fn start_due(&mut self, now: Millis, started: &mut Vec<String>) -> bool {
        let due: Vec<usize> = self
            .startable()
            .into_iter()
            .filter(|index| {
                matches!(self.containers[*index].state, State::Waiting { until } if until.is_none_or(|at| at <= now))
            })
            .collect();
        for index in &due {
            let behaviour = &self.behaviour;
            let container = &mut self.containers[*index];
            let (ends, code) = match container.role {
                Role::Init => (Some(now), 0),
                Role::Sidecar => (None, 0),
                Role::Main => {
                    let run_for =
                        behaviour.run_for.map(|run| Millis::try_from(run.as_millis()).unwrap_or(Millis::MAX));
                    (run_for.map(|run| now.saturating_add(run)), behaviour.exit_code(container.restarts))
                }
            };
            container.state = State::Running { started: now, ends, code };
            started.push(container.name.clone());
        }
        !due.is_empty()
    }

    /// The waiting containers whose turn it is.
    fn startable(&self) -> Vec<usize> {
        if self.stopping {
            return Vec::new();
        }
        let done = |one: &ContainerRun| match one.role {
            Role::Init => matches!(one.state, State::Ended(Ended { code: 0, .. })),
            Role::Sidecar | Role::Main => one.has_started(),
        };
        let first_undone = self.containers.iter().position(|one| one.role != Role::Main && !done(one));
        let in_turn = |index: usize, one: &ContainerRun| match first_undone {
            Some(first) => index == first || (one.role == Role::Sidecar && one.has_started()),
            None => one.role != Role::Init,
        };
        let waiting = |one: &ContainerRun| matches!(one.state, State::Waiting { .. });
        self.containers
            .iter()
            .enumerate()
            .filter(|(index, one)| waiting(one) && in_turn(*index, one))
            .map(|(index, _)| index)
            .collect()
    }
}

impl ContainerRun {
    /// Whether it runs or ran.
    fn has_started(&self) -> bool {
        !matches!(self.state, State::Waiting { .. }) || self.last.is_some()
    }

    fn end(&mut self, ended: Ended, again: bool) {
        if !again {
            self.state = State::Ended(ended);
            return;
        }
        if ended.finished.saturating_sub(ended.started) >= FORGIVEN {
            self.backoff = 0;
        }
        self.state = State::Waiting { until: Some(ended.finished.saturating_add(self.backoff)) };
        self.backoff = (self.backoff * 2).clamp(BACKOFF, MAX_BACKOFF);
        self.last = Some(ended);
        self.restarts = self.restarts.saturating_add(1);
    }
}

fn restarts(policy: RestartPolicy, role: Role, code: i32) -> bool {
    match (role, policy) {
        (Role::Sidecar, _) => true,
        (Role::Init, RestartPolicy::Always | RestartPolicy::OnFailure) => code != 0,
        (Role::Main, RestartPolicy::Always) => true,
        (Role::Main, RestartPolicy::OnFailure) => code != 0,
        (Role::Init | Role::Main, RestartPolicy::Never) => false,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde_json::{Value, json};

    use super::*;

    fn run(spec: Value, annotations: &[(&str, &str)]) -> PodRun {
        let pod = Pod::read(&json!({ "metadata": { "name": "p", "uid": "u" }, "spec": spec })).unwrap();
        let annotations: BTreeMap<String, String> = annotations
            .iter()
            .map(|(name, value)| (format!("sim.trireme.dev/{name}"), (*value).to_owned()))
            .collect();
        PodRun::new(&pod, Behaviour::read(&annotations).unwrap(), 0)
    }

    fn one(policy: &str, annotations: &[(&str, &str)]) -> PodRun {
        run(json!({ "restartPolicy": policy, "containers": [{ "name": "c" }] }), annotations)
    }

    #[test]
    fn restart_policies() {
        for (policy, code, at_the_end, restarts) in [
            ("Never", "0", Phase::Succeeded, 0),
            ("Never", "1", Phase::Failed, 0),
            ("OnFailure", "0", Phase::Succeeded, 0),
            ("OnFailure", "1", Phase::Running, 2),
            ("OnFailure", "1,0", Phase::Succeeded, 1),
            ("Always", "0", Phase::Running, 2),
        ] {
            let mut pod = one(policy, &[("run-for", "5s"), ("exit-code", code)]);
            pod.advance(0);
            assert_eq!(pod.phase(), Phase::Running);
            pod.advance(5_000);
            pod.advance(10_000);
            assert_eq!((pod.phase(), pod.containers[0].restarts), (at_the_end, restarts), "{policy} {code}");
        }
    }

    #[test]
    fn the_pause_before_a_restart_doubles() {
        let mut pod = one("Always", &[("run-for", "0s"), ("exit-code", "1")]);
        let mut starts = Vec::new();
        let mut now = 0;
        while starts.len() < 9 {
            starts.extend(pod.advance(now).iter().map(|_| now / 1000));
            now = pod.next().unwrap();
        }
        assert_eq!(starts[..9], [0, 0, 10, 30, 70, 150, 310, 610, 910]);
    }

    #[test]
    fn init_containers_run_in_order_and_sidecars_stay() {
        let mut pod = run(
            json!({
                "restartPolicy": "Never",
                "initContainers": [{ "name": "i" }, { "name": "s", "restartPolicy": "Always" }],
                "containers": [{ "name": "a" }, { "name": "b" }],
            }),
            &[("run-for", "5s")],
        );
        assert!(!pod.is_initialized());
        assert_eq!(pod.advance(0), ["i", "s", "a", "b"]);
        assert!(pod.is_ready());
        assert_eq!(pod.next(), Some(5_000));
        pod.advance(5_000);
        assert_eq!(pod.phase(), Phase::Succeeded);
        assert!(pod.is_over(), "the sidecar ended too");
        assert_eq!(pod.next(), None);
    }

    #[test]
    fn a_pod_without_run_for_runs_until_it_is_stopped() {
        for (stop_after, grace, expected) in
            [(None, 30, 30_000), (Some("2s"), 30, 2_000), (Some("40s"), 30, 30_000), (None, 0, 0)]
        {
            let annotations: Vec<_> = stop_after.iter().map(|text| ("stop-after", *text)).collect();
            let mut pod = one("Always", &annotations);
            pod.advance(0);
            assert_eq!(pod.next(), None);
            pod.stop(1_000, Duration::from_secs(grace));
            assert_eq!(pod.next(), Some(1_000 + expected), "{stop_after:?}");
            pod.advance(1_000 + expected);
            assert!(pod.is_over());
            assert_eq!(pod.phase(), Phase::Failed);
        }
    }

    #[test]
    fn what_ends_before_the_grace_period_keeps_its_own_code() {
        let mut pod = one("Never", &[("run-for", "5s")]);
        pod.advance(0);
        pod.stop(4_000, Duration::from_secs(30));
        assert_eq!(pod.next(), Some(5_000));
        pod.advance(5_000);
        assert_eq!(pod.phase(), Phase::Succeeded);
    }

    #[test]
    fn a_pod_stopped_before_it_started_is_over() {
        let mut pod = one("Always", &[]);
        pod.stop(0, Duration::from_secs(30));
        assert!(pod.is_over());
        assert!(pod.advance(0).is_empty(), "nothing is started");
        assert_eq!(pod.phase(), Phase::Failed);
    }
}
