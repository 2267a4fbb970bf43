//! What an admission adds to a job's templates, and what is taken from them again when it stops.

use std::collections::BTreeMap;

use crds::names::{kueue, trireme};
use crds::reasons::workload as tokens;
use crds::view::flavor::ResourceFlavor;
use crds::view::workload::{AdmissionCheckState, PodSetUpdate, PodTemplate, Workload};
use model::node::Toleration;
use model::selector::Labels;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::added::{self, Addition};
use super::table::{Added, PodSets};
use super::{JobKind, JobObject, JobPodSet, is_true, merge_diff};
use crate::pods::Member;
use crate::slices;

/// The longest value of a label.
const MAX_LABEL: usize = 63;

/// What an admission adds contradicts the job, or itself: the job can never start as it was admitted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Conflict {
    /// Two want different values of one label, annotation or node selector.
    #[error("pod set {pod_set:?} has the {field} {key}={there}, but {source_of_it} wants {key}={wanted}")]
    Differs {
        /// `nodeSelector`, `label` or `annotation`.
        field: &'static str,
        /// Of what.
        key: Box<str>,
        /// Of which pod set.
        pod_set: Box<str>,
        /// What it is.
        there: Box<str>,
        /// Who wants it to be something else.
        source_of_it: Box<str>,
        /// What that is.
        wanted: Box<str>,
    },
    /// What a check wants to add cannot be read.
    #[error("what AdmissionCheck {check} adds to the pods cannot be read: {why}")]
    Unreadable {
        /// The check.
        check: String,
        /// Why.
        why: String,
    },
}

/// What decides besides an admission about what pods get with it.
#[derive(Clone, Copy, Debug)]
pub struct Terms<'a> {
    /// The ResourceFlavors, by name.
    pub flavors: &'a BTreeMap<String, ResourceFlavor>,
    /// Whether pods are labelled with the queues they came through (feature gate `AssignQueueLabelsForPods`).
    pub names_queues: bool,
    /// Whether the job's pods come behind the gate of elastic jobs, and find somebody there who lifts it.
    pub elastic: bool,
}

/// The merge patch that starts an admitted job: unsuspended, with each pod set's flavors as node selectors and
/// tolerations, with what its admission checks add (`podSetUpdates`), and with marks that tell whose its pods are. It is added to
/// the templates as they are now, whatever the Workload has: they may have been edited since. One that an earlier admission changed
/// is made from the Workload, which has it as it was when it was described.
///
/// # Errors
/// See [`Conflict`].
pub fn start(
    kind: &JobKind,
    job: &JobObject,
    pod_sets: &[JobPodSet],
    workload: &Workload,
    terms: Terms<'_>,
) -> Result<Option<Value>, Conflict> {
    let before = json!({ "spec": job.spec });
    let mut spec = before.clone();
    match kind.added {
        Added::Templates => start_templates(&mut spec, kind, job, pod_sets, workload, terms)?,
        Added::PodSetInfos => {
            added::pod_set_infos(&mut spec, &all_additions(pod_sets, workload, terms)?);
        }
        Added::RuntimePatches => {
            added::runtime_patches(&mut spec, &all_additions(pod_sets, workload, terms)?);
            // They may be changed while it is suspended only.
            if let Some(patch) = merge_diff(&before, &spec) {
                return Ok(Some(patch));
            }
        }
    }
    set(&mut spec, kind.suspend, json!(false));
    Ok(merge_diff(&before, &spec))
}

fn all_additions(
    pod_sets: &[JobPodSet],
    workload: &Workload,
    terms: Terms<'_>,
) -> Result<Vec<Addition>, Conflict> {
    let addition = |pod_set: &JobPodSet| {
        let written = template_of(workload, &pod_set.name);
        let wanted = written.map(|template| template.spec.node_selector.clone()).unwrap_or_default();
        let asks = asks_for_topology(workload, &pod_set.name);
        let own = Fields { selector: wanted.clone(), ..Fields::default() };
        let mut fields = additions(workload, &pod_set.name, terms, own, asks)?;
        fields.selector.retain(|key, _| !wanted.contains_key(key));
        let placed = is_placed(workload, &pod_set.name);
        Ok(Addition {
            gates: if placed { json!([{ "name": kueue::TOPOLOGY_GATE }]) } else { Value::Null },
            name: pod_set.name.clone(),
            template: pod_set.template.clone(),
            labels: json!(fields.labels),
            annotations: json!(fields.annotations),
            selector: json!(fields.selector),
            tolerations: json!(fields.tolerations),
        })
    };
    pod_sets.iter().map(addition).collect()
}

fn start_templates(
    spec: &mut Value,
    kind: &JobKind,
    job: &JobObject,
    pod_sets: &[JobPodSet],
    workload: &Workload,
    terms: Terms<'_>,
) -> Result<(), Conflict> {
    for pod_set in pod_sets {
        let Some(template) = template_of(workload, &pod_set.name) else { continue };
        if let (None, Some(given)) = (spec.pointer(&pod_set.template), &pod_set.given) {
            set(spec, &pod_set.template, given.clone());
        }
        let described = || Fields::of(template, kind, job, pod_set);
        let mut fields = Fields::now(job, pod_set).unwrap_or_else(described);
        fields.admit(workload, &pod_set.name, terms, asks_for_topology(workload, &pod_set.name))?;
        if terms.elastic && slices::is_slice(workload) {
            let chain = slices::chain(workload).to_owned();
            fields.annotations.insert(kueue::WORKLOAD_SLICE_NAME.to_owned(), chain);
            add_gate(spec, &pod_set.template, kueue::ELASTIC_GATE);
        }
        rewrite(spec, &pod_set.template, &fields);
        // Where each of its pods goes is told when they are there.
        if is_placed(workload, &pod_set.name) {
            add_gate(spec, &pod_set.template, kueue::TOPOLOGY_GATE);
        }
        if let Some(granted) = granted(workload, &pod_set.name).filter(|_| pod_set.min_count.is_some()) {
            set_count(spec, kind, job, granted);
        }
    }
    Ok(())
}

/// How many pods of a set were admitted.
pub fn granted(workload: &Workload, pod_set: &str) -> Option<i64> {
    let admission = workload.status.admission.as_ref()?;
    admission.pod_set_assignments.iter().find(|one| one.name == pod_set)?.count
}

/// Makes it a job of so many pods, where it accepts fewer than it asks for.
fn set_count(spec: &mut Value, kind: &JobKind, job: &JobObject, count: i64) {
    let PodSets::Single { parallelism, completions, fewer: Some((_, follows)), .. } = &kind.pod_sets else {
        return;
    };
    set(spec, parallelism, json!(count));
    if is_true(job.annotation(follows)) == Some(true) {
        set(spec, completions, json!(count));
    }
}

/// What an admission adds to the pods of a set that select nodes so: its marks, and what its flavors and its checks change.
/// `asks`: whether these pods ask for places of a topology.
///
/// # Errors
/// See [`Conflict`].
pub fn additions(
    workload: &Workload,
    pod_set: &str,
    terms: Terms<'_>,
    own: Fields,
    asks: bool,
) -> Result<Fields, Conflict> {
    let mut fields = own;
    fields.admit(workload, pod_set, terms, asks)?;
    Ok(fields)
}

/// The labels of an admitted pod: its pod set, and the queues it came through. A queue whose name is no label's value is left
/// out; Kueue leaves out ClusterQueues with a dot in their name, too.
fn labels(workload: &Workload, pod_set: &str, names_queues: bool) -> Labels {
    let mut labels = Labels::from([(kueue::PODSET.to_owned(), pod_set.to_owned())]);
    if !names_queues {
        return labels;
    }
    let local = workload.spec.queue_name.as_ref();
    if let Some(queue) = local.filter(|name| name.len() <= MAX_LABEL) {
        labels.insert(kueue::LOCAL_QUEUE_NAME.to_owned(), queue.clone());
    }
    let queue = workload.status.admission.as_ref().map(|admission| &admission.cluster_queue);
    if let Some(queue) = queue.filter(|name| name.len() <= MAX_LABEL && !name.contains('.')) {
        labels.insert(kueue::CLUSTER_QUEUE_NAME.to_owned(), queue.clone());
    }
    labels
}

/// The annotations of an admitted pod: its Workload, and, where it is placed and does not ask for it, that any place will do.
fn annotations(workload: &Workload, pod_set: &str, asks: bool) -> BTreeMap<String, String> {
    let name = workload.metadata.name.clone().map(|name| (kueue::WORKLOAD.to_owned(), name));
    let mut annotations: BTreeMap<String, String> = name.into_iter().chain(version_mark(workload)).collect();
    if is_placed(workload, pod_set) && !asks {
        annotations.insert(kueue::PODSET_UNCONSTRAINED_TOPOLOGY.to_owned(), "true".to_owned());
    }
    annotations
}

/// The annotation that tells a scheduler which admission a pod stands on: an older version of its Workload, or another of that
/// name, may have granted another number of pods.
fn version_mark(workload: &Workload) -> Option<(String, String)> {
    let version = workload.metadata.resource_version.clone()?;
    Some((trireme::WORKLOAD_VERSION.to_owned(), version))
}

/// What a check wants pods to get.
fn updates_of(check: &AdmissionCheckState) -> Result<Vec<PodSetUpdate>, Conflict> {
    let read = |update: &Value| {
        PodSetUpdate::deserialize(update)
            .map_err(|error| Conflict::Unreadable { check: check.name.clone(), why: error.to_string() })
    };
    check.pod_set_updates.iter().map(read).collect()
}

/// What an admission may change of a pod template.
#[derive(Debug, Default)]
pub struct Fields {
    /// Node selector.
    pub selector: Labels,
    /// Tolerations.
    pub tolerations: Vec<Toleration>,
    /// Labels.
    pub labels: Labels,
    /// Annotations.
    pub annotations: BTreeMap<String, String>,
}

impl Fields {
    /// As the job has them; `None` where an earlier admission changed them, or where they cannot be read.
    fn now(job: &JobObject, pod_set: &JobPodSet) -> Option<Self> {
        let template = pod_set.template_in(job).filter(|_| !is_marked(job, pod_set))?;
        let PodTemplate { metadata, spec } = PodTemplate::deserialize(template).ok()?;
        Some(Self {
            selector: spec.node_selector,
            tolerations: spec.tolerations,
            labels: metadata.labels,
            annotations: metadata.annotations,
        })
    }

    /// As the user wrote them: as the Workload has them. Labels that the kind's own controller writes stay as the job has
    /// them, since they may be what it selects its pods by; not every Workload has them.
    fn of(template: &PodTemplate, kind: &JobKind, job: &JobObject, pod_set: &JobPodSet) -> Self {
        let mut labels = template.metadata.labels.clone();
        let now = job.at(&format!("{}/metadata/labels", pod_set.template));
        for (key, _) in kind.own_labels {
            match now.and_then(|now| now.get(*key)?.as_str()) {
                Some(value) => labels.insert((*key).to_owned(), value.to_owned()),
                None => labels.remove(*key),
            };
        }
        Self {
            selector: template.spec.node_selector.clone(),
            tolerations: template.spec.tolerations.clone(),
            labels,
            annotations: template.metadata.annotations.clone(),
        }
    }

    /// With the marks of an admission, and with what the flavors of a pod set and the checks of its workload add.
    fn admit(
        &mut self,
        workload: &Workload,
        pod_set: &str,
        terms: Terms<'_>,
        asks: bool,
    ) -> Result<(), Conflict> {
        self.labels.extend(labels(workload, pod_set, terms.names_queues));
        self.annotations.extend(annotations(workload, pod_set, asks));
        // Flavors of several resources may know one label by several values: the last has its way, as in Kueue, where it is any.
        let mut of_flavors = Labels::new();
        for flavor in flavors_of(workload, pod_set).filter_map(|name| terms.flavors.get(name)) {
            of_flavors.extend(flavor.spec.node_labels.clone());
            self.tolerate(&flavor.spec.tolerations);
        }
        self.select(&of_flavors, pod_set, "one of its flavors")?;
        for check in &workload.status.admission_checks {
            let source = format!("AdmissionCheck {}", check.name);
            // Of several for one pod set the first counts, as in Kueue.
            if let Some(update) = updates_of(check)?.iter().find(|update| update.name == pod_set) {
                self.select(&update.node_selector, pod_set, &source)?;
                self.tolerate(&update.tolerations);
                add("label", pod_set, &source, &update.labels, &mut self.labels)?;
                add("annotation", pod_set, &source, &update.annotations, &mut self.annotations)?;
            }
        }
        Ok(())
    }

    fn select(&mut self, labels: &Labels, pod_set: &str, source: &str) -> Result<(), Conflict> {
        add("nodeSelector", pod_set, source, labels, &mut self.selector)
    }

    fn tolerate(&mut self, more: &[Toleration]) {
        for toleration in more {
            if !self.tolerations.iter().any(|one| one.is_like(toleration)) {
                self.tolerations.push(toleration.clone());
            }
        }
    }
}

/// Whether the job runs on the quota of its Workload, or did until that was evicted or deleted. A slice that takes over from another has
/// its pods before it is admitted.
pub fn has_begun(kind: &JobKind, job: &JobObject, workload: &Workload) -> bool {
    let has_pods = workload.holds(tokens::ADMITTED) || slices::is_slice(workload);
    let admitted = workload.holds(tokens::QUOTA_RESERVED) && has_pods;
    let is_taken = workload.holds(tokens::EVICTED) || workload.metadata.deletion_timestamp.is_some();
    let suspended = job.at(kind.suspend).and_then(Value::as_bool).unwrap_or(false);
    admitted && (!suspended || is_taken) && !workload.holds(tokens::FINISHED)
}

/// The merge patch that stops a job, with its templates as the user wrote them where the kind allows it at once.
pub fn stop(
    kind: &JobKind,
    job: &JobObject,
    pod_sets: &[JobPodSet],
    workload: Option<&Workload>,
) -> Option<Value> {
    let mut spec = json!({ "spec": job.spec });
    set(&mut spec, kind.suspend, json!(true));
    if let Some(workload) = workload.filter(|_| kind.restores_at_stop) {
        give_back(&mut spec, kind, job, pod_sets, workload);
    }
    merge_diff(&json!({ "spec": job.spec }), &spec)
}

/// The merge patch that gives a stopped job its templates back as the user wrote them, where an admission changed them.
pub fn restore(
    kind: &JobKind,
    job: &JobObject,
    pod_sets: &[JobPodSet],
    workload: &Workload,
) -> Option<Value> {
    let mut spec = json!({ "spec": job.spec });
    give_back(&mut spec, kind, job, pod_sets, workload);
    merge_diff(&json!({ "spec": job.spec }), &spec)
}

/// `spec` of a job with its templates as the user wrote them, whatever an admission changed.
pub fn as_written(kind: &JobKind, job: &JobObject, pod_sets: &[JobPodSet], workload: &Workload) -> Value {
    let mut root = json!({ "spec": job.spec });
    give_back(&mut root, kind, job, pod_sets, workload);
    root["spec"].take()
}

/// Whether the pod set's template is as an admission made it: it carries the label that [`start`] sets.
pub fn is_marked(job: &JobObject, pod_set: &JobPodSet) -> bool {
    let labels = job.at(&format!("{}/metadata/labels", pod_set.template));
    labels.is_some_and(|labels| labels.get(kueue::PODSET).is_some())
}

/// Whether the pod set's template is as an admission of this Workload made it: it names it.
pub fn is_marked_by(job: &JobObject, pod_set: &JobPodSet, workload: &Workload) -> bool {
    let annotations = job.at(&format!("{}/metadata/annotations", pod_set.template));
    let named = annotations.and_then(|all| all.get(kueue::WORKLOAD)).and_then(Value::as_str);
    named.is_some() && named == workload.metadata.name.as_deref()
}

fn give_back(spec: &mut Value, kind: &JobKind, job: &JobObject, pod_sets: &[JobPodSet], workload: &Workload) {
    match kind.added {
        Added::Templates => {}
        Added::PodSetInfos => return added::clear_pod_set_infos(spec),
        Added::RuntimePatches => return added::clear_runtime_patches(spec),
    }
    // Without the mark of an admission, which other versions of Kueue did not set, a template may be as its user edited it since: unless
    // the job ran meanwhile, as Kueue has it for every job that it stops (`RestorePodSetsInfo`).
    let has_begun = has_begun(kind, job, workload);
    let is_changed = |set: &&JobPodSet| is_marked(job, set) || (has_begun && job.at(&set.template).is_some());
    for pod_set in pod_sets.iter().filter(is_changed) {
        let Some(template) = template_of(workload, &pod_set.name) else { continue };
        rewrite(spec, &pod_set.template, &Fields::of(template, kind, job, pod_set));
        ungate(spec, pod_set);
        let written = workload.spec.pod_sets.iter().find(|one| one.name == pod_set.name);
        if let Some(count) = written.and_then(|one| one.count).filter(|_| pod_set.min_count.is_some()) {
            set_count(spec, kind, job, count);
        }
    }
}

/// Puts a gate into a pod template, unless it is there.
pub fn add_gate(root: &mut Value, template: &str, name: &str) {
    let pointer = format!("{template}/spec/schedulingGates");
    let mut gates = list(root, &pointer);
    if !gates.iter().any(|one| one["name"] == name) {
        gates.push(json!({ "name": name }));
        set(root, &pointer, json!(gates));
    }
}

/// Whether each pod of a set was given a domain of a topology.
pub fn is_placed(workload: &Workload, pod_set: &str) -> bool {
    let mut sets = workload.status.admission.iter().flat_map(|admission| &admission.pod_set_assignments);
    sets.any(|held| held.name == pod_set && held.topology_assignment.is_some())
}

/// Takes the gate of pods that are placed by topology away.
fn ungate(root: &mut Value, pod_set: &JobPodSet) {
    let pointer = format!("{}/spec/schedulingGates", pod_set.template);
    let mut gates = list(root, &pointer);
    let before = gates.len();
    gates.retain(|one| one["name"] != kueue::TOPOLOGY_GATE);
    if gates.len() == before {
        return;
    }
    if gates.is_empty() {
        remove(root, &pointer);
    } else {
        set(root, &pointer, json!(gates));
    }
}

fn asks_for_topology(workload: &Workload, pod_set: &str) -> bool {
    let set = workload.spec.pod_sets.iter().find(|one| one.name == pod_set);
    set.and_then(|one| one.topology_request.as_ref()).is_some_and(|request| {
        request.required.is_some() || request.preferred.is_some() || request.unconstrained.is_some()
    })
}

fn list(root: &Value, pointer: &str) -> Vec<Value> {
    root.pointer(pointer).and_then(Value::as_array).cloned().unwrap_or_default()
}

/// A flavor that the Workload was admitted to and that does not exist: nobody knows what to add for it.
pub fn missing_flavor(workload: &Workload, flavors: &BTreeMap<String, ResourceFlavor>) -> Option<String> {
    let assignments = workload.status.admission.iter().flat_map(|admission| &admission.pod_set_assignments);
    assignments.flat_map(|one| one.flavors.values()).find(|name| !flavors.contains_key(*name)).cloned()
}

fn template_of<'a>(workload: &'a Workload, pod_set: &str) -> Option<&'a PodTemplate> {
    workload.spec.pod_sets.iter().find(|one| one.name == pod_set).map(|one| &one.template)
}

fn flavors_of<'a>(workload: &'a Workload, pod_set: &'a str) -> impl Iterator<Item = &'a String> {
    let mut names: Vec<&String> = workload
        .status
        .admission
        .iter()
        .flat_map(|admission| &admission.pod_set_assignments)
        .filter(move |one| one.name == pod_set)
        .flat_map(|one| one.flavors.values())
        .collect();
    names.sort();
    names.dedup();
    names.into_iter()
}

/// Adds entries; one that is there must be the same.
fn add(
    field: &'static str,
    pod_set: &str,
    source: &str,
    more: &BTreeMap<String, String>,
    all: &mut BTreeMap<String, String>,
) -> Result<(), Conflict> {
    for (key, wanted) in more {
        if let Some(there) = all.get(key).filter(|there| *there != wanted) {
            return Err(Conflict::Differs {
                field,
                key: key.as_str().into(),
                pod_set: pod_set.into(),
                there: there.as_str().into(),
                source_of_it: source.into(),
                wanted: wanted.as_str().into(),
            });
        }
        all.insert(key.clone(), wanted.clone());
    }
    Ok(())
}

/// Sets fields of a pod template; an empty one that was not there stays away.
fn rewrite(root: &mut Value, template: &str, fields: &Fields) {
    let Fields { selector, tolerations, labels, annotations } = fields;
    let fields = [
        ("/spec/nodeSelector", json!(selector), selector.is_empty()),
        ("/spec/tolerations", json!(tolerations), tolerations.is_empty()),
        ("/metadata/labels", json!(labels), labels.is_empty()),
        ("/metadata/annotations", json!(annotations), annotations.is_empty()),
    ];
    for (field, value, is_empty) in fields {
        let pointer = format!("{template}{field}");
        if !is_empty {
            // Tolerations that mean the same are left as they are written.
            if field != "/spec/tolerations" || !same_tolerations(root.pointer(&pointer), tolerations) {
                set(root, &pointer, value);
            }
        } else if root.pointer(&pointer).is_some_and(|there| !there.is_null()) {
            remove(root, &pointer);
        }
    }
}

fn same_tolerations(there: Option<&Value>, wanted: &[Toleration]) -> bool {
    there.is_some_and(|there| {
        serde_json::from_value::<Vec<Toleration>>(there.clone()).is_ok_and(|there| there == wanted)
    })
}

/// Sets what a pointer leads to, making objects on the way.
pub(crate) fn set(root: &mut Value, pointer: &str, value: Value) {
    let mut at = root;
    for token in pointer.split('/').skip(1) {
        let token = token.replace("~1", "/").replace("~0", "~");
        let is_index = at.is_array();
        at = match (is_index, token.parse::<usize>()) {
            (true, Ok(index)) => match at.get_mut(index) {
                Some(there) => there,
                None => return,
            },
            _ => {
                if !at.is_object() {
                    *at = Value::Object(Map::new());
                }
                &mut at[token.as_str()]
            }
        };
    }
    *at = value;
}

fn remove(root: &mut Value, pointer: &str) {
    let Some((above, last)) = pointer.rsplit_once('/') else { return };
    let Some(Value::Object(parent)) = root.pointer_mut(above) else { return };
    parent.remove(last);
    // The metadata that was made for our label goes with it.
    if parent.is_empty() && above.ends_with("/metadata") {
        remove(root, above);
    }
}
