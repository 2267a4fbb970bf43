//! One episode's world and story, drawn from a seed.
//!
//! Every seed draws its own mix of features ("swarm testing"): an episode that uses few of them goes deeper into those.

use std::collections::BTreeMap;
use std::time::Duration;

use admission_controller::config::{AdmissionFairSharingConfig, Configuration, WorkloadRetention};
use fastrand::Rng;
use model::duration::GoDuration;
use serde_json::{Value, json};

use super::elastic;
use super::estate::{self, Estate};
use super::fickle;
use super::manifests as make;
use super::meddlers::{MEDDLERS, Meddling};
use super::trouble::{self, Trouble};
use super::{injector, outage, prebuilt, rush};

/// The last virtual instant at which anything disturbs the episode; what comes after is for settling down.
pub const CALM_AFTER: Duration = Duration::from_secs(20 * 60);
/// The virtual length of an episode.
pub const LENGTH: Duration = Duration::from_secs(30 * 60);

/// When a user looks after the pods that he has submitted as a group.
const LOOKS_AFTER: Duration = Duration::from_secs(6 * 60);

/// Tells what is drawn of retention from what else is drawn of the seed.
const RETENTION: u64 = 0x7265_7465;

/// A world and what happens in it.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// The machines at the start.
    pub nodes: Vec<Node>,
    /// admission-controller's configuration file.
    pub admission: Configuration,
    /// Queues, flavors, priority classes and namespaces, applied before anything else.
    pub setup: Vec<Value>,
    /// What users and administrators do, by time.
    pub story: Vec<(Duration, Act)>,
    /// What goes wrong.
    pub trouble: Vec<(Duration, Trouble)>,
    /// Whether anybody answers admission checks.
    pub checks: bool,
}

/// A machine with GPUs.
#[derive(Clone, Debug)]
pub struct Node {
    /// Its name.
    pub name: String,
    /// The name of its fake-nvml profile.
    pub profile: &'static str,
    /// How many GPUs that profile has.
    pub gpus: i64,
    /// Labels of its Node object.
    pub labels: BTreeMap<String, String>,
}

/// Something a user or an administrator does.
#[derive(Clone, Debug)]
pub enum Act {
    /// Creates or changes an object.
    Apply(Value),
    /// Deletes an object, given by the manifest that made it.
    Delete(Value),
    /// Deletes an object and at once creates another of the same name.
    Replace(Value),
    /// Changes part of an object by a merge patch.
    Patch {
        /// The manifest that made it.
        object: Value,
        /// The merge patch.
        patch: Value,
    },
    /// Makes the Workload that a job names, with its pods as the API server has them; not where there is no such job.
    Describe {
        /// The manifest that made the job.
        job: Value,
        /// The Workload, whose only pod set has no template yet.
        workload: Value,
    },
    /// Deletes one of the pods that are there, as a drain or an impatient user would.
    DeletePod {
        /// Index into them, in the order of their names; taken modulo their number.
        index: usize,
    },
    /// Puts a finalizer onto some of the pods that are there, one in so many: they stay when they are deleted.
    HoldPods {
        /// One in so many, in the order of their names.
        one_in: usize,
    },
    /// Takes those finalizers away.
    LetPodsGo,
    /// Does something to one of the Workloads that are there.
    Meddle {
        /// Index into them, in the order of their names; taken modulo their number.
        index: usize,
        /// What.
        how: Meddling,
    },
    /// The controller of an admission check stops answering, or goes on.
    CheckSleeps {
        /// The check's name.
        check: String,
        /// Whether it stops.
        asleep: bool,
    },
    /// Another controller puts a condition of its own on every Workload.
    ForeignCondition,
}

/// Which features an episode uses.
pub(super) struct Swarm {
    preemption: bool,
    borrowing: bool,
    turns: bool,
    estate: bool,
    unmanaged: bool,
    deletions: bool,
    edits: bool,
    nonsense: bool,
    pub(super) api_trouble: bool,
    pub(super) crashes: bool,
    pub(super) pauses: bool,
    pub(super) hardware: bool,
}

impl Swarm {
    fn draw(rng: &mut Rng) -> Self {
        let mut often = |percent: u32| rng.u32(..100) < percent;
        Self {
            preemption: often(60),
            borrowing: often(60),
            unmanaged: often(50),
            deletions: often(40),
            edits: often(30),
            nonsense: often(30),
            api_trouble: often(50),
            crashes: often(50),
            pauses: often(25),
            hardware: often(40),
            turns: often(30),
            estate: often(50),
        }
    }
}

impl Scenario {
    /// The scenario of a seed: the same for the same seed, always.
    pub fn from_seed(seed: u64) -> Self {
        let rng = &mut Rng::with_seed(seed);
        let swarm = Swarm::draw(rng);
        let mut nodes = nodes(rng);
        let estate = swarm.estate.then(|| Estate::draw(rng, &mut nodes));
        let mut setup = make::namespaces(&["team-a", "team-b"]);
        setup.extend(
            [("low", 10), ("mid", 100), ("high", 1000)].map(|(name, value)| make::priority(name, value)),
        );
        let queues = match &estate {
            Some(estate) => {
                setup.extend(estate.setup());
                estate.queues.clone()
            }
            None => {
                let queues = queues(rng, &swarm, nodes.iter().map(|node| node.gpus).sum());
                setup.push(make::flavor("gpu"));
                for queue in &queues {
                    setup.push(queue.cluster_queue.clone());
                    setup.extend(queue.local_queues.iter().cloned());
                }
                queues
            }
        };
        let mut story = story(rng, &swarm, &queues, &nodes, estate.as_ref());
        let mut trouble = trouble::draw(rng, &swarm, &nodes);
        for chapter in
            [rush::draw(seed, &queues, nodes.len()), outage::draw(seed, &queues), injector::draw(seed)]
        {
            story.extend(chapter.story);
            trouble.extend(chapter.trouble);
        }
        // Whose places are whose while one slice takes over from another is more than the rules know.
        if estate.as_ref().is_none_or(|estate| !estate.traits.topology) {
            story.extend(elastic::JOBS.draw(seed, &queues));
        }
        let retention = retention(seed);
        // A Workload that a job names is never deleted while it may be kept for ever: what has had its time is not judged.
        if retention.after_finished.is_none() {
            story.extend(prebuilt::JOBS.draw(seed, &queues));
        }
        story.extend(MEDDLERS.draw(seed, &queues));
        story.extend(fickle::USERS.draw(seed, &queues));
        story.sort_by_key(|(at, _)| *at);
        trouble.sort_by_key(|(at, _)| *at);
        let mut admission = Configuration {
            admission_fair_sharing: (swarm.turns && estate.is_none()).then(|| AdmissionFairSharingConfig {
                usage_half_life_time: GoDuration::from_secs(300),
                usage_sampling_interval: GoDuration::from_secs(60),
                resource_weights: Default::default(),
            }),
            ..Configuration::default()
        };
        if let Some(estate) = &estate {
            estate.configure(rng, &mut admission);
        }
        admission.object_retention_policies.workloads = retention;
        let checks = estate.is_some_and(|estate| estate.traits.checks);
        Self { nodes, admission, setup, story, trouble, checks }
    }
}

/// How long what has ended is kept; in most episodes for ever.
fn retention(seed: u64) -> WorkloadRetention {
    let rng = &mut Rng::with_seed(seed ^ RETENTION);
    let time = |rng: &mut Rng| (rng.u8(..4) == 0).then(|| GoDuration::from_secs(rng.u64(0..=300)));
    WorkloadRetention { after_finished: time(rng), after_deactivated_by_kueue: time(rng) }
}

fn nodes(rng: &mut Rng) -> Vec<Node> {
    (0..rng.usize(3..=8))
        .map(|index| {
            let (profile, gpus) = [("8xA100", 8), ("4xL40S", 4)][usize::from(rng.u8(..4) == 0)];
            Node { name: format!("node-{index}"), profile, gpus, labels: BTreeMap::new() }
        })
        .collect()
}

/// A ClusterQueue with the LocalQueues that lead to it.
#[derive(Clone, Debug)]
pub(super) struct Queue {
    pub(super) name: String,
    /// Of the LocalQueues.
    pub(super) namespace: &'static str,
    /// GPUs of its first flavor that are its own.
    pub(super) nominal: i64,
    pub(super) cluster_queue: Value,
    pub(super) local_queues: Vec<Value>,
}

fn queues(rng: &mut Rng, swarm: &Swarm, gpus: i64) -> Vec<Queue> {
    let count = rng.i64(1..=4);
    let cohort = swarm.borrowing.then_some("pool");
    (0..count)
        .map(|index| {
            // Together the queues own about what the hardware has: sometimes less, sometimes more.
            let nominal = (gpus / count + rng.i64(-2..=2)).max(1);
            let name = format!("queue-{index}");
            let namespace = ["team-a", "team-b"][usize::try_from(index % 2).unwrap_or(0)];
            let preemption = if swarm.preemption {
                let within = ["Never", "LowerPriority", "LowerOrNewerEqualPriority"][rng.usize(..3)];
                let reclaim = if cohort.is_some() {
                    ["Never", "LowerPriority", "Any"][rng.usize(..3)]
                } else {
                    "Never"
                };
                json!({ "withinClusterQueue": within, "reclaimWithinCohort": reclaim })
            } else {
                json!({})
            };
            let limit = (cohort.is_some() && rng.bool()).then(|| rng.i64(0..=gpus / 2));
            let strategy = if rng.u8(..4) == 0 { "StrictFIFO" } else { "BestEffortFIFO" };
            let mut cluster_queue = make::cluster_queue(&name, cohort, nominal, limit, strategy, &preemption);
            let mut local_queues = vec![make::local_queue(namespace, &name, &name)];
            if swarm.turns {
                cluster_queue["spec"]["admissionScope"] =
                    json!({ "admissionMode": "UsageBasedAdmissionFairSharing" });
                local_queues.push(make::local_queue(namespace, &second(&name), &name));
            }
            Queue { name, namespace, nominal, cluster_queue, local_queues }
        })
        .collect()
}

/// The second LocalQueue of a ClusterQueue.
fn second(cluster_queue: &str) -> String {
    format!("{cluster_queue}-b")
}

fn story(
    rng: &mut Rng,
    swarm: &Swarm,
    queues: &[Queue],
    nodes: &[Node],
    estate: Option<&Estate>,
) -> Vec<(Duration, Act)> {
    let mut story = Vec::new();
    for index in 0..rng.usize(5..=40) {
        let at = instant(rng, CALM_AFTER.mul_f64(0.7));
        let queue = &queues[rng.usize(..queues.len())];
        let manifest = if swarm.unmanaged && rng.u8(..5) == 0 {
            unmanaged(rng, index, queue.namespace, nodes)
        } else if estate.is_some_and(|estate| estate.traits.pods) && rng.u8(..4) == 0 {
            estate::pods(rng, index, queue)
        } else {
            let mut job = managed(rng, index, queue);
            if let Some(estate) = estate {
                estate::dress(rng, estate, &mut job);
            }
            vec![job]
        };
        if swarm.edits
            && let Some(patch) = scaled(rng, &manifest[0])
        {
            let later = at + instant(rng, Duration::from_secs(180));
            story.push((later, Act::Patch { object: manifest[0].clone(), patch }));
        }
        if swarm.deletions && rng.u8(..5) == 0 {
            let later = at + instant(rng, Duration::from_secs(180));
            for object in &manifest {
                let replace = object["kind"] != "Pod" && object["kind"] != "PodGroup" && rng.bool();
                story.push((
                    later,
                    if replace { Act::Replace(object.clone()) } else { Act::Delete(object.clone()) },
                ));
            }
        }
        // A user looks after every other group: what has gone of it is made anew.
        let again = at + LOOKS_AFTER;
        if index % 2 == 0 && estate::is_group(&manifest) && again < CALM_AFTER {
            story.extend(manifest.iter().map(|pod| (again, Act::Apply(pod.clone()))));
        }
        story.extend(manifest.into_iter().map(|object| (at, Act::Apply(object))));
    }
    if swarm.deletions {
        for _ in 0..rng.usize(1..=4) {
            story.push((instant(rng, CALM_AFTER), Act::DeletePod { index: rng.usize(..1000) }));
        }
    }
    if swarm.edits {
        for _ in 0..rng.usize(1..=4) {
            let queue = &queues[rng.usize(..queues.len())];
            story.push((instant(rng, CALM_AFTER), edit(rng, queue)));
        }
    }
    if let Some(estate) = estate {
        story.extend(estate::churn(rng, estate));
    }
    for _ in 0..rng.usize(..4) {
        story.push((instant(rng, CALM_AFTER), Act::ForeignCondition));
    }
    if swarm.nonsense {
        for index in 0..rng.usize(1..=4) {
            story.push((instant(rng, CALM_AFTER), Act::Apply(nonsense(rng, index))));
        }
    }
    story
}

fn managed(rng: &mut Rng, index: usize, queue: &Queue) -> Value {
    let shape = make::Shape {
        pods: rng.i64(1..=6),
        gpus: [0, 1, 1, 2, 2, 4, 8][rng.usize(..7)],
        cpu: rng.i64(1..=8),
        // Some outlast the episode, so that its end is not an empty cluster.
        run_for: if rng.u8(..8) == 0 { LENGTH * 2 } else { Duration::from_secs(rng.u64(10..=400)) },
        fails: rng.u8(..20) == 0,
    };
    let priority = [None, Some("low"), Some("mid"), Some("high")][rng.usize(..4)];
    // Where LocalQueues take turns, every other job comes from the second.
    let local_queue =
        if queue.local_queues.len() > 1 && index % 2 == 1 { second(&queue.name) } else { queue.name.clone() };
    let labels = make::queue_labels(&local_queue, priority);
    let name = format!("job-{index}");
    match rng.u8(..3) {
        0 => make::batch_job(&name, queue.namespace, &labels, &shape),
        1 => make::job_set(&name, queue.namespace, &labels, &shape),
        _ => make::pytorch_job(&name, queue.namespace, &labels, &shape),
    }
}

/// Pods of no queue: a single one, one that somebody else has bound, or a Volcano PodGroup with its members.
fn unmanaged(rng: &mut Rng, index: usize, namespace: &str, nodes: &[Node]) -> Vec<Value> {
    let shape = make::Shape {
        pods: rng.i64(2..=4),
        gpus: rng.i64(0..=2),
        cpu: rng.i64(1..=4),
        run_for: Duration::from_secs(rng.u64(10..=200)),
        fails: false,
    };
    let single = || make::pod(&format!("pod-{index}"), namespace, None, &shape);
    match rng.u8(..4) {
        0 => return vec![single()],
        1 => return vec![make::bound_by_another(single(), &nodes[rng.usize(..nodes.len())].name)],
        _ => {}
    }
    let group = format!("group-{index}");
    let mut manifests = vec![make::pod_group(&group, namespace, rng.i64(1..=shape.pods))];
    manifests.extend(
        (0..shape.pods)
            .map(|member| make::pod(&format!("{group}-{member}"), namespace, Some(&group), &shape)),
    );
    manifests
}

fn edit(rng: &mut Rng, queue: &Queue) -> Act {
    let patch = if rng.u8(..4) == 0 {
        let policy = ["None", "Hold", "HoldAndDrain"][rng.usize(..3)];
        json!({ "spec": { "stopPolicy": policy } })
    } else {
        let nominal = (queue.nominal + rng.i64(-3..=3)).max(0);
        let mut groups = queue.cluster_queue["spec"]["resourceGroups"].clone();
        groups[0]["flavors"][0]["resources"][0]["nominalQuota"] = json!(nominal.to_string());
        json!({ "spec": { "resourceGroups": groups } })
    };
    Act::Patch { object: queue.cluster_queue.clone(), patch }
}

/// Now and then a PyTorchJob gets more or fewer workers than it was submitted with.
fn scaled(rng: &mut Rng, job: &Value) -> Option<Value> {
    let workers = job.pointer("/spec/pytorchReplicaSpecs/Worker/replicas")?.as_i64()?;
    let scaled = (workers + rng.i64(-2..=2)).max(1);
    let patch = json!({ "spec": { "pytorchReplicaSpecs": { "Worker": { "replicas": scaled } } } });
    (rng.u8(..4) == 0).then_some(patch)
}

/// What no sane user would submit. It must harm nobody else.
fn nonsense(rng: &mut Rng, index: usize) -> Value {
    let shape =
        |pods, gpus| make::Shape { pods, gpus, cpu: 1, run_for: Duration::from_secs(30), fails: false };
    let name = format!("nonsense-{index}");
    match rng.u8(..5) {
        0 => make::pytorch_job(&name, "team-a", &make::queue_labels("no-such-queue", None), &shape(2, 1)),
        1 => make::batch_job(&name, "team-a", &make::queue_labels("queue-0", None), &shape(1, 1_000_000)),
        2 => make::pod_group(&name, "team-a", i64::from(i32::MAX)),
        3 => make::pod(&name, "team-a", Some("no-such-group"), &shape(1, 1)),
        _ => make::batch_job(
            &name,
            "team-a",
            &make::queue_labels("queue-0", Some("no-such-class")),
            &shape(1, 1),
        ),
    }
}

/// A part of an episode, drawn apart from everything else.
#[derive(Debug, Default)]
pub(super) struct Chapter {
    /// What users and administrators do.
    pub(super) story: Vec<(Duration, Act)>,
    /// What goes wrong.
    pub(super) trouble: Vec<(Duration, Trouble)>,
}

/// Something that few users do, drawn apart from everything else, so that it can change without changing that.
pub(super) struct Sideline {
    /// Tells what it draws from what others draw from the same seed.
    pub(super) salt: u64,
    /// One in so many episodes has any.
    pub(super) one_in: u8,
    /// What becomes of one of them, by its number.
    pub(super) one: fn(&mut Rng, usize, &Queue) -> Vec<(Duration, Act)>,
}

impl Sideline {
    /// What such users do, by time.
    fn draw(&self, seed: u64, queues: &[Queue]) -> Vec<(Duration, Act)> {
        let rng = &mut Rng::with_seed(seed ^ self.salt);
        let mut story = Vec::new();
        let count = if rng.u8(..self.one_in) == 0 { rng.usize(1..=4) } else { 0 };
        for index in 0..count {
            let queue = &queues[rng.usize(..queues.len())];
            story.extend((self.one)(rng, index, queue));
        }
        story
    }
}

/// A moment before this one.
pub(super) fn instant(rng: &mut Rng, before: Duration) -> Duration {
    Duration::from_millis(rng.u64(..u64::try_from(before.as_millis()).unwrap_or(u64::MAX)))
}
