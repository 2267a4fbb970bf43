//! What must have happened when faults have stopped and everything had time to settle.

use std::collections::BTreeMap;

use model::node::{Taint, first_untolerated};
use model::{ResourceList, resources};
use serde_json::Value;

use super::flavors::tolerations;
use super::gangs::{gang_of, gang_size};
use super::nodes::{allocatable, requests};
use super::quota::{cohort_of, held, priority, quota_cell, used};
use super::{admissible, checks, pods, prebuilt, reasons, slices, told};
use crate::fuzz::world::{
    CLUSTER_QUEUES, COHORTS, FLAVORS, JOBS, Key, LOCAL_QUEUES, PLACEMENTS, POD_GROUPS, Shared, WORKLOADS,
    World, Write, amount, at, holds, is_over, items, key, text, uid,
};

/// A rule over the world at rest.
type Rule = fn(&World, &Activity) -> Result<(), String>;

/// Every liveness rule, by the name under which a violation is reported.
pub(super) const RULES: &[(&str, Rule)] = &[
    ("every managed job has a Workload", every_job_has_a_workload),
    ("what fits is admitted", admissible::what_fits_is_admitted),
    ("what waits says why", told::what_waits_says_why),
    ("what waits is told the truth", reasons::reasons_are_true),
    ("pods that wait say why", told::pods_say_why),
    ("queues count what is in them", told::queues_count),
    ("checks that refuse are heeded, and no others", checks::refusals_are_heeded),
    ("nodes are asked for by those who have quota", checks::requests_are_taken_back),
    ("managed pods have a Workload", pods::have_workloads),
    ("gates of admitted pods are open", pods::admitted_pods_are_let_go),
    ("nobody waits for pods that are there", pods::groups_lack_what_they_wait_for),
    ("one slice describes an elastic job as it is", slices::one_describes_the_job),
    ("pods that their slice has quota for are let go", slices::granted_pods_are_let_go),
    ("what was evicted gives its quota back", evicted_give_back),
    ("an admitted job runs", admitted_jobs_run),
    ("what may preempt is admitted", what_may_preempt_is_admitted),
    ("admitted gangs that fit are bound", admitted_gangs_are_bound),
    ("a gang has none or enough of its members bound", gangs_are_whole),
    ("plans are carried out or undone", plans_end),
    ("an evicted job is suspended", evicted_jobs_are_suspended),
    ("what ended is finished", what_ended_is_finished),
    ("a drained queue is empty", drained_queues_are_empty),
    ("what is deleted goes", deleted_workloads_go),
    ("every node advertises its devices", nodes_advertise),
    (CIRCLE_RULE, nobody_writes_in_a_circle),
];

/// The rule against writing without end.
pub(super) const CIRCLE_RULE: &str = "nobody writes in a circle";

/// How often each object was written of late.
#[derive(Debug, Default)]
pub(super) struct Activity {
    writes: BTreeMap<(String, Key), Vec<i64>>,
}

impl Activity {
    pub(super) fn count(&mut self, write: &Write) {
        // What a job's own controller writes follows what becomes of its pods, be it that they fail again and again, or that the
        // job is preempted twice. Whoever goes round in a circle with it is counted.
        let follows =
            matches!(write.writer.as_str(), "job-controller" | "jobset-controller" | "training-operator");
        if write.resource != "leases.coordination.k8s.io" && !follows {
            self.writes.entry((write.resource.clone(), write.key())).or_default().push(write.at);
        }
    }
}

/// An object written this often within the last five minutes, long after anything disturbed it, is written in a circle.
const CIRCLE: usize = 12;

/// The same for objects that follow many others (queue counters, shares of cohorts, nodes): every other second.
const SHARED_CIRCLE: usize = 120;

/// The same for what may wait: it tells what is missing, every ten seconds at most, while others come and go. It may also be
/// preempted several times, by those who come when others end.
const WAITING_CIRCLE: usize = 30;

fn nobody_writes_in_a_circle(world: &World, activity: &Activity) -> Result<(), String> {
    for ((resource, key), times) in &activity.writes {
        let recent = times.iter().filter(|at| **at > world.now - 300_000).count();
        let circle = match resource.as_str() {
            CLUSTER_QUEUES | LOCAL_QUEUES | COHORTS | "nodes" => SHARED_CIRCLE,
            WORKLOADS | "pods" => WAITING_CIRCLE,
            job if JOBS.iter().any(|(kind, _)| *kind == job) => WAITING_CIRCLE,
            _ => CIRCLE,
        };
        if recent >= circle {
            return Err(format!(
                "{resource} {key:?} was written {recent} times within the last five minutes"
            ));
        }
    }
    Ok(())
}

pub(super) fn managed_jobs(world: &World) -> impl Iterator<Item = (&Value, &'static str)> {
    JOBS.iter()
        .flat_map(move |(resource, suspend)| world.all(resource).map(move |job| (&**job, *suspend)))
        .filter(|(job, _)| {
            !text(job, "/metadata/labels/kueue.x-k8s.io~1queue-name").is_empty()
                && items(job, "/metadata/ownerReferences").next().is_none()
                && at(job, "/metadata/deletionTimestamp").is_none()
        })
}

pub(super) fn has_ended(job: &Value) -> bool {
    ["Complete", "Completed", "Succeeded", "Failed"].iter().any(|kind| holds(job, kind))
}

fn every_job_has_a_workload(world: &World, _: &Activity) -> Result<(), String> {
    let lacks_one = |job: &Value| {
        !has_ended(job)
            && world.workload_of_owner(uid(job)).is_none()
            && !was_told_of_its_class(world, job)
            && !prebuilt::is_awaited(world, job)
    };
    match managed_jobs(world).find(|(job, _)| lacks_one(job)) {
        Some((job, _)) => Err(format!("{:?} has none", key(job))),
        None => Ok(()),
    }
}

/// A job of a priority class that does not exist can have no Workload, but must have been told so.
fn was_told_of_its_class(world: &World, job: &Value) -> bool {
    let class = text(job, "/metadata/labels/kueue.x-k8s.io~1priority-class");
    let exists = world.get("workloadpriorityclasses.kueue.x-k8s.io", "", class).is_some();
    !class.is_empty()
        && !exists
        && world.all("events").any(|event| {
            text(event, "/involvedObject/uid") == uid(job) && text(event, "/message").contains(class)
        })
}

/// Who waits for quota. A group that lacks pods does not: it waits for these.
pub(super) fn pending(world: &World) -> impl Iterator<Item = &Value> {
    world.all(WORKLOADS).map(|workload| &**workload).filter(|workload| {
        !holds(workload, "QuotaReserved")
            && !holds(workload, "Finished")
            && !holds(workload, pods::LACKS_PODS)
            && at(workload, "/metadata/deletionTimestamp").is_none()
            && at(workload, "/spec/active") != Some(&Value::Bool(false))
    })
}

/// Whoever waits for a time that comes this soon is not blamed.
const SOON: i64 = 60_000;

/// Whether it waits for its time, which may be far off where whoever put it off had a clock that was ahead.
pub(super) fn is_put_off(world: &World, workload: &Value) -> bool {
    let due = text(workload, "/status/requeueState/requeueAt").parse::<jiff::Timestamp>();
    due.is_ok_and(|due| due.as_millisecond() + SOON > world.now)
}

pub(super) fn queue_of<'a>(world: &'a World, workload: &Value) -> Option<&'a Value> {
    let local =
        world.get(LOCAL_QUEUES, text(workload, "/metadata/namespace"), text(workload, "/spec/queueName"))?;
    world.get(CLUSTER_QUEUES, "", text(local, "/spec/clusterQueue")).map(|queue| &**queue)
}

pub(super) fn asks(workload: &Value) -> Option<ResourceList> {
    let mut total = ResourceList::new();
    for set in items(workload, "/spec/podSets") {
        let each = requests(set.get("template")?);
        let count = set["count"].as_i64().unwrap_or(1);
        resources::checked_add(&mut total, &resources::checked_scale(&each, count).ok()?).ok()?;
    }
    Some(total)
}

/// Whether the world has one flavor and no Cohorts as objects: then what is free can be written down directly.
pub(super) fn is_plain(world: &World) -> bool {
    world.get(FLAVORS, "", "gpu").is_some() && world.all(FLAVORS).count() == 1
}

/// What fits into its own queue's quota, if those of lower priority there go, waits for nobody (Kueue's
/// `withinClusterQueue: LowerPriority`).
fn what_may_preempt_is_admitted(world: &World, _: &Activity) -> Result<(), String> {
    if !is_plain(world) {
        return Ok(());
    }
    for workload in pending(world) {
        let Some((queue, asked)) = queue_of(world, workload).zip(slices::needs(world, workload)) else {
            continue;
        };
        let preempts = matches!(
            text(queue, "/spec/preemption/withinClusterQueue"),
            "LowerPriority" | "LowerOrNewerEqualPriority"
        );
        let open = matches!(text(queue, "/spec/stopPolicy"), "" | "None");
        // Who is first in a StrictFIFO queue is another rule's matter.
        let may_wait = text(queue, "/spec/queueingStrategy") == "StrictFIFO" || is_put_off(world, workload);
        if !preempts || !open || may_wait {
            continue;
        }
        let lower: Vec<&Value> = world
            .all(WORKLOADS)
            .map(|one| &**one)
            .filter(|one| {
                text(one, "/status/admission/clusterQueue") == text(queue, "/metadata/name")
                    && priority(one) < priority(workload)
            })
            .collect();
        let suffices = |resource: &str, amount: i64| {
            let cell = ("gpu".to_owned(), resource.to_owned());
            let Some((nominal, _)) = quota_cell(queue, "gpu", resource) else { return false };
            let mine = used(world, text(queue, "/metadata/name")).get(&cell).copied().unwrap_or(0);
            let leaves: i64 = lower.iter().filter_map(|one| held(one).get(&cell).copied()).sum();
            mine - leaves + amount <= nominal && free(world, queue, resource) + leaves >= amount
        };
        if asked.iter().all(|(resource, amount)| suffices(resource.as_str(), *amount)) {
            return Err(format!("{:?} waits, yet may take {asked:?} from its own queue", key(workload)));
        }
    }
    Ok(())
}

/// How much more of a resource a ClusterQueue may use of the flavor `gpu`, the only one in a plain world. What other queues keep
/// back is not free: a StrictFIFO queue that cannot reclaim from everybody does so for its head, and where that would borrow, up to
/// what its queue may borrow.
pub(super) fn free(world: &World, queue: &Value, resource: &str) -> i64 {
    let flavor = "gpu";
    let cell = (flavor.to_owned(), resource.to_owned());
    let Some((nominal, limit)) = quota_cell(queue, flavor, resource) else { return 0 };
    let mine = used(world, text(queue, "/metadata/name")).get(&cell).copied().unwrap_or(0);
    if cohort_of(queue).is_empty() {
        return nominal - mine;
    }
    let mut spare = 0;
    for member in world.all(CLUSTER_QUEUES).filter(|one| cohort_of(one) == cohort_of(queue)) {
        let (owned, limit) = quota_cell(member, flavor, resource).unwrap_or((0, Some(0)));
        let most = limit.unwrap_or(i64::MAX);
        let left = owned - used(world, text(member, "/metadata/name")).get(&cell).copied().unwrap_or(0);
        let keeps = text(member, "/spec/queueingStrategy") == "StrictFIFO"
            && text(member, "/spec/preemption/reclaimWithinCohort") != "Any"
            && uid(member) != uid(queue);
        // Who is the head is not known.
        let heads = pending(world).filter(|one| keeps && queue_of(world, one).map(uid) == Some(uid(member)));
        let asked =
            heads.map(|head| slices::needs(world, head).and_then(|asked| asked.get(resource).copied()));
        let kept =
            asked.map(|asked| asked.unwrap_or(0).min(left.saturating_add(most)).max(left.max(0))).max();
        spare += left - kept.unwrap_or(0);
    }
    spare.min(nominal.saturating_add(limit.unwrap_or(i64::MAX)) - mine)
}

fn waiting_pods(world: &World) -> BTreeMap<String, Vec<&Value>> {
    let mut gangs: BTreeMap<String, Vec<&Value>> = BTreeMap::new();
    let waits = |pod: &&Shared| {
        !is_over(pod)
            && text(pod, "/spec/schedulerName") == "trireme"
            && items(pod, "/spec/schedulingGates").next().is_none()
            && (at(pod, "/metadata/deletionTimestamp").is_none() || !text(pod, "/spec/nodeName").is_empty())
            // Kubeflow leaves the pods of a job that has ended; nobody wants them to run.
            && !world.top_job(pod).is_some_and(|job| has_ended(job))
    };
    for pod in world.all("pods").filter(waits) {
        let group = text(pod, "/metadata/annotations/scheduling.k8s.io~1group-name");
        let gang = match world.workload_of_pod(pod) {
            _ if !group.is_empty() => format!("group {}/{group}", text(pod, "/metadata/namespace")),
            Some(workload) => format!("workload {}", uid(workload)),
            None => format!("pod {}", uid(pod)),
        };
        gangs.entry(gang).or_default().push(pod);
    }
    gangs
}

/// A gang of which nothing is bound, all of whose pods exist, must not fit by first fit.
fn admitted_gangs_are_bound(world: &World, _: &Activity) -> Result<(), String> {
    let mut free = free_nodes(world);
    for (gang, pods) in waiting_pods(world) {
        let unbound: Vec<_> = pods.iter().filter(|pod| text(pod, "/spec/nodeName").is_empty()).collect();
        let declared = !gang.starts_with("group ") || {
            let pod = pods[0];
            let name = text(pod, "/metadata/annotations/scheduling.k8s.io~1group-name");
            world.get(POD_GROUPS, text(pod, "/metadata/namespace"), name).is_some()
        };
        let complete = i64::try_from(pods.len()).unwrap_or(i64::MAX) >= gang_size(world, pods[0]);
        let settled = unbound.iter().all(|pod| age(world, pod) > 120_000);
        // A job that fails may leave pods behind that have never run, and no quota any more.
        let over = world.workload_of_pod(pods[0]).is_some_and(|workload| holds(workload, "Finished"));
        if unbound.is_empty() || !declared || !complete || !settled || over {
            continue;
        }
        let fits = unbound.iter().all(|pod| first_fit(&mut free, pod));
        if fits {
            return Err(format!(
                "{gang} has {} unbound pods, first {:?}, that would fit",
                unbound.len(),
                key(unbound[0])
            ));
        }
        free = free_nodes(world);
    }
    Ok(())
}

pub(super) fn age(world: &World, object: &Value) -> i64 {
    let created = text(object, "/metadata/creationTimestamp").parse::<jiff::Timestamp>();
    created.map_or(i64::MAX, |created| world.now - created.as_millisecond())
}

/// A node that takes pods.
struct Host<'a> {
    node: &'a Value,
    free: ResourceList,
}

impl Host<'_> {
    /// Whether a pod may go there, and has room.
    fn takes(&self, pod: &Value, asked: &ResourceList) -> bool {
        let labels = at(self.node, "/metadata/labels").and_then(Value::as_object);
        let mut wanted = at(pod, "/spec/nodeSelector").and_then(Value::as_object).into_iter().flatten();
        let taints: Vec<Taint> = at(self.node, "/spec/taints")
            .and_then(|list| serde_json::from_value(list.clone()).ok())
            .unwrap_or_default();
        wanted.all(|(label, value)| labels.and_then(|labels| labels.get(label)) == Some(value))
            && first_untolerated(&taints, &tolerations(at(pod, "/spec/tolerations"))).is_none()
            && resources::shortfall(asked, &self.free).is_empty()
            && self.free.get("pods").is_none_or(|pods| *pods > 0)
    }
}

fn free_nodes(world: &World) -> Vec<Host<'_>> {
    let usable = world
        .all("nodes")
        .filter(|node| at(node, "/spec/unschedulable") != Some(&Value::Bool(true)) && holds(node, "Ready"));
    usable
        .map(|node| {
            let mut free = allocatable(node);
            for pod in world.pods_on(text(node, "/metadata/name")) {
                for (resource, amount) in requests(pod) {
                    *free.entry(resource).or_default() -= amount;
                }
                *free.entry("pods".into()).or_default() -= 1;
            }
            Host { node, free }
        })
        .collect()
}

fn first_fit(nodes: &mut [Host<'_>], pod: &Value) -> bool {
    let asked = requests(pod);
    let Some(host) = nodes.iter_mut().find(|host| host.takes(pod, &asked)) else { return false };
    for (resource, amount) in asked {
        *host.free.entry(resource).or_default() -= amount;
    }
    *host.free.entry("pods".into()).or_default() -= 1;
    true
}

fn gangs_are_whole(world: &World, _: &Activity) -> Result<(), String> {
    for (name, pods) in waiting_pods(world) {
        let gang = gang_of(world, pods[0]);
        let min = gang_size(world, pods[0]);
        let bound = pods.iter().filter(|pod| !text(pod, "/spec/nodeName").is_empty()).count();
        let ended = world.all("pods").filter(|pod| is_over(pod) && gang_of(world, pod) == gang).count();
        let bound_or_ended = i64::try_from(bound + ended).unwrap_or(i64::MAX);
        // Who grows goes on with the pods that it has while a place for the others is sought.
        let grows = world.workload_of_pod(pods[0]).is_some_and(|one| slices::grew_of_late(world, one));
        if bound > 0 && bound_or_ended < min && !grows {
            return Err(format!("{name} has {bound} of at least {min} members bound"));
        }
    }
    Ok(())
}

/// Whoever leads last finishes what predecessors began, and says so.
fn plans_end(world: &World, _: &Activity) -> Result<(), String> {
    let open = world.all(PLACEMENTS).find(|plan| {
        let phase = text(plan, "/status/phase");
        !matches!(phase, "Bound" | "Undone") && age(world, plan) > 120_000
    });
    match open {
        Some(plan) => Err(format!("{:?} is {:?}", key(plan), text(plan, "/status/phase"))),
        None => Ok(()),
    }
}

fn evicted_jobs_are_suspended(world: &World, _: &Activity) -> Result<(), String> {
    for (job, suspend) in managed_jobs(world).filter(|(job, _)| !has_ended(job)) {
        let Some(workload) = world.workload_of_owner(uid(job)) else { continue };
        let runs = at(job, suspend) != Some(&Value::Bool(true));
        if !holds(workload, "Admitted") && runs && !slices::is_pausing(workload) {
            return Err(format!("{:?} runs while its Workload is not admitted", key(job)));
        }
    }
    Ok(())
}

fn admitted_jobs_run(world: &World, _: &Activity) -> Result<(), String> {
    for (job, suspend) in managed_jobs(world).filter(|(job, _)| !has_ended(job)) {
        let Some(workload) = world.workload_of_owner(uid(job)) else { continue };
        if holds(workload, "Admitted") && at(job, suspend) == Some(&Value::Bool(true)) {
            return Err(format!("{:?} is suspended while its Workload is admitted", key(job)));
        }
    }
    Ok(())
}

/// Whether pods of a Workload have not ended.
fn has_pods(world: &World, workload: &Value) -> bool {
    world
        .all("pods")
        .any(|pod| !is_over(pod) && world.workload_of_pod(pod).is_some_and(|one| uid(one) == uid(workload)))
}

/// An evicted workload of which no pod is left holds nothing.
fn evicted_give_back(world: &World, _: &Activity) -> Result<(), String> {
    let stays = |workload: &&Value| {
        let since = world.turned(workload, "Evicted").filter(|_| holds(workload, "Evicted"));
        since.is_some_and(|since| world.now - since > 300_000)
            && !held(workload).is_empty()
            && !has_pods(world, workload)
    };
    match world.all(WORKLOADS).map(|one| &**one).find(stays) {
        Some(workload) => Err(format!("{:?} was evicted, has no pods, and keeps its quota", key(workload))),
        None => Ok(()),
    }
}

fn drained_queues_are_empty(world: &World, _: &Activity) -> Result<(), String> {
    for queue in world.all(CLUSTER_QUEUES).filter(|one| text(one, "/spec/stopPolicy") == "HoldAndDrain") {
        let name = text(queue, "/metadata/name");
        let stays = world.all(WORKLOADS).find(|one| {
            text(one, "/status/admission/clusterQueue") == name
                && !holds(one, "Finished")
                && !holds(one, "Evicted")
        });
        if let Some(workload) = stays {
            return Err(format!("{:?} still holds quota of {name}, which is drained", key(workload)));
        }
    }
    Ok(())
}

fn deleted_workloads_go(world: &World, _: &Activity) -> Result<(), String> {
    let lingers = |workload: &&Value| {
        let deleted = text(workload, "/metadata/deletionTimestamp").parse::<jiff::Timestamp>();
        deleted.is_ok_and(|deleted| world.now - deleted.as_millisecond() > 300_000)
            && !has_pods(world, workload)
    };
    match world.all(WORKLOADS).map(|one| &**one).find(lingers) {
        Some(workload) => Err(format!("{:?} was deleted, and is still there", key(workload))),
        None => Ok(()),
    }
}

fn what_ended_is_finished(world: &World, _: &Activity) -> Result<(), String> {
    for (job, _) in managed_jobs(world).filter(|(job, _)| has_ended(job)) {
        if let Some(workload) =
            world.workload_of_owner(uid(job)).filter(|workload| !holds(workload, "Finished"))
        {
            return Err(format!(
                "{:?} has ended, its Workload {:?} is not finished",
                key(job),
                key(workload)
            ));
        }
    }
    Ok(())
}

/// By the time all is calm every GPU has recovered, so every node must offer all it has.
fn nodes_advertise(world: &World, _: &Activity) -> Result<(), String> {
    for node in world.all("nodes") {
        let gpus = |list: &str| {
            amount(
                "nvidia.com/gpu",
                at(node, &format!("/status/{list}")).and_then(|list| list.get("nvidia.com/gpu")),
            )
        };
        let expected = text(node, "/metadata/labels/fuzz.trireme.dev~1gpus").parse().ok();
        if expected.is_some() && gpus("allocatable") != expected {
            return Err(format!(
                "{} offers {:?} GPUs of {expected:?}",
                text(node, "/metadata/name"),
                gpus("allocatable")
            ));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const GPU: &str = "nvidia.com/gpu";

    /// A queue of the cohort with this many GPUs of its own, what may be borrowed on top, and its LocalQueue.
    fn queue(name: &str, nominal: i64, limit: Option<i64>, strategy: &str) -> [(&'static str, Value); 2] {
        let mut quota = json!({ "name": GPU, "nominalQuota": nominal });
        limit.into_iter().for_each(|limit| quota["borrowingLimit"] = json!(limit));
        let groups = json!([{ "flavors": [{ "name": "gpu", "resources": [quota] }] }]);
        let spec = json!({ "cohortName": "pool", "queueingStrategy": strategy, "resourceGroups": groups });
        let local =
            json!({ "metadata": { "name": name, "namespace": "n" }, "spec": { "clusterQueue": name } });
        let metadata = json!({ "name": name, "uid": name });
        [(CLUSTER_QUEUES, json!({ "metadata": metadata, "spec": spec })), (LOCAL_QUEUES, local)]
    }

    fn waits(name: &str, queue: &str, gpus: i64) -> Value {
        let container = json!({ "resources": { "requests": { GPU: gpus.to_string() } } });
        let set =
            json!({ "name": "main", "count": 1, "template": { "spec": { "containers": [container] } } });
        let metadata = json!({ "name": name, "namespace": "n", "uid": name });
        json!({ "metadata": metadata, "spec": { "queueName": queue, "podSets": [set] } })
    }

    fn runs(name: &str, queue: &str, gpus: i64) -> Value {
        let mut workload = waits(name, queue, gpus);
        let usage = json!({ GPU: gpus.to_string() });
        let given = json!({ "name": "main", "count": 1, "flavors": { GPU: "gpu" }, "resourceUsage": usage });
        let admission = json!({ "clusterQueue": queue, "podSetAssignments": [given] });
        let conditions = json!([{ "type": "QuotaReserved", "status": "True" }]);
        workload["status"] = json!({ "admission": admission, "conditions": conditions });
        workload
    }

    /// Seed 14408: the clock of whoever put it off was an hour ahead.
    #[test]
    fn who_is_put_off_need_not_preempt() {
        for (until, is_blamed) in
            [(None, true), (Some("1970-01-01T00:30:00Z"), true), (Some("1970-01-01T00:58:48Z"), false)]
        {
            let [(kind, mut mine), local] = queue("mine", 4, None, "BestEffortFIFO");
            mine["spec"]["preemption"] = json!({ "withinClusterQueue": "LowerPriority" });
            let mut high = waits("high", "mine", 4);
            high["spec"]["priority"] = json!(10);
            high["status"] = json!({ "requeueState": { "count": 1, "requeueAt": until } });
            let flavor = (FLAVORS, json!({ "metadata": { "name": "gpu" } }));
            let low = (WORKLOADS, runs("low", "mine", 4));
            let mut world = World::holding([flavor, (kind, mine), local, low, (WORKLOADS, high)]);
            world.now = 1_900_000;
            let judged = what_may_preempt_is_admitted(&world, &Activity::default());
            assert_eq!(judged.is_err(), is_blamed, "{until:?}: {judged:?}");
        }
    }

    /// Of 28 GPUs 22 are used, 1 of what is left is the strict queue's.
    #[test]
    fn a_strict_queue_keeps_what_its_head_would_borrow() {
        for (asked, limit, left) in [
            (None, None, 6),
            (Some(1), None, 5),
            (Some(10), None, -4),
            (Some(10), Some(3), 2),
            (Some(10), Some(0), 5),
        ] {
            let mut all = vec![(FLAVORS, json!({ "metadata": { "name": "gpu" } }))];
            all.extend(queue("mine", 15, Some(2), "BestEffortFIFO"));
            all.extend(queue("strict", 13, limit, "StrictFIFO"));
            all.extend([(WORKLOADS, runs("a", "mine", 10)), (WORKLOADS, runs("b", "strict", 12))]);
            all.extend(asked.map(|gpus| (WORKLOADS, waits("head", "strict", gpus))));
            let world = World::holding(all);
            let mine = world.get(CLUSTER_QUEUES, "", "mine").unwrap();
            assert_eq!(free(&world, mine, GPU), left, "{asked:?} {limit:?}");
        }
    }

    #[test]
    fn a_deleted_workload_stays_only_for_its_pods() {
        for (has_pod, is_fine) in [(true, true), (false, false)] {
            let mut workload = waits("w", "mine", 1);
            workload["metadata"]["deletionTimestamp"] = json!("1970-01-01T00:00:00Z");
            workload["metadata"]["ownerReferences"] = json!([{ "uid": "j" }]);
            let job = json!({ "metadata": { "name": "j", "namespace": "n", "uid": "j" } });
            let owner = json!([{ "kind": "Job", "name": "j", "uid": "j", "controller": true }]);
            let pod = json!({ "metadata": { "name": "p", "namespace": "n", "ownerReferences": owner } });
            let pod = has_pod.then_some(("pods", pod));
            let mut world =
                World::holding([(WORKLOADS, workload), ("jobs.batch", job)].into_iter().chain(pod));
            world.now = 300_001;
            assert_eq!(deleted_workloads_go(&world, &Activity::default()).is_ok(), is_fine, "{has_pod}");
        }
    }
}
