//! What an outside observer knows: every object as last written, and for a while what it was before.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Deref;
use std::sync::Arc;

use cluster_sim::Object;
use serde_json::Value;

/// How long a program may act on what it knew before, in milliseconds: a paused leader wakes up within its lease (15 s),
/// and a request may be under way for as long again.
pub const GRACE: i64 = 30_000;

/// So often a program's watches fall silent in one disturbance, the same one over again if it comes to that.
pub const SILENT_WATCHES: u64 = 4;

/// How long a program may miss what watches tell that have fallen silent, in milliseconds: it takes 90 s to give one up.
pub const SILENCE: i64 = 90_000 * SILENT_WATCHES as i64;

/// A stored version of an object, shared with the cluster.
#[derive(Clone, Debug)]
pub struct Shared(pub Arc<Object>);

impl Deref for Shared {
    type Target = Value;

    fn deref(&self) -> &Value {
        self.0.value()
    }
}

/// One committed write.
#[derive(Clone, Debug)]
pub struct Write {
    /// When it was committed, in milliseconds of virtual time.
    pub at: i64,
    /// Who sent it: `<program>/<replica>`, or a part of Kubernetes.
    pub writer: String,
    /// What the request was.
    pub verb: cluster_sim::Verb,
    /// Whether the request named the uid or resourceVersion that it was about.
    pub precise: bool,
    /// `pods`, `workloads.kueue.x-k8s.io`, …
    pub resource: String,
    /// The object before; none when it was created.
    pub old: Option<Shared>,
    /// The object after; none when it was removed.
    pub new: Option<Shared>,
}

impl Write {
    /// A replica of the admission-controller makes an object of one, or changes it.
    #[cfg(test)]
    pub fn by_a_replica(at: i64, resource: &str, old: Option<Value>, new: Value) -> Self {
        let shared = |object| Shared(Arc::new(Object::new(object, 1)));
        Self {
            at,
            writer: "admission-controller/a".into(),
            verb: if old.is_some() { cluster_sim::Verb::Patch } else { cluster_sim::Verb::Create },
            precise: true,
            resource: resource.into(),
            old: old.map(shared),
            new: Some(shared(new)),
        }
    }

    /// The object after, or before it was removed.
    pub fn object(&self) -> &Value {
        self.new.as_deref().or(self.old.as_deref()).unwrap_or(&Value::Null)
    }

    /// Namespace and name.
    pub fn key(&self) -> Key {
        key(self.object())
    }

    /// Whether a user lets a job run that was suspended.
    fn is_start_by_hand(&self) -> bool {
        let Some((_, suspend)) = JOBS.iter().find(|(resource, _)| *resource == self.resource) else {
            return false;
        };
        let suspended = |job: &Shared| at(job, suspend) == Some(&Value::Bool(true));
        self.writer == "user"
            && self.old.as_ref().is_some_and(suspended)
            && self.new.as_ref().is_some_and(|new| !suspended(new))
    }

    /// Whether this changes the quota tree.
    fn reshapes(&self) -> bool {
        let spec = |object: &Option<Shared>| object.as_deref().and_then(|one| one.get("spec").cloned());
        matches!(self.resource.as_str(), CLUSTER_QUEUES | COHORTS) && spec(&self.old) != spec(&self.new)
    }
}

/// Namespace and name.
pub type Key = (String, String);

/// Namespace and name of an object.
pub fn key(object: &Value) -> Key {
    (text(object, "/metadata/namespace").to_owned(), text(object, "/metadata/name").to_owned())
}

/// What is at a JSON pointer. `Value::pointer` makes two new strings for each step, which is much of an episode's time.
pub fn at<'a>(object: &'a Value, pointer: &str) -> Option<&'a Value> {
    pointer.split('/').skip(1).try_fold(object, |value, step| match value {
        Value::Object(fields) if step.contains('~') => {
            fields.get(&step.replace("~1", "/").replace("~0", "~"))
        }
        Value::Object(fields) => fields.get(step),
        Value::Array(items) => items.get(step.parse::<usize>().ok()?),
        _ => None,
    })
}

/// The text at a JSON pointer, or nothing.
pub fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    at(object, pointer).and_then(Value::as_str).unwrap_or_default()
}

/// The uid of an object.
pub fn uid(object: &Value) -> &str {
    text(object, "/metadata/uid")
}

/// The items at a JSON pointer.
pub fn items<'a>(object: &'a Value, pointer: &str) -> impl Iterator<Item = &'a Value> {
    at(object, pointer).and_then(Value::as_array).into_iter().flatten()
}

/// A quantity in base units at a JSON pointer, for the resource of this name.
pub fn amount(resource: &str, value: Option<&Value>) -> Option<i64> {
    let text = match value? {
        Value::String(text) => text.clone(),
        Value::Number(number) => number.to_string(),
        _ => return None,
    };
    model::ResourceName::from(resource).amount(&text.parse().ok()?)
}

/// A condition of an object.
pub fn condition<'a>(object: &'a Value, kind: &str) -> Option<&'a Value> {
    items(object, "/status/conditions").find(|condition| condition["type"] == kind)
}

/// Whether a condition of an object is true.
pub fn holds(object: &Value, kind: &str) -> bool {
    condition(object, kind).is_some_and(|condition| condition["status"] == "True")
}

/// Where a pod is and how it is doing; the conditions of a Workload that are true, where it has quota, and why or why not. For
/// people.
pub fn summary(object: &Value) -> String {
    match text(object, "/kind") {
        "Pod" => return format!("on {:?} {}", text(object, "/spec/nodeName"), text(object, "/status/phase")),
        "Workload" => {}
        _ => return String::new(),
    }
    let conditions = items(object, "/status/conditions").map(|one| {
        let (kind, reason, message) = (text(one, "/type"), text(one, "/reason"), text(one, "/message"));
        match (one["status"] == "True", kind) {
            (true, _) => format!(" {kind}({reason}: {message})"),
            (false, "QuotaReserved") => format!(" waits({reason}: {message})"),
            (false, _) => String::new(),
        }
    });
    format!("in {:?}{}", text(object, "/status/admission/clusterQueue"), conditions.collect::<String>())
}

/// Whether a pod has ended.
pub fn is_over(pod: &Value) -> bool {
    matches!(text(pod, "/status/phase"), "Succeeded" | "Failed")
}

/// A version, with the time until which it held.
type Superseded = (i64, Shared);

/// Every object as last written, and what it was within [`GRACE`].
#[derive(Clone, Debug, Default)]
pub struct World {
    /// The time of the last write.
    pub now: i64,
    objects: BTreeMap<String, BTreeMap<Key, Shared>>,
    past: BTreeMap<(String, Key), Vec<Superseded>>,
    /// The Workloads that name an owner, by its uid.
    by_owner: BTreeMap<String, BTreeSet<Key>>,
    /// The uids of jobs that their users have started themselves.
    by_hand: BTreeSet<String>,
    /// When conditions of Workloads turned, by uid and type: what they say of it is by clocks that may be wrong.
    turned: BTreeMap<(String, String), i64>,
    /// The queues and cohorts as they were within [`GRACE`], and until when.
    shapes: VecDeque<(i64, Shape)>,
}

/// The objects that make the quota tree.
#[derive(Clone, Debug, Default)]
pub struct Shape {
    /// The ClusterQueues.
    pub queues: Vec<Shared>,
    /// The Cohorts.
    pub cohorts: Vec<Shared>,
}

impl World {
    /// A world in which these objects of these resources were just created.
    #[cfg(test)]
    pub fn holding<'a>(objects: impl IntoIterator<Item = (&'a str, Value)>) -> Self {
        let mut world = Self::default();
        for (resource, object) in objects {
            world.apply(&Write { writer: "user".into(), ..Write::by_a_replica(0, resource, None, object) });
        }
        world
    }

    /// Takes a committed write in.
    pub fn apply(&mut self, write: &Write) {
        self.now = write.at;
        let key = write.key();
        if write.reshapes() {
            self.shapes.push_back((write.at, self.shape()));
            while self.shapes.front().is_some_and(|(until, _)| *until < write.at - GRACE) {
                self.shapes.pop_front();
            }
        }
        if let Some(old) = &write.old {
            let versions = self.past.entry((write.resource.clone(), key.clone())).or_default();
            versions.retain(|(until, _)| *until >= write.at - GRACE);
            versions.push((write.at, old.clone()));
        }
        if write.resource == WORKLOADS {
            for owner in write.old.iter().flat_map(|old| owners(old)) {
                self.by_owner.entry(owner.to_owned()).or_default().remove(&key);
            }
            for owner in write.new.iter().flat_map(|new| owners(new)) {
                self.by_owner.entry(owner.to_owned()).or_default().insert(key.clone());
            }
            self.note_turns(write);
        }
        if write.is_start_by_hand() {
            self.by_hand.insert(uid(write.object()).to_owned());
        }
        let objects = self.objects.entry(write.resource.clone()).or_default();
        match &write.new {
            Some(new) => objects.insert(key, new.clone()),
            None => objects.remove(&key),
        };
    }

    fn note_turns(&mut self, write: &Write) {
        let Some(new) = &write.new else { return };
        let said = |one: &Value| (one["status"].clone(), one["lastTransitionTime"].clone());
        for turned in items(new, "/status/conditions") {
            let kind = text(turned, "/type");
            let before = write.old.as_ref().and_then(|old| condition(old, kind));
            if before.map(said) != Some(said(turned)) {
                self.turned.insert((uid(new).to_owned(), kind.to_owned()), write.at);
            }
        }
    }

    /// Since when a condition of a Workload is as it is.
    pub fn turned(&self, workload: &Value, kind: &str) -> Option<i64> {
        self.turned.get(&(uid(workload).to_owned(), kind.to_owned())).copied()
    }

    /// All objects of a resource.
    pub fn all(&self, resource: &str) -> impl Iterator<Item = &Shared> {
        self.objects.get(resource).into_iter().flat_map(BTreeMap::values)
    }

    /// One object.
    pub fn get(&self, resource: &str, namespace: &str, name: &str) -> Option<&Shared> {
        self.objects.get(resource)?.get(&(namespace.to_owned(), name.to_owned()))
    }

    /// The queues and cohorts as they are.
    pub fn shape(&self) -> Shape {
        let all = |resource| self.all(resource).cloned().collect();
        Shape { queues: all(CLUSTER_QUEUES), cohorts: all(COHORTS) }
    }

    /// The queues and cohorts as they are, and as they were within [`GRACE`].
    pub fn believable_shapes(&self) -> impl Iterator<Item = Shape> {
        let recent = self.shapes.iter().filter(|(until, _)| *until >= self.now - GRACE);
        std::iter::once(self.shape()).chain(recent.map(|(_, shape)| shape.clone()))
    }

    /// These resources as they are now, without their past.
    pub fn only(&self, resources: &[&str]) -> Self {
        let objects = self.objects.iter().filter(|(name, _)| resources.contains(&name.as_str()));
        let objects = objects.map(|(name, all)| (name.clone(), all.clone())).collect();
        let (by_owner, turned) = (self.by_owner.clone(), self.turned.clone());
        Self { now: self.now, objects, by_owner, turned, ..Self::default() }
    }

    /// Leaves an object out.
    pub fn forget(&mut self, resource: &str, key: &Key) {
        if let Some(objects) = self.objects.get_mut(resource) {
            objects.remove(key);
        }
    }

    /// The objects of a resource that are there, or were within [`GRACE`].
    pub fn keys_of_late(&self, resource: &str) -> BTreeSet<Key> {
        let recent = |past: &[Superseded]| past.iter().any(|(until, _)| *until >= self.now - GRACE);
        let past = self.past.iter().filter(|((name, _), past)| name == resource && recent(past));
        let past = past.map(|((_, key), _)| key.clone());
        self.objects.get(resource).into_iter().flat_map(|all| all.keys().cloned()).chain(past).collect()
    }

    /// Whether an object of this uid exists, or did within [`GRACE`].
    pub fn once_known(&self, resource: &str, wanted: &str) -> bool {
        self.versions_of(resource, wanted).next().is_some()
    }

    /// The object with this uid as it is, and as it was within [`GRACE`].
    pub fn versions_of<'a>(&'a self, resource: &'a str, wanted: &'a str) -> impl Iterator<Item = &'a Shared> {
        let past = self.past.iter().filter(move |((name, _), _)| name == resource).flat_map(|(_, past)| past);
        let recent = past.filter(|(until, _)| *until >= self.now - GRACE).map(|(_, one)| one);
        self.all(resource).chain(recent).filter(move |one| uid(one) == wanted)
    }

    /// An object as it is, and as it was within [`GRACE`]: what a program may reasonably have believed.
    pub fn believable(&self, resource: &str, namespace: &str, name: &str) -> impl Iterator<Item = &Shared> {
        self.within(GRACE, resource, namespace, name)
    }

    /// An object as it is, and as it was within so many milliseconds, [`GRACE`] at most.
    pub fn within(
        &self,
        ms: i64,
        resource: &str,
        namespace: &str,
        name: &str,
    ) -> impl Iterator<Item = &Shared> {
        let key = (namespace.to_owned(), name.to_owned());
        let past = self.past.get(&(resource.to_owned(), key)).into_iter().flatten();
        let recent = past.filter(move |(until, _)| *until >= self.now - ms).map(|(_, version)| version);
        self.get(resource, namespace, name).into_iter().chain(recent)
    }

    /// The Workload that stands for a pod: its own, or through its chain of controllers; none for a pod of no managed job.
    pub fn workload_of_pod(&self, pod: &Value) -> Option<&Shared> {
        if let Some(workload) = self.workload_of_owner(uid(pod)) {
            return Some(workload);
        }
        let mut owner = controller(pod)?;
        loop {
            if let Some(workload) = self.workload_of_owner(owner.2) {
                return Some(workload);
            }
            let next = self.get(resource_of(owner.0)?, text(pod, "/metadata/namespace"), owner.1)?;
            owner = controller(next)?;
        }
    }

    /// The Workload of the job with this uid: of several the one that stands for it.
    pub fn workload_of_owner(&self, uid: &str) -> Option<&Shared> {
        let mut all = self.workloads_of_owner(uid);
        let first = all.next()?;
        Some(all.fold(first, |best, one| if standing(one) > standing(best) { one } else { best }))
    }

    /// The Workloads that the object with this uid owns.
    pub fn workloads_of_owner(&self, uid: &str) -> impl Iterator<Item = &Shared> {
        let keys = self.by_owner.get(uid).into_iter().flatten();
        keys.filter_map(move |(namespace, name)| self.get(WORKLOADS, namespace, name))
    }

    /// The job that a Workload describes, or the pods, those that are there.
    pub fn jobs_of<'a>(&'a self, workload: &'a Value) -> impl Iterator<Item = &'a Shared> {
        let owners: BTreeSet<&str> = owners(workload).collect();
        let kinds = JOBS.iter().map(|(resource, _)| *resource).chain(["pods"]);
        kinds.flat_map(|resource| self.all(resource)).filter(move |job| owners.contains(uid(job)))
    }

    /// The job at the end of a pod's chain of controllers.
    pub fn top_job(&self, pod: &Value) -> Option<&Shared> {
        let namespace = text(pod, "/metadata/namespace");
        let (kind, name, _) = controller(pod)?;
        let mut job = self.get(resource_of(kind)?, namespace, name)?;
        while let Some((kind, name, _)) = controller(job) {
            job = self.get(resource_of(kind)?, namespace, name)?;
        }
        Some(job)
    }

    /// Whether a pod's user has started its job himself, be it that it was suspended again, and the pod bears no mark of admission.
    pub fn runs_by_hand(&self, pod: &Value) -> bool {
        text(pod, POD_SET).is_empty() && self.top_job(pod).is_some_and(|job| self.by_hand.contains(uid(job)))
    }

    /// What decisions are made of, one object a line: for people who read the log of an episode.
    pub fn inventory(&self) -> impl Iterator<Item = String> {
        let kinds = [WORKLOADS, CLUSTER_QUEUES, COHORTS, FLAVORS, TOPOLOGIES, "nodes", "pods"];
        kinds.into_iter().flat_map(move |kind| {
            let lasting = move |one: &&Shared| !is_over(one) && !holds(one, "Finished");
            let line = move |one: &Shared| {
                let (namespace, name) = key(one);
                format!("at the end: {kind} {namespace}/{name} {} {}", one["spec"], one["status"])
            };
            self.all(kind).filter(lasting).map(line)
        })
    }

    /// The pods bound to a node that have not ended.
    pub fn pods_on<'a>(&'a self, node: &'a str) -> impl Iterator<Item = &'a Shared> {
        self.all("pods").filter(move |pod| text(pod, "/spec/nodeName") == node && !is_over(pod))
    }
}

/// The programs, as the first part of who writes.
pub const PROGRAMS: [&str; 3] = ["admission-controller", "gang-scheduler", "node-agent"];

/// The resource of Workloads.
pub const WORKLOADS: &str = "workloads.kueue.x-k8s.io";
/// The resource of ClusterQueues.
pub const CLUSTER_QUEUES: &str = "clusterqueues.kueue.x-k8s.io";
/// The resource of Cohorts.
pub const COHORTS: &str = "cohorts.kueue.x-k8s.io";
/// The resource of ResourceFlavors.
pub const FLAVORS: &str = "resourceflavors.kueue.x-k8s.io";
/// The resource of AdmissionChecks.
pub const CHECKS: &str = "admissionchecks.kueue.x-k8s.io";
/// The resource of requests for nodes.
pub const REQUESTS: &str = "provisioningrequests.autoscaling.x-k8s.io";
/// The resource of Topologies.
pub const TOPOLOGIES: &str = "topologies.kueue.x-k8s.io";
/// The resource of LocalQueues.
pub const LOCAL_QUEUES: &str = "localqueues.kueue.x-k8s.io";
/// The resource of plans.
pub const PLACEMENTS: &str = "gangplacements.trireme.dev";
/// The resource of Volcano's PodGroups.
pub const POD_GROUPS: &str = "podgroups.scheduling.volcano.sh";
/// The label of a released pod that names its pod set (Kueue's).
pub const POD_SET: &str = "/metadata/labels/kueue.x-k8s.io~1podset";

/// The resources of the managed job kinds, and where their suspend field is.
pub const JOBS: [(&str, &str); 3] = [
    ("jobs.batch", "/spec/suspend"),
    ("jobsets.jobset.x-k8s.io", "/spec/suspend"),
    ("pytorchjobs.kubeflow.org", "/spec/runPolicy/suspend"),
];

fn resource_of(kind: &str) -> Option<&'static str> {
    match kind {
        "Job" => Some("jobs.batch"),
        "JobSet" => Some("jobsets.jobset.x-k8s.io"),
        "PyTorchJob" => Some("pytorchjobs.kubeflow.org"),
        _ => None,
    }
}

/// What decides which Workload of a job its pods belong to, the larger the better: of the slices of an elastic job that are not over
/// the newest that is admitted.
fn standing(workload: &Value) -> (bool, bool, &str, &str) {
    let created = text(workload, "/metadata/creationTimestamp");
    (!holds(workload, "Finished"), holds(workload, "Admitted"), created, uid(workload))
}

/// The uids of an object's owners.
fn owners(object: &Value) -> impl Iterator<Item = &str> {
    items(object, "/metadata/ownerReferences").filter_map(|owner| owner["uid"].as_str())
}

/// Kind, name and uid of an object's controller.
fn controller(object: &Value) -> Option<(&str, &str, &str)> {
    let owner = items(object, "/metadata/ownerReferences").find(|owner| owner["controller"] == true)?;
    Some((owner["kind"].as_str()?, owner["name"].as_str()?, owner["uid"].as_str()?))
}
