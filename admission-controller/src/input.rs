//! What the watches read, checked and put into the engine's terms. A user's mistake becomes a defect of that object.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crds::names::kueue;
use crds::reasons::workload as conditions;
use crds::view::admission_check::AdmissionCheck;
use crds::view::cluster_queue::{AdmissionCheckRule, ClusterQueue};
use crds::view::cohort::Cohort;
use crds::view::flavor::ResourceFlavor;
use crds::view::local_queue::LocalQueue;
use crds::view::quota::{FairSharing, ResourceGroup};
use crds::view::workload::{CheckState, PodSet, PodSetAssignment, PodSetUpdate, TemplateMeta, Workload};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use model::ResourceName;
use model::quantity::{Quantity, Written};
use model::resources::{self, ResourceList};
use quota_engine::input;
use quota_engine::topology::{Preference, SelectorConflict};
use quota_engine::{Amounts, ClusterQueueName, EvictReason, Few, FlavorName, LocalQueueKey, Uid};

use crate::checks;
use crate::compose::Priorities;
use crate::defaults::PodDefaults;
use crate::jobs::controller_of;
use crate::reclaimable;
use crate::requests::Rules;
use crate::requeue;
use crate::slices;
use crate::topology;

#[cfg(test)]
mod tests;

/// The engine's uid of an object; empty where the object has none.
pub fn uid(metadata: &ObjectMeta) -> Uid {
    Uid::new(metadata.uid.as_deref().unwrap_or_default())
}

/// Who a Workload is, and where it waits. Whoever keeps these texts hands them on instead of having them made once more.
#[derive(Clone, Debug)]
pub struct Texts {
    /// `metadata.uid`.
    pub uid: Uid,
    /// `metadata.namespace`.
    pub namespace: Arc<str>,
    /// `metadata.name`.
    pub name: Arc<str>,
    /// `spec.queueName`.
    pub queue: Option<Arc<str>>,
}

impl From<&Workload> for Texts {
    fn from(view: &Workload) -> Self {
        Self {
            uid: uid(&view.metadata),
            namespace: text(view.metadata.namespace.as_ref()).into(),
            name: name(&view.metadata).into(),
            queue: view.spec.queue_name.as_deref().map(Arc::from),
        }
    }
}

/// The object's resourceVersion as a number. Kubernetes guarantees since 1.35 that it is one (KEP-5504); etcd's always was.
pub fn version(metadata: &ObjectMeta) -> u64 {
    metadata.resource_version.as_deref().and_then(|version| version.parse().ok()).unwrap_or(0)
}

fn text(value: Option<&String>) -> &str {
    value.map(String::as_str).unwrap_or_default()
}

fn name(metadata: &ObjectMeta) -> &str {
    text(metadata.name.as_ref())
}

/// Milliseconds since the epoch.
pub fn millis(time: &Time) -> i64 {
    time.0.as_millisecond()
}

/// A ResourceFlavor.
pub fn flavor(view: &ResourceFlavor) -> input::Flavor {
    input::Flavor {
        name: name(&view.metadata).into(),
        uid: uid(&view.metadata),
        node_labels: view.spec.node_labels.clone(),
        taints: view.spec.node_taints.clone(),
        tolerations: view.spec.tolerations.clone(),
        topology: view.spec.topology_name.clone(),
    }
}

/// A ClusterQueue. A policy for concurrent admission means nothing while the gate of that is closed.
pub fn cluster_queue(view: &ClusterQueue, rules: &Rules) -> input::ClusterQueue {
    let mut defects = Vec::new();
    let spec = &view.spec;
    if rules.has_concurrent_admission() && spec.concurrent_admission_policy.is_some() {
        defects.push("concurrentAdmissionPolicy is not supported; remove it".to_owned());
    }
    let groups = groups(&spec.resource_groups, &mut defects);
    input::ClusterQueue {
        name: name(&view.metadata).into(),
        uid: uid(&view.metadata),
        cohort: spec.cohort_name.as_deref().filter(|name| !name.is_empty()).map(Into::into),
        groups,
        strategy: match spec.queueing_strategy.as_deref() {
            Some("StrictFIFO") => input::QueueingStrategy::StrictFifo,
            _ => input::QueueingStrategy::BestEffortFifo,
        },
        namespace_selector: spec.namespace_selector.clone(),
        preemption: preemption(view),
        fungibility: fungibility(view),
        weight: weight(&spec.fair_sharing),
        admission_mode: match spec.admission_scope.admission_mode.as_deref() {
            Some("UsageBasedAdmissionFairSharing") => input::AdmissionMode::UsageBasedFairSharing,
            _ => input::AdmissionMode::NoFairSharing,
        },
        stop: stop_policy(spec.stop_policy.as_deref()),
        terminating: view.metadata.deletion_timestamp.is_some(),
        admission_checks: spec.admission_checks_strategy.admission_checks.iter().map(check_rule).collect(),
        provisioned: BTreeSet::new(),
        defects,
    }
}

fn check_rule(rule: &AdmissionCheckRule) -> input::CheckRule {
    let on_flavors = rule.on_flavors.iter().map(|name| name.as_str().into()).collect();
    input::CheckRule { check: rule.name.as_str().into(), on_flavors }
}

/// An AdmissionCheck.
pub fn admission_check(view: &AdmissionCheck) -> input::AdmissionCheck {
    input::AdmissionCheck {
        name: name(&view.metadata).into(),
        uid: uid(&view.metadata),
        controller: checks::controller(&view.spec.controller_name),
        active: checks::is_active(view),
    }
}

fn preemption(view: &ClusterQueue) -> input::Preemption {
    let written = &view.spec.preemption;
    input::Preemption {
        within_cluster_queue: match written.within_cluster_queue.as_deref() {
            Some("LowerPriority") => input::WithinClusterQueue::LowerPriority,
            Some("LowerOrNewerEqualPriority") => input::WithinClusterQueue::LowerOrNewerEqualPriority,
            _ => input::WithinClusterQueue::Never,
        },
        reclaim_within_cohort: match written.reclaim_within_cohort.as_deref() {
            Some("LowerPriority") => input::ReclaimWithinCohort::LowerPriority,
            Some("Any") => input::ReclaimWithinCohort::Any,
            Some(_) => input::ReclaimWithinCohort::Never,
            None => input::ReclaimWithinCohort::Unset,
        },
        borrow_within_cohort: match written.borrow_within_cohort.policy.as_deref() {
            Some("LowerPriority") => input::BorrowWithinCohort::LowerPriority {
                threshold: written.borrow_within_cohort.max_priority_threshold,
            },
            _ => input::BorrowWithinCohort::Never,
        },
    }
}

fn fungibility(view: &ClusterQueue) -> input::Fungibility {
    let written = &view.spec.flavor_fungibility;
    let search = |value: &Option<String>, default: input::Search| match value.as_deref() {
        Some("TryNextFlavor") => input::Search::TryNext,
        // v1beta1 said Borrow and Preempt.
        Some("MayStopSearch" | "Borrow" | "Preempt") => input::Search::MayStop,
        _ => default,
    };
    let default = input::Fungibility::default();
    input::Fungibility {
        when_can_borrow: search(&written.when_can_borrow, default.when_can_borrow),
        when_can_preempt: search(&written.when_can_preempt, default.when_can_preempt),
        preference: match written.preference.as_deref() {
            Some("PreemptionOverBorrowing") => input::Preference::PreemptionOverBorrowing,
            _ => input::Preference::BorrowingOverPreemption,
        },
    }
}

/// A weight that is no quantity, which the API refuses, is as good as none.
fn weight(written: &FairSharing) -> input::Weight {
    let weight = written.weight.as_ref().and_then(|weight| weight.quantity().ok());
    weight.map_or_else(input::Weight::default, |weight| input::Weight::from_nanos(weight.nanos()))
}

fn stop_policy(value: Option<&str>) -> input::StopPolicy {
    match value {
        Some("Hold") => input::StopPolicy::Hold,
        Some("HoldAndDrain") => input::StopPolicy::HoldAndDrain,
        _ => input::StopPolicy::None,
    }
}

fn groups(written: &[ResourceGroup], defects: &mut Vec<String>) -> Vec<input::ResourceGroup> {
    let mut groups = Vec::new();
    for group in written {
        let mut flavors = Vec::new();
        for flavor in &group.flavors {
            let mut quotas = BTreeMap::new();
            for resource in &flavor.resources {
                let place = format!("flavor {}, {}", flavor.name, resource.name);
                let quota = input::Quota {
                    nominal: amount(&resource.name, &resource.nominal_quota, &place, "nominalQuota", defects)
                        .unwrap_or(0),
                    borrowing_limit: resource.borrowing_limit.as_ref().map(|limit| {
                        amount(&resource.name, limit, &place, "borrowingLimit", defects).unwrap_or(0)
                    }),
                    lending_limit: resource.lending_limit.as_ref().map(|limit| {
                        amount(&resource.name, limit, &place, "lendingLimit", defects).unwrap_or(0)
                    }),
                };
                quotas.insert(resource.name.clone(), quota);
            }
            let uncovered = group.covered_resources.iter().find(|resource| !quotas.contains_key(*resource));
            if let Some(resource) = uncovered {
                defects
                    .push(format!("flavor {} has no quota for the covered resource {resource}", flavor.name));
            }
            flavors.push(input::FlavorQuotas { flavor: flavor.name.as_str().into(), resources: quotas });
        }
        groups.push(input::ResourceGroup { covered: group.covered_resources.clone(), flavors });
    }
    groups
}

fn amount(
    resource: &ResourceName,
    written: &Written,
    place: &str,
    field: &str,
    defects: &mut Vec<String>,
) -> Option<i64> {
    let problem = match written.quantity() {
        Err(text) => format!("{place}: {field} {text:?} is no quantity"),
        Ok(quantity) if quantity.is_negative() => format!("{place}: {field} {quantity} is negative"),
        // More than anybody can ask for is as good as without limit.
        Ok(quantity) => return Some(resource.amount(&quantity).unwrap_or(i64::MAX)),
    };
    defects.push(problem);
    None
}

/// A Cohort. Quotas that cannot be read count as nothing; see [`cohort_defects`].
pub fn cohort(view: &Cohort) -> input::Cohort {
    input::Cohort {
        name: name(&view.metadata).into(),
        uid: uid(&view.metadata),
        parent: view.spec.parent_name.as_deref().filter(|name| !name.is_empty()).map(Into::into),
        groups: groups(&view.spec.resource_groups, &mut Vec::new()),
        weight: weight(&view.spec.fair_sharing),
    }
}

/// What is wrong with a Cohort's quotas.
pub fn cohort_defects(view: &Cohort) -> Vec<String> {
    let mut defects = Vec::new();
    groups(&view.spec.resource_groups, &mut defects);
    defects
}

/// Namespace and name of a LocalQueue.
pub fn local_queue_key(metadata: &ObjectMeta) -> LocalQueueKey {
    LocalQueueKey::new(text(metadata.namespace.as_ref()), name(metadata))
}

/// A LocalQueue.
pub fn local_queue(view: &LocalQueue) -> input::LocalQueue {
    input::LocalQueue {
        key: local_queue_key(&view.metadata),
        uid: uid(&view.metadata),
        cluster_queue: ClusterQueueName::from(view.spec.cluster_queue.as_str()),
        stop: stop_policy(view.spec.stop_policy.as_deref()),
        terminating: view.metadata.deletion_timestamp.is_some(),
        weight: weight(&view.spec.fair_sharing),
    }
}

/// What a LocalQueue's status says it has used; `None` where it says nothing. A number that cannot be read counts as none.
pub fn history(view: &LocalQueue) -> Option<Amounts> {
    let consumed =
        view.status.rest.get("fairSharing")?.pointer("/admissionFairSharingStatus/consumedResources")?;
    let nanos = consumed.as_object()?.iter().filter_map(|(resource, written)| {
        let quantity: Quantity = serde_json::from_value(written.clone()).ok()?;
        // Time is reckoned with it: what is beyond what would be written there is not kept.
        let most = Quantity::from_units(i64::MAX).nanos();
        Some((ResourceName::from(resource.as_str()), quantity.nanos().clamp(-most, most)))
    });
    Some(nanos.collect())
}

/// A Workload. Pods that have ended and will not run again are not counted.
///
/// One of a WorkloadPriorityClass is worth what the class says: a number written over it by hand, which is put right again,
/// must not preempt anybody in the meantime.
pub fn workload(
    texts: Texts,
    view: &Workload,
    rules: &Rules,
    defaults: &PodDefaults,
    priorities: &Priorities,
) -> input::Workload {
    let class = view.spec.priority_class_ref.as_ref();
    let class = class.filter(|class| class.kind == kueue::WORKLOAD_PRIORITY_CLASS);
    let of_class = class.and_then(|class| priorities.workload.get(&class.name).copied());
    let base_priority = of_class.or(view.spec.priority).unwrap_or(0);
    let mut defects = Vec::new();
    let remaining = reclaimable::remaining(view, rules);
    let mut pod_sets = Vec::with_capacity(view.spec.pod_sets.len());
    for (index, one) in view.spec.pod_sets.iter().enumerate() {
        let (asked, wrong) = requests(index, one, &texts.namespace, defaults);
        defects.extend(wrong);
        let count = remaining.get(one.name.as_str()).copied().unwrap_or(0);
        pod_sets.push(pod_set(one, count, asked, rules, &mut defects));
    }
    let is_slice = rules.has_elastic_jobs() && slices::is_slice(view);
    let seldom = input::Seldom {
        updates: updates(view),
        unhealthy_nodes: view.status.unhealthy_nodes.iter().map(|node| node.name.as_str().into()).collect(),
        passed: checks::passed(&view.status.admission_checks).map(Into::into).collect(),
        not_before_ms: view.put_off_until().map(millis),
        leave: leave(view, rules),
        replaces: replaces(&view.metadata).filter(|_| rules.has_elastic_jobs()),
        elastic: is_slice,
        slice_of: controller_of(&view.metadata).filter(|_| is_slice).map(|job| job.uid.as_str().into()),
        allowed_flavors: allowed_flavors(&view.metadata).filter(|_| rules.has_concurrent_admission()),
        gated_by: gated_by(&view.metadata).filter(|_| rules.has_admission_gates()).map(Arc::from),
        kept_out: kept_out(view),
        defect: (!defects.is_empty()).then(|| defects.join("; ")),
    };
    input::Workload {
        uid: texts.uid,
        version: version(&view.metadata),
        namespace: texts.namespace,
        name: texts.name,
        queue: texts.queue.filter(|name| !name.is_empty()),
        priority: base_priority.saturating_add(boost(&view.metadata, rules)),
        base_priority,
        queued_at_ms: queued_at(view, rules.order()),
        active: view.spec.active.unwrap_or(true),
        pod_sets: pod_sets.into(),
        checks_failed: checks::have_failed(&view.status.admission_checks),
        checks_passed: !view.status.admission_checks.is_empty()
            && checks::are_ready(&view.status.admission_checks),
        owned: view.metadata.owner_references.as_ref().is_some_and(|owners| !owners.is_empty()),
        movable: topology::can_move(&view.metadata),
        pods_ready: view.holds(conditions::PODS_READY),
        preemption_gated: view.is_preemption_gated(),
        standing: standing(view, &remaining),
        seldom: seldom.into(),
    }
}

/// What the checks say that are passed.
fn updates(view: &Workload) -> Vec<input::PodSetUpdate> {
    let passed = view.status.admission_checks.iter().filter(|check| check.state == CheckState::Ready);
    let mut marks: BTreeMap<String, TemplateMeta> = BTreeMap::new();
    let update = |update: PodSetUpdate| {
        let given = marks.entry(update.name.clone()).or_insert_with(|| {
            let set = view.spec.pod_sets.iter().find(|set| set.name == update.name);
            set.map(|set| set.template.metadata.clone()).unwrap_or_default()
        });
        let conflict = SelectorConflict::between(&given.annotations, &update.annotations)
            .or_else(|| SelectorConflict::between(&given.labels, &update.labels));
        given.annotations.extend(update.annotations);
        given.labels.extend(update.labels);
        let (name, node_selector, tolerations) =
            (update.name.into(), update.node_selector, update.tolerations);
        input::PodSetUpdate { name, node_selector, tolerations, conflict }
    };
    let updates = passed.flat_map(checks::updates).map(update);
    let says = |one: &input::PodSetUpdate| {
        !one.node_selector.is_empty() || !one.tolerations.is_empty() || one.conflict.is_some()
    };
    updates.filter(says).collect()
}

/// The name of the slice of an elastic job, in its own namespace, that it replaces.
fn replaces(metadata: &ObjectMeta) -> Option<Arc<str>> {
    let written = metadata.annotations.as_ref()?.get(kueue::WORKLOAD_SLICE_REPLACEMENT_FOR)?;
    let (namespace, name) = written.split_once('/')?;
    (metadata.namespace.as_deref().unwrap_or_default() == namespace).then(|| name.into())
}

/// When and why it gives its quota back by itself. What is rejected is deactivated, which is another way.
fn leave(view: &Workload, rules: &Rules) -> Option<input::Leave> {
    let states = &view.status.admission_checks;
    let has = |wanted: CheckState| states.iter().any(|check| check.state == wanted);
    if has(CheckState::Retry) && !has(CheckState::Rejected) {
        return Some(input::Leave { at_ms: 0, reason: EvictReason::AdmissionCheck });
    }
    rules.pods_ready().and_then(|pods_ready| pods_ready.leave(view))
}

/// Flavors to which an annotation restricts it, separated by commas.
fn allowed_flavors(metadata: &ObjectMeta) -> Option<BTreeSet<FlavorName>> {
    let written = metadata.annotations.as_ref()?.get(kueue::ALLOWED_RESOURCE_FLAVORS)?;
    let names = written.split(',').map(str::trim).filter(|name| !name.is_empty());
    Some(names.map(FlavorName::from).collect())
}

/// By how much an annotation raises the priority. One that is no number, which the webhook refuses, raises nothing.
fn boost(metadata: &ObjectMeta, rules: &Rules) -> i32 {
    let written = metadata.annotations.as_ref().and_then(|all| all.get(kueue::PRIORITY_BOOST));
    written.filter(|_| rules.boosts_priorities()).and_then(|written| written.parse().ok()).unwrap_or(0)
}

/// Who holds the workload back: names of controllers, separated by commas. An empty annotation names nobody.
pub fn gated_by(metadata: &ObjectMeta) -> Option<&str> {
    let written = metadata.annotations.as_ref()?.get(kueue::ADMISSION_GATED_BY)?;
    Some(written.as_str()).filter(|written| !written.is_empty())
}

/// What in its status keeps it from being looked at. What this program put off it takes up again by itself, and what was
/// inadmissible once is judged anew.
fn kept_out(view: &Workload) -> Option<input::KeptOut> {
    if view.holds(conditions::WAITING_FOR_REPLACEMENT_PODS) {
        return Some(input::KeptOut::ReplacementPods);
    }
    let put_off = view.condition(conditions::REQUEUED).filter(|one| one.status == "False")?;
    let is_ours = requeue::end_of(&put_off.reason).is_some();
    let is_judged_anew = put_off.reason == conditions::evicted::INADMISSIBLE;
    (!is_ours && !is_judged_anew).then(|| input::KeptOut::NotRequeued(put_off.reason.as_str().into()))
}

/// What orders workloads of one priority in their queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueOrder {
    /// Whether one whose pods did not get ready in time goes to the back (Kueue's
    /// `waitForPodsReady.requeuingStrategy.timestamp`: `Eviction`) or keeps its place (`Creation`).
    pub unready_to_the_back: bool,
    /// Whether priority orders a cohort. Where it does not, one that was preempted for a borrower comes after that one.
    pub priority_sorting: bool,
}

impl Default for QueueOrder {
    fn default() -> Self {
        Self { unready_to_the_back: true, priority_sorting: true }
    }
}

/// What orders a workload among its equals: its creation, or the eviction that sends it to the back. Milliseconds since the
/// epoch.
pub fn queued_at(view: &Workload, order: QueueOrder) -> i64 {
    let evicted = view.true_condition(conditions::EVICTED).filter(|one| match one.reason.as_str() {
        conditions::evicted::ADMISSION_CHECK => true,
        conditions::evicted::PODS_READY_TIMEOUT => order.unready_to_the_back,
        _ => false,
    });
    let preempted = view.true_condition(conditions::PREEMPTED).filter(|one| {
        one.reason == conditions::preempted::IN_COHORT_RECLAIM_WHILE_BORROWING && !order.priority_sorting
    });
    let created = || view.metadata.creation_timestamp.as_ref().map(millis);
    evicted
        .map(|one| millis(&one.last_transition_time))
        .or_else(|| preempted.map(|one| millis(&one.last_transition_time) + 1))
        .or_else(created)
        .unwrap_or(0)
}

/// Whether it is admitted, and neither leaves nor has ended.
pub fn stands(view: &Workload) -> bool {
    view.holds(conditions::ADMITTED) && !view.holds(conditions::EVICTED) && !view.holds(conditions::FINISHED)
}

/// Whether its own job wants no quota for it for now (a StatefulSet that was scaled to nothing, say).
pub fn is_on_hold(view: &Workload) -> bool {
    view.condition(conditions::QUOTA_RESERVED)
        .is_some_and(|one| one.status == "False" && one.reason == conditions::quota_reserved::ON_HOLD)
}

/// Whether an answer says that the object is gone: it is to the write that took its last finalizer.
pub fn is_gone(metadata: &ObjectMeta) -> bool {
    metadata.deletion_timestamp.is_some() && metadata.finalizers.as_ref().is_none_or(Vec::is_empty)
}

fn standing(view: &Workload, remaining: &BTreeMap<&str, i64>) -> input::Standing {
    if view.holds(conditions::FINISHED) {
        return input::Standing::Finished;
    }
    if is_on_hold(view) {
        return input::Standing::OnHold;
    }
    let reserved = view.true_condition(conditions::QUOTA_RESERVED).zip(view.status.admission.as_ref());
    let Some((reserved, admission)) = reserved else {
        // Who is deleted gets nothing more, and nobody leaves for it.
        let is_leaving = view.metadata.deletion_timestamp.is_some();
        return if is_leaving { input::Standing::OnHold } else { input::Standing::Pending };
    };
    input::Standing::Reserved {
        admission: Arc::new(input::Admission {
            cluster_queue: ClusterQueueName::from(admission.cluster_queue.as_str()),
            pod_sets: admission
                .pod_set_assignments
                .iter()
                .map(|one| {
                    let set = view.spec.pod_sets.iter().find(|set| set.name == one.name);
                    assignment(one, set, remaining.get(one.name.as_str()).copied().unwrap_or(0))
                })
                .collect(),
        }),
        admitted: view.holds(conditions::ADMITTED),
        evicted: view.holds(conditions::EVICTED),
        since_ms: millis(&reserved.last_transition_time),
    }
}

/// What a pod set holds. Where pods have ended since it was admitted, what they held is free; a set that was admitted with
/// fewer pods than it has keeps what it was given. One that the spec lacks has no pods.
fn assignment(view: &PodSetAssignment, pod_set: Option<&PodSet>, remaining: i64) -> input::PodSetAssignment {
    let flavors = view.flavors.iter();
    let granted = view.count.or_else(|| pod_set.map(|set| set.count.unwrap_or(1))).unwrap_or(0);
    let mut usage = usage(&view.resource_usage);
    let count = remaining.min(granted);
    if count < granted {
        usage
            .values_mut()
            .for_each(|amount| *amount = amount.checked_div(granted).unwrap_or(0).saturating_mul(count));
    }
    input::PodSetAssignment {
        name: view.name.as_str().into(),
        flavors: flavors.map(|(resource, flavor)| (resource.clone(), flavor.as_str().into())).collect(),
        usage,
        count,
        // One that cannot be read, which the API refuses, is as good as none.
        topology: view.topology_assignment.as_ref().and_then(|one| topology::read(one).ok()).map(Arc::new),
        delayed: match view.delayed_topology_request.as_deref() {
            Some("Pending") => Some(input::DelayedTopology::Pending),
            Some("Ready") => Some(input::DelayedTopology::Ready),
            _ => None,
        },
    }
}

/// What is held according to a status: what cannot be read there, which nobody but an administrator can write, is nothing,
/// and what is beyond 64 bits the most that they hold.
fn usage(written: &BTreeMap<ResourceName, Written>) -> Few<ResourceName, i64> {
    written.iter().map(|(resource, amount)| (resource.clone(), resources::read(resource, amount).0)).collect()
}

/// What each pod of a set asks of its node, and what is wrong with that, in words.
fn requests(
    index: usize,
    view: &PodSet,
    namespace: &str,
    defaults: &PodDefaults,
) -> (ResourceList, Vec<String>) {
    let spec = &view.template.spec;
    let pod = defaults.applied(namespace, spec.runtime_class_name.as_deref(), &spec.resources);
    let path = format!("spec.podSets[{index}].template.spec");
    let violations = defaults.violations(namespace, &pod, &path);
    let mut wrong: Vec<String> = violations.iter().map(ToString::to_string).collect();
    let tally = pod.tally();
    // More than 64 bits hold is no mistake in the writing: it is a wish for more than any quota.
    let error = tally.error.filter(|error| !error.is_overflow());
    if let (true, Some(error)) = (wrong.is_empty(), error) {
        wrong.push(format!("pod set {}: {error}", view.name));
    }
    (tally.requests, wrong)
}

fn pod_set(
    view: &PodSet,
    count: i64,
    pod_requests: ResourceList,
    rules: &Rules,
    defects: &mut Vec<String>,
) -> input::PodSet {
    let all = view.count.unwrap_or(1);
    let mut requests = rules.per_pod(pod_requests.clone());
    let mut defect = |words: String| defects.push(format!("pod set {}: {words}", view.name));
    if count < 0 {
        defect(format!("count {count} is negative"));
    }
    let spec = &view.template.spec;
    if !spec.resource_claims.is_empty() {
        defect("resourceClaims are not supported; ask for devices as extended resources".to_owned());
    }
    if requests.contains_key(ResourceName::PODS) {
        defect("the resource \"pods\" is counted by itself and must not be asked for".to_owned());
        requests.remove(ResourceName::PODS);
    }
    input::PodSet {
        name: view.name.as_str().into(),
        count: count.max(0),
        done: (all - count).max(0),
        min_count: view.min_count.map(|least| least.clamp(0, all.max(0))),
        requests,
        node_selector: spec.node_selector.clone(),
        affinity: spec.affinity.node_affinity.required_during_scheduling_ignored_during_execution.clone(),
        tolerations: spec.tolerations.clone(),
        preferences: spec
            .affinity
            .node_affinity
            .preferred_during_scheduling_ignored_during_execution
            .iter()
            .map(|one| Preference { weight: one.weight, term: one.preference.clone() })
            .collect(),
        pod_requests: Arc::new(pod_requests),
        topology: view.topology_request.as_ref().and_then(topology::wish),
        group: view.topology_request.as_ref().and_then(|request| request.pod_set_group_name.clone()),
    }
}
