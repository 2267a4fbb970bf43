//! How what goes wrong is done to the cluster, and put right again.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::Duration;

use cluster_sim::faults::{Aim, Call, Fault, Moment, Verdict, WatchFault};
use cluster_sim::{GroupResource, Verb};
use jiff::SignedDuration;
use kit::Tasks;
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::checks;
use super::episode::{Episode, lock, workloads};
use super::trouble::{ApiTrouble, Trouble, WatchTrouble};
use super::world::{PROGRAMS, SILENT_WATCHES, at};
use crate::objects;
use crate::stack::{NAMESPACE, Program, Replica};

/// Beside Workloads, what falls silent with them.
const JOBS_AND_PODS: [(&str, &str); 4] =
    [("batch", "jobs"), ("jobset.x-k8s.io", "jobsets"), ("kubeflow.org", "pytorchjobs"), ("", "pods")];

/// A page of a long list takes so long.
const PAGE_TAKES: Duration = Duration::from_millis(50);

/// Whoever has to list anew does so after a second or so: from then on, every so often, what the lists began with is forgotten.
const FORGOTTEN: std::ops::RangeInclusive<u32> = 8..=20;
const FORGOTTEN_EVERY: Duration = Duration::from_millis(100);

/// A chance, in parts per million.
const ALWAYS: u32 = 1_000_000;

/// The aftermath of a trouble.
#[derive(Debug)]
pub(super) enum Later {
    Restart(Replica),
    JobControllersReturn,
    Thaw(Replica),
    ClockRight(Replica),
    HistoryForgotten,
    GpuRecovers { node: usize, gpu: usize },
    NodeReady(usize),
    NodeDeleted(usize),
    NodeBoots(usize),
    Taint { node: usize, on: bool },
}

/// Which programs are to be killed at which of their writes.
pub(super) struct Crashes {
    pub(super) plans: Mutex<BTreeMap<Program, CrashPlan>>,
    /// Tells the episode whom to kill, by identity.
    pub(super) killed: mpsc::UnboundedSender<(String, Duration)>,
}

pub(super) struct CrashPlan {
    writes_left: u32,
    moment: Moment,
    away: Duration,
}

impl Episode {
    pub(super) fn trouble(&mut self, trouble: Trouble) {
        self.note(&trouble);
        let now = Instant::now();
        match trouble {
            Trouble::Api { lasts, .. } | Trouble::Webhooks { lasts, .. } => {
                self.api.push((now + lasts, trouble));
                self.aim();
            }
            Trouble::LongLists { lasts, .. } => {
                self.api.push((now + lasts, trouble));
                self.aim();
                self.trouble(Trouble::Watches(WatchTrouble::Expired));
                let times = FORGOTTEN.map(|times| now + FORGOTTEN_EVERY * times);
                self.later.extend(times.map(|at| (at, Later::HistoryForgotten)));
            }
            Trouble::JobControllersAway { lasts } => {
                self.stack.cluster.controllers().freeze();
                self.later.push((now + lasts, Later::JobControllersReturn));
            }
            Trouble::AskedToStop { program, away } => {
                if let Some(replica) = self.leader(program) {
                    self.stack.ask_to_stop(replica);
                    self.later.push((now + away, Later::Restart(replica)));
                }
            }
            Trouble::ClockSet { program, ahead, lasts } => {
                if let Some(replica) = self.leader(program) {
                    self.set_clock(replica, SignedDuration::from_secs(ahead));
                    self.later.push((now + lasts, Later::ClockRight(replica)));
                }
            }
            Trouble::Watches(trouble) => {
                let fault = match trouble {
                    WatchTrouble::Closed => WatchFault::Close,
                    WatchTrouble::Expired => WatchFault::Expire,
                    WatchTrouble::Late(late) | WatchTrouble::LateWorkloads(late) => WatchFault::Delay(late),
                    WatchTrouble::Twice => WatchFault::Duplicate,
                    WatchTrouble::Silent => WatchFault::Silence,
                };
                if trouble == WatchTrouble::Expired {
                    self.stack.cluster.compact();
                }
                let aim = match trouble {
                    WatchTrouble::LateWorkloads(_) => Aim::default().on(workloads()),
                    WatchTrouble::Silent => {
                        JOBS_AND_PODS.iter().fold(Aim::default().on(workloads()), |aim, (group, name)| {
                            aim.on(GroupResource::new(group, name))
                        })
                    }
                    _ => Aim::default(),
                };
                for program in PROGRAMS {
                    self.stack.cluster.faults().add_watch(
                        aim.clone().by(program),
                        ALWAYS,
                        SILENT_WATCHES,
                        fault,
                    );
                }
            }
            Trouble::Crash { program, after_writes, applied, away } => {
                let moment = if applied { Moment::After } else { Moment::Before };
                let plan = CrashPlan { writes_left: after_writes, moment, away };
                lock(&self.crashes.plans).insert(program, plan);
            }
            Trouble::Pause { program, lasts } => {
                if let Some(replica) = self.leader(program)
                    && let Some(tasks) = self.stack.tasks_of(replica)
                {
                    tasks.freeze();
                    self.later.push((now + lasts, Later::Thaw(replica)));
                }
            }
            Trouble::KubeletRestart { node } => self.stack.machines[node].restart_kubelet(),
            Trouble::GpuLoss { node, gpu, lasts } => {
                let machine = &self.stack.machines[node];
                machine.break_gpu(gpu);
                self.ill
                    .extend(machine.uuid(gpu).map(|uuid| (uuid, self.stack.cluster.clock().unix_millis())));
                self.later.push((now + lasts, Later::GpuRecovers { node, gpu }));
            }
            Trouble::Taint { node, lasts } => {
                self.later.push((now, Later::Taint { node, on: true }));
                self.later.push((now + lasts, Later::Taint { node, on: false }));
            }
            Trouble::NodeGone { node, lasts } => {
                self.stack.machines[node].kubelet().stop();
                self.later.push((now, Later::NodeDeleted(node)));
                self.later.push((now + lasts, Later::NodeBoots(node)));
            }
            Trouble::NodeNotReady { node, lasts } => {
                self.stack.machines[node].set_ready(false);
                self.later.push((now + lasts, Later::NodeReady(node)));
            }
        }
    }

    fn set_clock(&self, replica: Replica, ahead: SignedDuration) {
        if let Some(clock) = self.stack.clock_of(replica) {
            clock.set_ahead(ahead);
        }
    }

    fn leader(&self, program: Program) -> Option<Replica> {
        (0..2).map(|index| Replica { program, index }).find(|one| self.leads(*one))
    }

    fn leads(&self, replica: Replica) -> bool {
        let leases = cluster_sim::GroupResource::new("coordination.k8s.io", "leases");
        let store = self.stack.cluster.store("observer");
        let lease = store.get(&leases, crate::stack::NAMESPACE, replica.program.name());
        let holder = lease.and_then(|lease| {
            let value = lease.value();
            at(value, "/spec/holderIdentity").and_then(|holder| holder.as_str().map(str::to_owned))
        });
        holder.is_some_and(|holder| self.stack.replica_of(&holder) == Some(replica))
    }

    pub(super) async fn aftermath(&mut self, now: Instant) {
        let before = self.api.len();
        self.api.retain(|(until, _)| *until > now);
        if self.api.len() != before {
            self.aim();
        }
        let (due, later): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.later).into_iter().partition(|(at, _)| *at <= now);
        self.later = later;
        for (_, what) in due {
            self.recover(what).await;
        }
    }

    pub(super) async fn recover(&mut self, what: Later) {
        self.note(&what);
        match what {
            // Who was asked to stop and has not ended by now is killed, as the kubelet does.
            Later::Restart(replica) => {
                if self.stack.tasks_of(replica).is_none_or(Tasks::is_stopping) {
                    self.stack.kill(replica);
                    self.stack.start_replica(replica);
                }
            }
            Later::JobControllersReturn => self.stack.cluster.controllers().thaw(),
            Later::Thaw(replica) => {
                if let Some(tasks) = self.stack.tasks_of(replica) {
                    tasks.thaw();
                }
            }
            Later::HistoryForgotten => self.stack.cluster.compact(),
            Later::ClockRight(replica) => self.set_clock(replica, SignedDuration::ZERO),
            Later::GpuRecovers { node, gpu } => {
                let machine = &self.stack.machines[node];
                machine.mend_gpu(gpu);
                if let Some(uuid) = machine.uuid(gpu) {
                    self.ill.remove(&uuid);
                }
            }
            Later::NodeDeleted(node) => {
                let name = self.stack.machines[node].name();
                let node =
                    serde_json::json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": name } });
                let _ = objects::delete(&self.user, &node).await;
            }
            Later::NodeBoots(node) => self.stack.machines[node].boots(),
            Later::NodeReady(node) => self.stack.machines[node].set_ready(true),
            Later::Taint { node, on } => {
                let taint = serde_json::json!({ "key": "fuzz", "effect": "NoSchedule" });
                let taints = if on { vec![taint] } else { vec![] };
                let node = serde_json::json!({
                    "apiVersion": "v1", "kind": "Node", "metadata": { "name": self.stack.machines[node].name() },
                });
                let _ =
                    objects::patch(&self.user, &node, &serde_json::json!({ "spec": { "taints": taints } }))
                        .await;
            }
        }
    }

    pub(super) fn kill(&mut self, identity: &str, away: Duration) {
        if let Some(replica) = self.stack.replica_of(identity) {
            self.stack.kill(replica);
            self.later.push((Instant::now() + away, Later::Restart(replica)));
        }
    }

    /// Sets the faults that hold now, and the hook that crashes programs.
    pub(super) fn aim(&self) {
        let faults = self.stack.cluster.faults();
        faults.clear();
        for (_, trouble) in &self.api {
            let (kind, permille) = match trouble {
                Trouble::Api { kind, permille, .. } => (kind, permille),
                Trouble::Webhooks { fault, .. } => {
                    let service = Program::AdmissionController.name();
                    faults.add_webhook(NAMESPACE, service, ALWAYS, u64::MAX, *fault);
                    continue;
                }
                Trouble::LongLists { page, .. } => {
                    for program in PROGRAMS {
                        let lists = Aim { verbs: vec![Verb::List], ..Aim::default() }.by(program);
                        faults.add(lists, ALWAYS, u64::MAX, Fault::ShortPages(*page, PAGE_TAKES));
                    }
                    continue;
                }
                _ => continue,
            };
            let reads = || Aim { verbs: vec![Verb::Get, Verb::List, Verb::Watch], ..Aim::default() };
            let (aim, fault) = match kind {
                ApiTrouble::Refused(429) => (Aim::writes(), Fault::TooManyRequests(1)),
                ApiTrouble::Refused(status) => (Aim::writes(), Fault::ServerError(*status)),
                ApiTrouble::Slow => (Aim::writes(), Fault::Latency(Duration::from_secs(3))),
                ApiTrouble::SlowAdmissions => {
                    let aim = Aim { verbs: vec![Verb::Patch], ..Aim::default() };
                    (aim.on(workloads()), Fault::Latency(Duration::from_secs(3)))
                }
                ApiTrouble::Lost => (Aim::writes(), Fault::LostRequest),
                ApiTrouble::LostAnswer => (Aim::writes(), Fault::LostResponse),
                ApiTrouble::TimedOut => (Aim::writes(), Fault::TimeoutAfterWrite),
                ApiTrouble::Conflict => (Aim::writes(), Fault::Conflict),
                ApiTrouble::Unreadable => (reads(), Fault::ServerError(503)),
                ApiTrouble::StaleLists => (reads(), Fault::StaleList(50)),
            };
            for program in PROGRAMS.into_iter().chain([checks::WRITER]) {
                faults.add(aim.clone().by(program), permille * 1000, u64::MAX, fault.clone());
            }
        }
        let crashes = self.crashes.clone();
        faults.set_hook(move |call, moment, _| crashes.strike(call, moment));
    }
}

impl Crashes {
    /// Counts a write of a program that is to crash, and hangs the one it crashes at.
    fn strike(&self, call: &Call, moment: Moment) -> Verdict {
        let mut plans = lock(&self.plans);
        let Some(program) = plans.keys().copied().find(|program| writes_as(*program, &call.writer)) else {
            return Verdict::Proceed;
        };
        let Some(plan) = plans.get_mut(&program).filter(|plan| plan.moment == moment) else {
            return Verdict::Proceed;
        };
        if plan.writes_left > 0 {
            plan.writes_left -= 1;
            return Verdict::Proceed;
        }
        let away = plan.away;
        plans.remove(&program);
        let _ = self.killed.send((call.writer.to_string(), away));
        Verdict::Hang
    }
}

fn writes_as(program: Program, writer: &str) -> bool {
    match program {
        Program::NodeAgent(node) => writer.starts_with(&format!("node-agent/node-{node}.")),
        program => writer.split('/').next() == Some(program.name()),
    }
}
