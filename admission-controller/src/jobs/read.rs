//! A job as admission sees it: its pod sets, whether it is suspended, runs or has ended.

use crds::names::kueue;
use crds::validation::Gates;
use crds::view::workload::ReclaimablePod;
use serde_json::{Map, Value, json};

use super::table::{Active, ChildSays, Finished, OnHold, PodSets, Stages};
use super::{JobKind, JobObject, components, declared, ended, head, submitter};
use crate::pods::{self, Member};

/// The API server's bound on `podSets` of a Workload.
pub const MAX_POD_SETS: usize = 18;

/// What admission needs to know of a job.
#[derive(Clone, Debug, PartialEq)]
pub struct JobView {
    /// Whether it is kept from having pods.
    pub suspended: bool,
    /// Whether it has running pods.
    pub active: bool,
    /// How it ended, if it has.
    pub finished: Option<Finish>,
    /// Why it will not run as it is written, in words, if it says so.
    pub on_hold: Option<String>,
    /// The LocalQueue it was submitted to.
    pub queue: Option<String>,
    /// The WorkloadPriorityClass it asks for.
    pub workload_priority_class: Option<String>,
    /// The PriorityClass of the job, or of the first of its templates that names one.
    pub pod_priority_class: Option<String>,
    /// Its pod sets, or why they cannot be made out.
    pub pod_sets: Result<Vec<JobPodSet>, String>,
    /// Pods that have ended and will not run again; `None` where its kind does not tell.
    pub reclaimable: Option<Vec<ReclaimablePod>>,
}

/// How a job ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finish {
    /// Whether it succeeded.
    pub succeeded: bool,
    /// What its own condition says.
    pub message: String,
}

/// One pod set of a job.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JobPodSet {
    /// Its name in the Workload.
    pub name: String,
    /// How many pods it has.
    pub count: i64,
    /// Where its pod template is, as a JSON pointer.
    pub template: String,
    /// The pod template, where it is not what is written there: where nothing is written, or where the kind's controller
    /// adds to it.
    pub given: Option<Value>,
    /// So few pods would do.
    pub min_count: Option<i64>,
}

impl JobPodSet {
    /// Its pod template.
    pub fn template_in<'a>(&'a self, object: &'a JobObject) -> Option<&'a Value> {
        self.given.as_ref().or_else(|| object.at(&self.template))
    }

    /// So few pods would do, where that counts (feature gate `PartialAdmission`).
    pub fn least(&self, gates: Gates) -> Option<i64> {
        self.min_count.filter(|_| gates.partial_admission)
    }
}

/// Reads a job.
pub fn read(kind: &JobKind, object: &JobObject) -> JobView {
    let pod_sets = pod_sets(kind, object);
    let class_in = |name: Option<&Value>| {
        name.and_then(Value::as_str).filter(|name| !name.is_empty()).map(str::to_owned)
    };
    let class_of = |template: Option<&Value>| class_in(template?.pointer("/spec/priorityClassName"));
    let of_sets = || pod_sets.iter().flatten().find_map(|set| class_of(set.template_in(object)));
    // Kinds that are managed through their pods have no pod sets here.
    let of_owner = || {
        let owner = pods::of_kind(kind.group, kind.kind)?;
        owner.templates.iter().find_map(|template| class_of(object.at(template)))
    };
    let of_job = kind.priority_class.iter().find_map(|pointer| class_in(object.at(pointer)));
    let pod_priority_class = of_job.or_else(of_sets).or_else(of_owner);
    let on_hold = on_hold(kind, object);
    let label = |name: &str| object.label(name).filter(|value| !value.is_empty()).map(str::to_owned);
    JobView {
        suspended: object.at(kind.suspend).and_then(Value::as_bool).unwrap_or(false),
        active: on_hold.is_none() && is_active(kind, object),
        finished: finish(kind, object),
        on_hold,
        queue: object.queue().map(str::to_owned),
        workload_priority_class: label(kueue::PRIORITY_CLASS),
        pod_priority_class,
        reclaimable: ended::reclaimable(kind, object),
        pod_sets,
    }
}

pub(super) fn is_active(kind: &JobKind, object: &JobObject) -> bool {
    let positive = |value: &Value| value.as_i64().is_some_and(|count| count > 0);
    match kind.active {
        Active::Count(at) => object.at(at).is_some_and(positive),
        Active::Says { at, value } => object.text(at) == value,
        Active::SaysNot { at, values } => {
            let said = object.text(at);
            !said.is_empty() && !values.contains(&said)
        }
        Active::Condition(kind) => condition(object, kind).is_some(),
        Active::Each { at, field } => match object.at(at) {
            Some(Value::Object(map)) => map.values().filter_map(|one| one.pointer(field)).any(positive),
            Some(Value::Array(list)) => list.iter().filter_map(|one| one.pointer(field)).any(positive),
            _ => false,
        },
    }
}

/// The condition of this type, if it is True.
fn condition<'a>(object: &'a JobObject, kind: &str) -> Option<&'a Value> {
    let conditions = object.at("/status/conditions")?.as_array()?;
    conditions.iter().find(|one| one["type"] == kind && one["status"] == "True")
}

fn finish(kind: &JobKind, object: &JobObject) -> Option<Finish> {
    match &kind.finished {
        Finished::Conditions(types) => types.iter().find_map(|(name, succeeded)| {
            let message = condition(object, name)?["message"].as_str().unwrap_or_default().to_owned();
            Some(Finish { succeeded: *succeeded, message })
        }),
        Finished::Says { at, ends, well, message, not_while } => {
            let succeeded = object.text(well.0) == well.1;
            let lingers = not_while.is_some_and(|kind| condition(object, kind).is_some());
            let ended = ends.contains(&object.text(at)) && (succeeded || !lingers);
            let said = || match (object.text(message), succeeded) {
                ("", true) => format!("the {} has succeeded", kind.kind),
                ("", false) => format!("the {} has failed", kind.kind),
                (said, _) => said.to_owned(),
            };
            ended.then(|| Finish { succeeded, message: said() })
        }
    }
}

fn on_hold(kind: &JobKind, object: &JobObject) -> Option<String> {
    let OnHold { at, value, message } = kind.on_hold.as_ref()?;
    (object.text(at) == *value).then(|| format!("its {} is {value}: {}", field(at), object.text(message)))
}

/// Where the job has pod templates, whatever else is wrong with it, as JSON pointers.
pub fn templates(kind: &JobKind, object: &JobObject) -> Vec<String> {
    let places: Vec<String> = match &kind.pod_sets {
        PodSets::Single { template, .. } => vec![(*template).to_owned()],
        PodSets::Roles { at, roles, template, .. } => {
            roles.iter().map(|role| format!("{at}/{role}{template}")).collect()
        }
        PodSets::Jobs { at, template, .. } => {
            let length = object.length(at);
            (0..length).map(|index| format!("{at}/{index}{template}")).collect()
        }
        PodSets::HeadAndGroups { head, at, template, submitter, .. } => {
            let length = object.length(at);
            let groups = (0..length).map(|index| format!("{at}/{index}{template}"));
            let submitter = submitter.iter().map(|one| one.template.to_owned());
            std::iter::once((*head).to_owned()).chain(groups).chain(submitter).collect()
        }
        PodSets::Declared(sets) => sets.iter().flat_map(|set| declared::places(set, object)).collect(),
        PodSets::Components { .. } => components::pod_sets(kind, object)
            .map_or_else(|_| Vec::new(), |sets| sets.into_iter().map(|set| set.template).collect()),
    };
    places.into_iter().filter(|place| object.at(place).is_some_and(Value::is_object)).collect()
}

pub(super) fn pod_sets(kind: &JobKind, object: &JobObject) -> Result<Vec<JobPodSet>, String> {
    if object.awaits_child(kind) {
        return Err(format!("what its controller makes of the {} is not there yet", kind.kind));
    }
    if !resizes(kind, object)
        && let Some((at, why)) = kind.refused.iter().find(|(at, _)| object.at(at) == Some(&Value::Bool(true)))
    {
        return Err(format!("{} is true, which is not supported: {why}", field(at)));
    }
    described(kind, object)
}

/// Whether numbers of pods may change: that is what slices are for.
fn resizes(kind: &JobKind, object: &JobObject) -> bool {
    kind.has_slices && object.annotation(kueue::ELASTIC_JOB) == "true"
}

/// Those that the object describes, be they supported or not.
pub(super) fn described(kind: &JobKind, object: &JobObject) -> Result<Vec<JobPodSet>, String> {
    let sets = match &kind.pod_sets {
        PodSets::Single { template, parallelism, completions, fewer } => vec![JobPodSet {
            name: kueue::DEFAULT_PODSET.to_owned(),
            count: parallel(object, parallelism, completions)?,
            template: (*template).to_owned(),
            min_count: fewer.and_then(|(least, _)| object.annotation(least).parse().ok()),
            given: None,
        }],
        PodSets::Roles { at, roles, template, replicas } => roles
            .iter()
            .filter(|role| object.at(&format!("{at}/{role}")).is_some_and(Value::is_object))
            .map(|role| {
                Ok(JobPodSet {
                    name: role.to_lowercase(),
                    count: count(object, &format!("{at}/{role}{replicas}"))?.unwrap_or(1),
                    template: format!("{at}/{role}{template}"),
                    ..JobPodSet::default()
                })
            })
            .collect::<Result<_, String>>()?,
        PodSets::Jobs { at, name, replicas, template, parallelism, completions } => {
            let length = object.length(at);
            (0..length.min(MAX_POD_SETS + 1))
                .map(|index| {
                    let here = |rest: &str| format!("{at}/{index}{rest}");
                    let pods = parallel(object, &here(parallelism), &here(completions))?;
                    let jobs = count(object, &here(replicas))?.unwrap_or(1);
                    Ok(JobPodSet {
                        name: object.text(&here(name)).to_owned(),
                        count: product(jobs, pods, &here(""))?,
                        template: here(template),
                        ..JobPodSet::default()
                    })
                })
                .collect::<Result<_, String>>()?
        }
        PodSets::Components { .. } => components::pod_sets(kind, object)?,
        PodSets::Declared(sets) => declared::pod_sets(sets, object)?,
        PodSets::HeadAndGroups { head, at, name, replicas, pods_each, template, submitter } => {
            let length = object.length(at);
            let cluster = at.rsplit_once('/').map_or("", |(cluster, _)| cluster);
            let is_scaled = resizes(kind, object)
                && object.at(&format!("{cluster}/enableInTreeAutoscaling")) == Some(&Value::Bool(true));
            let groups = (0..length.min(MAX_POD_SETS)).map(|index| {
                let here = |rest: &str| format!("{at}/{index}{rest}");
                // None is one to KubeRay.
                let pods = count(object, &here(pods_each))?.unwrap_or(1).max(1);
                let group = object.text(&here(name)).to_lowercase();
                let now = if is_scaled {
                    count(object, &format!("/child/groups/{}", escaped(&group)))?
                } else {
                    None
                };
                let replicas =
                    now.map_or_else(|| count(object, &here(replicas)), |now| Ok(Some(now)))?.unwrap_or(1);
                Ok(JobPodSet {
                    count: product(replicas, pods, &here(""))?,
                    name: group,
                    template: here(template),
                    ..JobPodSet::default()
                })
            });
            let mut head = one_pod("head", head);
            head.given = head::template(object, cluster, &head.template, submitter.as_ref());
            let submitter =
                submitter.as_ref().and_then(|one| submitter::pod_set(one, object, &head.template));
            let sets = std::iter::once(Ok(head)).chain(groups).chain(submitter.map(Ok));
            sets.collect::<Result<_, String>>()?
        }
    };
    check(kind, object, sets)
}

/// What the object says that its controller made of a job: all that is described there, or, of groups of pods, how many there are.
pub fn of_child(says: ChildSays, child: &JobObject) -> Value {
    if says == ChildSays::All {
        return child.spec.clone();
    }
    let groups = child.at("/spec/workerGroupSpecs").and_then(Value::as_array).into_iter().flatten();
    let count = |group: &Value| {
        let name = group["groupName"].as_str()?.to_lowercase();
        Some((name, group.get("replicas").filter(|count| !count.is_null())?.clone()))
    };
    let groups: Map<String, Value> = groups.filter_map(count).collect();
    json!({ "groups": groups, "generation": child.metadata.generation })
}

/// A part of a JSON pointer.
fn escaped(name: &str) -> String {
    name.replace('~', "~0").replace('/', "~1")
}

/// A pod set of one pod.
pub(super) fn one_pod(name: &str, template: &str) -> JobPodSet {
    JobPodSet { name: name.to_owned(), count: 1, template: template.to_owned(), ..JobPodSet::default() }
}

fn check(kind: &JobKind, object: &JobObject, sets: Vec<JobPodSet>) -> Result<Vec<JobPodSet>, String> {
    if sets.is_empty() {
        return Err(format!("the {} describes no pods; give it at least one replica spec", kind.kind));
    }
    if sets.len() > MAX_POD_SETS {
        return Err(format!(
            "the {} has more than {MAX_POD_SETS} kinds of pods, which a Workload cannot hold",
            kind.kind
        ));
    }
    for set in &sets {
        if !set.template_in(object).is_some_and(Value::is_object) {
            let field = field(&set.template);
            return Err(format!("{field} is missing: pod set {:?} has no pod template", set.name));
        }
    }
    Ok(sets)
}

/// `many` times `pods`, both of the entry at `pointer`.
pub(super) fn product(many: i64, pods: i64, pointer: &str) -> Result<i64, String> {
    many.checked_mul(pods).filter(|all| *all <= i64::from(i32::MAX)).ok_or_else(|| {
        format!("{}: {many} times {pods} pods are more than a Workload can count", field(pointer))
    })
}

/// Whether the pods of one set are made only when those of another run or have ended.
pub fn comes_in_stages(kind: &JobKind, object: &JobObject) -> bool {
    kind.stages.iter().any(|stages| match stages {
        Stages::Always => true,
        Stages::Says { at, value } => object.text(at) == *value,
        Stages::AnyHas { at, field } => {
            let mut entries = object.at(at).and_then(Value::as_array).into_iter().flatten();
            entries.any(|entry| {
                entry.pointer(field).and_then(Value::as_array).is_some_and(|list| !list.is_empty())
            })
        }
    })
}

/// Pods at once: `parallelism`, but no more than `completions`.
pub fn parallel(object: &JobObject, parallelism: &str, completions: &str) -> Result<i64, String> {
    let at_once = count(object, parallelism)?.unwrap_or(1);
    Ok(count(object, completions)?.map_or(at_once, |in_all| at_once.min(in_all)))
}

pub(super) fn count(object: &JobObject, pointer: &str) -> Result<Option<i64>, String> {
    match object.at(pointer) {
        None | Some(Value::Null) => Ok(None),
        Some(value) => {
            value.as_i64().filter(|count| (0..=i64::from(i32::MAX)).contains(count)).map(Some).ok_or_else(
                || format!("{} is {value}; it must be a whole number from 0 to {}", field(pointer), i32::MAX),
            )
        }
    }
}

/// A JSON pointer as the API server writes the path of a field: `spec.replicatedJobs[0].replicas`.
pub fn field(pointer: &str) -> String {
    let mut path = String::new();
    for token in pointer.split('/').skip(1) {
        if token.bytes().all(|byte| byte.is_ascii_digit()) {
            path.push_str(&format!("[{token}]"));
        } else {
            if !path.is_empty() {
                path.push('.');
            }
            path.push_str(token);
        }
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::jobs::TABLE;

    /// A number of pods that is not said is one, as the API servers of all kinds have it; one that is said to be none is none.
    #[test]
    fn no_number_is_one_and_none_is_none() {
        let template = json!({ "spec": { "containers": [{ "name": "c" }] } });
        let job = |parallelism: Value, completions: Value| json!({ "parallelism": parallelism, "completions": completions, "template": template });
        let workers = |replicas: Value| json!({ "pytorchReplicaSpecs": { "Worker": { "replicas": replicas, "template": template } } });
        let sets = |replicas: Value, parallelism: Value| {
            let spec = job(parallelism, Value::Null);
            json!({ "replicatedJobs": [{ "name": "w", "replicas": replicas, "template": { "spec": spec } }] })
        };
        let null = || Value::Null;
        for (kind, spec, wanted) in [
            ("Job", json!({ "template": template }), 1),
            ("Job", job(null(), null()), 1),
            ("Job", job(null(), json!(3)), 1),
            ("Job", job(json!(3), null()), 3),
            ("Job", job(json!(0), null()), 0),
            ("Job", job(json!(0), json!(3)), 0),
            ("Job", job(json!(3), json!(0)), 0),
            ("PyTorchJob", workers(null()), 1),
            ("PyTorchJob", workers(json!(0)), 0),
            ("JobSet", sets(null(), null()), 1),
            ("JobSet", sets(json!(0), json!(3)), 0),
            ("JobSet", sets(json!(3), json!(0)), 0),
        ] {
            let object: JobObject = serde_json::from_value(json!({ "spec": spec })).unwrap();
            let kind = TABLE.iter().find(|one| one.kind == kind).unwrap();
            let counts: Vec<i64> = pod_sets(kind, &object).unwrap().iter().map(|set| set.count).collect();
            assert_eq!(counts, [wanted], "{spec}");
        }
    }
}
