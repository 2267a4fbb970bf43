use crds::names::kueue;
use crds::view::workload::ReclaimablePod;
use serde_json::Value;

use super::table::{Active, PodSets, Stages};
use super::{JobKind, JobObject, ended};

/// The API server's bound on `podSets` of a Workload.
const MAX_POD_SETS: usize = 18;

/// What admission needs to know of a job.
#[derive(Clone, Debug, PartialEq)]
pub struct JobView {
    /// Whether it is kept from having pods.
    pub suspended: bool,
    /// Whether it has running pods.
    pub active: bool,
    /// How it ended, if it has.
    pub finished: Option<Finish>,
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
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobPodSet {
    /// Its name in the Workload.
    pub name: String,
    /// How many pods it has.
    pub count: i64,
    /// Where its pod template is, as a JSON pointer.
    pub template: String,
}

/// Reads a job.
pub fn read(kind: &JobKind, object: &JobObject) -> JobView {
    let pod_sets = pod_sets(kind, object);
    let class_at = |pointer: &str| {
        object.at(pointer).and_then(Value::as_str).filter(|name| !name.is_empty()).map(str::to_owned)
    };
    let pod_priority_class = kind.priority_class.iter().find_map(|pointer| class_at(pointer)).or_else(|| {
        let sets = pod_sets.as_ref().ok()?;
        sets.iter().find_map(|set| class_at(&format!("{}/spec/priorityClassName", set.template)))
    });
    let label = |name: &str| object.label(name).filter(|value| !value.is_empty()).map(str::to_owned);
    JobView {
        suspended: object.at(kind.suspend).and_then(Value::as_bool).unwrap_or(false),
        active: is_active(kind, object),
        finished: finish(kind, object),
        queue: object.queue().map(str::to_owned),
        workload_priority_class: label(kueue::PRIORITY_CLASS),
        pod_priority_class,
        reclaimable: ended::reclaimable(kind, object),
        pod_sets,
    }
}

fn is_active(kind: &JobKind, object: &JobObject) -> bool {
    let positive = |value: &Value| value.as_i64().is_some_and(|count| count > 0);
    match kind.active {
        Active::Count(at) => object.at(at).is_some_and(positive),
        Active::Says { at, value } => object.text(at) == value,
        Active::Each { at, field } => match object.at(at) {
            Some(Value::Object(map)) => map.values().filter_map(|one| one.pointer(field)).any(positive),
            Some(Value::Array(list)) => list.iter().filter_map(|one| one.pointer(field)).any(positive),
            _ => false,
        },
    }
}

fn finish(kind: &JobKind, object: &JobObject) -> Option<Finish> {
    let conditions = object.at("/status/conditions")?.as_array()?;
    let text = |condition: &Value, field: &str| {
        condition.get(field).and_then(Value::as_str).unwrap_or_default().to_owned()
    };
    kind.finished.iter().find_map(|(name, succeeded)| {
        conditions
            .iter()
            .find(|one| text(one, "type") == *name && text(one, "status") == "True")
            .map(|one| Finish { succeeded: *succeeded, message: text(one, "message") })
    })
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
        PodSets::HeadAndGroups { head, at, template, .. } => {
            let length = object.length(at);
            let groups = (0..length).map(|index| format!("{at}/{index}{template}"));
            std::iter::once((*head).to_owned()).chain(groups).collect()
        }
    };
    places.into_iter().filter(|place| object.at(place).is_some_and(Value::is_object)).collect()
}

fn pod_sets(kind: &JobKind, object: &JobObject) -> Result<Vec<JobPodSet>, String> {
    if let Some((at, why)) = kind.refused.iter().find(|(at, _)| object.at(at) == Some(&Value::Bool(true))) {
        return Err(format!("{} is true, which is not supported: {why}", field(at)));
    }
    let sets = match &kind.pod_sets {
        PodSets::Single { template, parallelism, completions } => vec![JobPodSet {
            name: kueue::DEFAULT_PODSET.to_owned(),
            count: parallel(object, parallelism, completions)?,
            template: (*template).to_owned(),
        }],
        PodSets::Roles { at, roles, template, replicas } => roles
            .iter()
            .filter(|role| object.at(&format!("{at}/{role}")).is_some_and(Value::is_object))
            .map(|role| {
                Ok(JobPodSet {
                    name: role.to_lowercase(),
                    count: count(object, &format!("{at}/{role}{replicas}"))?.unwrap_or(1),
                    template: format!("{at}/{role}{template}"),
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
                    })
                })
                .collect::<Result<_, String>>()?
        }
        PodSets::HeadAndGroups { head, at, name, replicas, pods_each, template } => {
            let length = object.length(at);
            let groups = (0..length.min(MAX_POD_SETS)).map(|index| {
                let here = |rest: &str| format!("{at}/{index}{rest}");
                let pods = count(object, &here(pods_each))?.unwrap_or(1);
                let replicas = count(object, &here(replicas))?.unwrap_or(1);
                Ok(JobPodSet {
                    name: object.text(&here(name)).to_owned(),
                    count: product(replicas, pods, &here(""))?,
                    template: here(template),
                })
            });
            let head = JobPodSet { name: "head".to_owned(), count: 1, template: (*head).to_owned() };
            std::iter::once(Ok(head)).chain(groups).collect::<Result<_, String>>()?
        }
    };
    check(kind, object, sets)
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
        if !object.at(&set.template).is_some_and(Value::is_object) {
            let field = field(&set.template);
            return Err(format!("{field} is missing: pod set {:?} has no pod template", set.name));
        }
    }
    Ok(sets)
}

/// `many` times `pods`, both of the entry at `pointer`.
fn product(many: i64, pods: i64, pointer: &str) -> Result<i64, String> {
    many.checked_mul(pods).filter(|all| *all <= i64::from(i32::MAX)).ok_or_else(|| {
        format!("{}: {many} times {pods} pods are more than a Workload can count", field(pointer))
    })
}

/// Whether the pods of one set are made only when those of another run or have ended.
pub fn comes_in_stages(kind: &JobKind, object: &JobObject) -> bool {
    kind.stages.iter().any(|stages| match stages {
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
pub(super) fn parallel(object: &JobObject, parallelism: &str, completions: &str) -> Result<i64, String> {
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
