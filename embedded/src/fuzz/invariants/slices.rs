//! Elastic jobs: their slices, and the pods that run on the quota of these.

use model::ResourceList;
use serde_json::Value;

use super::liveness::{Activity, age, asks, has_ended, managed_jobs};
use super::pods::is_gated;
use super::quota::held;
use crate::fuzz::world::{
    GRACE, POD_SET, SILENCE, Shared, WORKLOADS, World, Write, at, holds, is_over, items, key, text, uid,
};

/// The annotation of elastic jobs and of their slices, and the gate of their pods.
const ELASTIC: &str = "kueue.x-k8s.io/elastic-job";
const REPLACES: &str = "kueue.x-k8s.io/workload-slice-replacement-for";
const JOBS: &str = "jobs.batch";

fn annotation<'a>(object: &'a Value, name: &str) -> &'a str {
    let annotations = at(object, "/metadata/annotations");
    annotations.and_then(|all| all.get(name)).and_then(Value::as_str).unwrap_or_default()
}

/// Whether a job is resized while it runs, or a Workload is a slice of such a job.
pub(super) fn is_elastic(object: &Value) -> bool {
    annotation(object, ELASTIC) == "true"
}

/// Whether a slice replaces this Workload.
fn replaces(slice: &Value, other: &Value) -> bool {
    let (namespace, name) = key(other);
    annotation(slice, REPLACES) == format!("{namespace}/{name}")
}

/// The uid of the job of a slice.
fn owner(slice: &Value) -> &str {
    items(slice, "/metadata/ownerReferences").next().map_or("", |owner| text(owner, "/uid"))
}

/// The slices that belong to the same job as this one, without it.
fn others<'a>(world: &'a World, slice: &Value) -> Vec<&'a Shared> {
    world.workloads_of_owner(owner(slice)).filter(|one| uid(one) != uid(slice)).collect()
}

/// Whether another slice has quota in the place of this one: it is charged for both.
pub(super) fn is_succeeded(world: &World, slice: &Value) -> bool {
    let queue = text(slice, "/status/admission/clusterQueue");
    let takes_over = |next: &&Shared| {
        replaces(next, slice)
            && !held(next).is_empty()
            && text(next, "/status/admission/clusterQueue") == queue
    };
    is_elastic(slice) && !holds(slice, "Evicted") && others(world, slice).iter().any(takes_over)
}

/// The slice to which this one adds, while that has quota and stays, and no other has quota in its place.
pub(super) fn predecessor<'a>(world: &'a World, slice: &Value) -> Option<&'a Value> {
    let (namespace, name) = annotation(slice, REPLACES).split_once('/')?;
    let old = world.get(WORKLOADS, namespace, name)?;
    let is_taken = || others(world, slice).iter().any(|next| replaces(next, old) && !held(next).is_empty());
    (!holds(old, "Evicted") && !held(old).is_empty() && !is_taken()).then(|| &**old)
}

/// What a workload that waits asks for: of a slice what it has on top of the one that it replaces.
pub(super) fn needs(world: &World, workload: &Value) -> Option<ResourceList> {
    let mut asked = asks(workload)?;
    for ((_, resource), has) in predecessor(world, workload).map(held).unwrap_or_default() {
        if let Some(amount) = asked.get_mut(resource.as_str()) {
            *amount = (*amount - has).max(0);
        }
    }
    Some(asked)
}

/// For so long at least a gang is given the time to become whole, in milliseconds.
const PATIENCE: i64 = 120_000;

/// Whether a slice took over from a smaller one so short a time ago that not all of its pods need have places.
pub(super) fn grew_of_late(world: &World, slice: &Value) -> bool {
    let since = world.turned(slice, "Admitted").filter(|_| holds(slice, "Admitted"));
    !annotation(slice, REPLACES).is_empty() && since.is_some_and(|since| world.now - since < PATIENCE)
}

/// Whether another slice goes on in the place of this one.
pub(super) fn goes_on_in_another(world: &World, slice: &Value) -> bool {
    let goes_on = |one: &&Shared| !holds(one, "Finished") && !is_leaving(one);
    is_elastic(slice) && others(world, slice).iter().any(goes_on)
}

fn is_leaving(object: &Value) -> bool {
    at(object, "/metadata/deletionTimestamp").is_some()
}

/// Whether a new slice may come beside another Workload of its job: it is to replace that, or nobody could know of that yet.
pub(super) fn may_stand_beside(world: &World, new: &Value, other: &Value) -> bool {
    is_elastic(new) && is_elastic(other) && (replaces(new, other) || age(world, other) < GRACE)
}

/// Whether the job of a slice runs on although that is not admitted: it has its quota, took over from another, and has checks to
/// pass.
pub(super) fn is_pausing(slice: &Value) -> bool {
    is_elastic(slice)
        && !annotation(slice, REPLACES).is_empty()
        && holds(slice, "QuotaReserved")
        && !holds(slice, "Evicted")
}

/// The slices of the job with this uid that are admitted, as they are and as they were of late.
pub(super) fn admitted_of_late<'a>(world: &'a World, job: &str) -> Vec<&'a Shared> {
    let slices = world.workloads_of_owner(job).filter(|one| is_elastic(one));
    slices.flat_map(|slice| of_late(world, slice)).filter(|one| is_admitted(one)).collect()
}

/// A slice as it is, and as it was of late.
fn of_late<'a>(world: &'a World, slice: &Value) -> Vec<&'a Shared> {
    let (namespace, name) = key(slice);
    let versions = world.believable(WORKLOADS, &namespace, &name);
    versions.filter(|one| uid(one) == uid(slice)).collect()
}

fn is_admitted(slice: &Value) -> bool {
    holds(slice, "Admitted") && !holds(slice, "Finished")
}

/// How many pods of a set a slice has quota for: what was granted, or what is left of that when it has shrunk.
fn pods_of(slice: &Value, set: &str) -> i64 {
    let count = |list: &str| {
        let mut named = items(slice, list).filter(|one| one["name"] == set);
        named.next().and_then(|one| one["count"].as_i64())
    };
    let written = count("/spec/podSets").unwrap_or(0);
    count("/status/admission/podSetAssignments").map_or(written, |granted| granted.min(written))
}

/// How many pods a pod's elastic job has quota for, by its slices as they may still be known, also to somebody whose watch has fallen
/// silent; none of other pods.
pub(super) fn sizes_of_late(world: &World, pod: &Value) -> Vec<i64> {
    let size = |slice: &Shared| {
        items(slice, "/spec/podSets").map(|set| pods_of(slice, text(set, "/name"))).sum::<i64>()
    };
    let Some(slice) = world.workload_of_pod(pod).filter(|one| is_elastic(one)) else { return Vec::new() };
    let replaced = |one: &&Shared| {
        let over = world.turned(one, "Finished").filter(|_| holds(one, "Finished"));
        is_elastic(one) && over.is_some_and(|since| world.now - since <= SILENCE)
    };
    let replaced = world.workloads_of_owner(owner(slice)).filter(replaced);
    admitted_of_late(world, owner(slice)).into_iter().chain(replaced).map(size).collect()
}

fn is_of(pod: &Value, job: &Value) -> bool {
    items(pod, "/metadata/ownerReferences").any(|owner| owner["uid"] == uid(job))
}

/// Pods of a set of a job that have not ended and wait for no slice any more.
fn open_pods(world: &World, job: &Value, set: &str) -> i64 {
    let is_open = |pod: &&Shared| {
        is_of(pod, job)
            && text(pod, POD_SET) == set
            && !is_gated(pod, ELASTIC)
            && !is_over(pod)
            && !is_leaving(pod)
    };
    i64::try_from(world.all("pods").filter(is_open).count()).unwrap_or(i64::MAX)
}

/// No more pods of an elastic job are let go than a slice of it has quota for that is admitted.
pub(super) fn opened_within_grant(world: &World, write: &Write) -> Result<(), String> {
    let (Some(old), Some(new)) = (write.old.as_deref(), write.new.as_deref()) else { return Ok(()) };
    let opens = write.resource == "pods"
        && write.writer.starts_with("admission-controller")
        && is_gated(old, ELASTIC)
        && !is_gated(new, ELASTIC);
    if !opens {
        return Ok(());
    }
    let Some(job) = world.all(JOBS).find(|job| is_of(new, job)) else { return Ok(()) };
    let set = text(new, POD_SET);
    let open = open_pods(world, job, set);
    match admitted_of_late(world, uid(job)).into_iter().map(|slice| pods_of(slice, set)).max() {
        Some(granted) if open <= granted => Ok(()),
        Some(granted) => Err(format!("{:?} was let go as pod {open} of {granted}", write.key())),
        None => Err(format!("{:?} was let go, no slice of its job is admitted", write.key())),
    }
}

/// An elastic job is stopped for what became of its slices, never to be made smaller.
pub(super) fn stopped_for_a_reason(world: &World, write: &Write) -> Result<(), String> {
    let (Some(old), Some(new)) = (write.old.as_deref(), write.new.as_deref()) else { return Ok(()) };
    let is_suspended = |job: &Value| at(job, "/spec/suspend") == Some(&Value::Bool(true));
    let stops = write.resource == JOBS
        && write.writer.starts_with("admission-controller")
        && is_elastic(new)
        && !is_suspended(old)
        && is_suspended(new);
    if !stops {
        return Ok(());
    }
    let slices: Vec<Vec<&Shared>> =
        world.workloads_of_owner(uid(new)).map(|slice| of_late(world, slice)).collect();
    let has_cause = slices.iter().flatten().any(|one| holds(one, "Evicted") || is_leaving(one));
    match slices.iter().find(|versions| versions.iter().all(|one| is_admitted(one))) {
        Some(versions) if !has_cause => {
            let slice = versions.first().map(|one| key(one));
            Err(format!("{:?} was stopped, its slice {slice:?} is admitted and stays", write.key()))
        }
        _ => Ok(()),
    }
}

fn elastic_jobs(world: &World) -> impl Iterator<Item = &Value> {
    managed_jobs(world).map(|(job, _)| job).filter(|job| is_elastic(job) && !has_ended(job))
}

/// How many pods a job has at once.
fn size_of(job: &Value) -> i64 {
    let number = |field: &str| job["spec"][field].as_i64();
    let at_once = number("parallelism").unwrap_or(1);
    number("completions").map_or(at_once, |in_all| at_once.min(in_all))
}

/// At rest one slice describes an elastic job as it is. Beside it there is at most the one on whose quota the job runs until the other
/// has its own.
pub(super) fn one_describes_the_job(world: &World, _: &Activity) -> Result<(), String> {
    for job in elastic_jobs(world) {
        let lasting = world.workloads_of_owner(uid(job)).filter(|one| !holds(one, "Finished"));
        let (holding, waiting): (Vec<&Shared>, Vec<&Shared>) =
            lasting.partition(|one| holds(one, "QuotaReserved"));
        if holding.len() > 1 || waiting.len() > 1 {
            let count = holding.len() + waiting.len();
            return Err(format!("{:?} has {count} slices, {} with quota", key(job), holding.len()));
        }
        let Some(slice) = waiting.first().or(holding.first()) else { continue };
        let described: i64 = items(slice, "/spec/podSets").filter_map(|set| set["count"].as_i64()).sum();
        if described != size_of(job) {
            let size = size_of(job);
            return Err(format!("{:?} has {size} pods, {:?} {described}", key(job), key(slice)));
        }
    }
    Ok(())
}

/// At rest no pod of an elastic job waits at its gate while its slice has quota for it.
pub(super) fn granted_pods_are_let_go(world: &World, _: &Activity) -> Result<(), String> {
    for job in elastic_jobs(world) {
        let stands = |one: &&Shared| holds(one, "Admitted") && !holds(one, "Evicted");
        let Some(slice) = world.workload_of_owner(uid(job)).filter(stands) else { continue };
        let waits = |pod: &&Shared| {
            is_of(pod, job)
                && is_gated(pod, ELASTIC)
                && !is_leaving(pod)
                && age(world, pod) > 120_000
                && open_pods(world, job, text(pod, POD_SET)) < pods_of(slice, text(pod, POD_SET))
        };
        if let Some(pod) = world.all("pods").find(waits) {
            return Err(format!("{:?} waits, {:?} has quota for it", key(pod), key(slice)));
        }
    }
    Ok(())
}

#[cfg(test)]
pub(super) mod tests {
    use serde_json::json;

    use super::*;
    use crate::fuzz::invariants::{identity, quota, running};

    const GPU: &str = "nvidia.com/gpu";

    fn world(objects: &[(&str, Value)]) -> World {
        World::holding(objects.iter().cloned())
    }

    fn job(pods: i64, is_suspended: bool) -> Value {
        json!({
            "metadata": {
                "name": "j", "namespace": "n", "uid": "j", "annotations": { ELASTIC: "true" },
                "labels": { "kueue.x-k8s.io/queue-name": "q" },
            },
            "spec": { "parallelism": pods, "completions": 9, "suspend": is_suspended },
        })
    }

    /// A slice of so many pods of one GPU each, which was granted as many, if these conditions are true and one is that it was.
    pub(in crate::fuzz::invariants) fn slice(
        name: &str,
        pods: i64,
        replaces: &str,
        conditions: &[&str],
    ) -> Value {
        let conditions: Vec<Value> =
            conditions.iter().map(|kind| json!({ "type": kind, "status": "True" })).collect();
        let container = json!({ "resources": { "requests": { GPU: "1" } } });
        let template = json!({ "spec": { "containers": [container] } });
        let mut slice = json!({
            "metadata": {
                "name": name, "namespace": "n", "uid": name, "annotations": { ELASTIC: "true" },
                "ownerReferences": [{ "uid": "j", "controller": true }],
                "creationTimestamp": "1970-01-01T00:00:00Z",
            },
            "spec": { "queueName": "l", "podSets": [{ "name": "main", "count": pods, "template": template }] },
            "status": { "conditions": conditions },
        });
        if !replaces.is_empty() {
            slice["metadata"]["annotations"][REPLACES] = json!(format!("n/{replaces}"));
        }
        if holds(&slice, "QuotaReserved") {
            let given = json!({ "name": "main", "count": pods, "flavors": { GPU: "gpu" }, "resourceUsage": { GPU: pods } });
            slice["status"]["admission"] = json!({ "clusterQueue": "q", "podSetAssignments": [given] });
        }
        slice
    }

    pub(in crate::fuzz::invariants) const HELD: &[&str] = &["QuotaReserved", "Admitted"];
    const OVER: &[&str] = &["QuotaReserved", "Admitted", "Finished"];
    const GOING: &[&str] = &["QuotaReserved", "Admitted", "Evicted"];

    fn pod(name: &str, is_gated: bool) -> Value {
        let gates = if is_gated { json!([{ "name": ELASTIC }]) } else { json!([]) };
        json!({
            "metadata": {
                "name": name, "namespace": "n", "uid": name, "labels": { "kueue.x-k8s.io/podset": "main" },
                "ownerReferences": [{ "uid": "j", "controller": true }],
                "creationTimestamp": "1970-01-01T00:00:00Z",
            },
            "spec": { "schedulingGates": gates },
        })
    }

    fn of_job(slices: &[Value]) -> Vec<(&'static str, Value)> {
        slices.iter().map(|slice| (WORKLOADS, slice.clone())).collect()
    }

    #[test]
    fn what_a_slice_holds_that_another_has_taken_over_counts_once() {
        for (first, second, used, needed) in [
            (HELD, &[][..], 2, 1),
            (HELD, HELD, 3, 1),
            (OVER, HELD, 3, 3),
            // Its successor needs all of its quota: what leaves is not its to add to.
            (GOING, HELD, 5, 3),
        ] {
            let slices = [slice("a", 2, "", first), slice("b", 3, "a", second)];
            let world = world(&of_job(&slices));
            let total: i64 = quota::used(&world, "q").values().sum();
            let asked: i64 = needs(&world, &slices[1]).unwrap().values().sum();
            assert_eq!((total, asked), (used, needed), "{first:?} {second:?}");
        }
    }

    #[test]
    fn pods_are_let_go_as_far_as_a_slice_has_quota_for_them() {
        for (slices, open, is_fine) in [
            (vec![slice("a", 2, "", HELD)], 1, true),
            (vec![slice("a", 2, "", HELD)], 2, false),
            (vec![slice("a", 2, "", HELD), slice("b", 3, "a", &[])], 2, false),
            (vec![slice("a", 2, "", OVER), slice("b", 3, "a", HELD)], 2, true),
            (vec![slice("a", 2, "", &["QuotaReserved"])], 0, false),
        ] {
            let mut objects = of_job(&slices);
            objects.push((JOBS, job(3, false)));
            objects.extend((0..open).map(|index| ("pods", pod(&format!("open-{index}"), false))));
            objects.push(("pods", pod("new", true)));
            let mut world = world(&objects);
            let write = Write::by_a_replica(1, "pods", Some(pod("new", true)), pod("new", false));
            world.apply(&write);
            assert_eq!(opened_within_grant(&world, &write).is_ok(), is_fine, "{open} {slices:?}");
        }
    }

    #[test]
    fn a_job_whose_slice_stays_is_not_stopped() {
        let rises = [slice("a", 2, "", &[]), slice("a", 2, "", HELD)];
        for (slices, is_fine) in [
            (&[slice("a", 2, "", HELD)][..], false),
            (&[slice("a", 2, "", HELD), slice("b", 3, "a", &[])], false),
            (&[slice("a", 2, "", GOING), slice("b", 3, "a", &[])], true),
            (&[slice("a", 2, "", &[])], true),
            // It could not be known yet that it is admitted.
            (&rises, true),
        ] {
            let mut world = world(&[(JOBS, job(2, false))]);
            for (index, slice) in slices.iter().enumerate() {
                let same = |one: &&Value| uid(one) == uid(slice);
                let old = slices[..index].iter().find(same).cloned();
                world.apply(&Write::by_a_replica(0, WORKLOADS, old, slice.clone()));
            }
            let write = Write::by_a_replica(1, JOBS, Some(job(2, false)), job(1, true));
            world.apply(&write);
            assert_eq!(stopped_for_a_reason(&world, &write).is_ok(), is_fine, "{slices:?}");
        }
    }

    #[test]
    fn one_slice_describes_the_job_and_another_may_carry_it_until_then() {
        for (slices, is_fine) in [
            (vec![slice("a", 3, "", HELD)], true),
            (vec![slice("a", 2, "", HELD)], false),
            (vec![slice("a", 2, "", HELD), slice("b", 3, "a", &[])], true),
            (vec![slice("a", 2, "", HELD), slice("b", 3, "a", HELD)], false),
            (vec![slice("a", 2, "", OVER), slice("b", 3, "a", HELD)], true),
            (vec![slice("b", 3, "a", &[]), slice("c", 3, "a", &[])], false),
        ] {
            let mut objects = of_job(&slices);
            objects.push((JOBS, job(3, false)));
            let judged = one_describes_the_job(&world(&objects), &Activity::default());
            assert_eq!(judged.is_ok(), is_fine, "{slices:?}");
        }
    }

    #[test]
    fn whose_watch_is_silent_knows_the_slice_before_for_a_while() {
        for (later, sizes) in [(SILENCE, vec![3, 1]), (SILENCE + 1, vec![3])] {
            let mut world = world(&[(JOBS, job(3, false)), (WORKLOADS, slice("a", 1, "", HELD))]);
            world.apply(&Write::by_a_replica(0, WORKLOADS, None, slice("b", 3, "a", HELD)));
            world.apply(&Write::by_a_replica(
                1,
                WORKLOADS,
                Some(slice("a", 1, "", HELD)),
                slice("a", 1, "", &["Admitted", "Finished"]),
            ));
            world.now = 1 + later;
            let mut pod = pod("p", false);
            pod["metadata"]["ownerReferences"] =
                json!([{ "kind": "Job", "name": "j", "uid": "j", "controller": true }]);
            let mut known = sizes_of_late(&world, &pod);
            known.sort_unstable_by(|a, b| b.cmp(a));
            assert_eq!(known, sizes, "{later}");
        }
    }

    #[test]
    fn pods_that_have_quota_do_not_wait() {
        for (pods, open, is_fine) in [(2, 1, false), (2, 2, true)] {
            let mut objects = of_job(&[slice("a", pods, "", HELD)]);
            objects.push((JOBS, job(3, false)));
            objects.extend((0..open).map(|index| ("pods", pod(&format!("open-{index}"), false))));
            objects.push(("pods", pod("waits", true)));
            let mut world = world(&objects);
            world.now = 300_000;
            assert_eq!(
                granted_pods_are_let_go(&world, &Activity::default()).is_ok(),
                is_fine,
                "{pods} {open}"
            );
        }
    }

    #[test]
    fn a_slice_comes_beside_the_one_that_it_replaces_which_ends_before_their_job() {
        for (replaces, is_fine) in [("a", true), ("", false)] {
            let mut world = world(&[(JOBS, job(3, false)), (WORKLOADS, slice("a", 2, "", HELD))]);
            let second = Write::by_a_replica(GRACE, WORKLOADS, None, slice("b", 3, replaces, &[]));
            world.apply(&second);
            assert_eq!(identity::one_workload_each(&world, &second).is_ok(), is_fine, "{replaces:?}");
        }
        for (other, is_fine) in [(Some(slice("b", 3, "a", HELD)), true), (None, false)] {
            let mut world = world(&[(JOBS, job(3, false)), (WORKLOADS, slice("a", 2, "", HELD))]);
            if let Some(other) = &other {
                world.apply(&Write::by_a_replica(0, WORKLOADS, None, other.clone()));
            }
            let end =
                Write::by_a_replica(1, WORKLOADS, Some(slice("a", 2, "", HELD)), slice("a", 2, "", OVER));
            world.apply(&end);
            assert_eq!(running::finished_after_the_end(&world, &end).is_ok(), is_fine, "{other:?}");
        }
    }

    #[test]
    fn only_a_slice_that_took_over_leaves_its_job_running_while_its_checks_are_asked() {
        assert!(is_pausing(&slice("b", 2, "a", &["QuotaReserved"])));
        assert!(!is_pausing(&slice("a", 2, "", &["QuotaReserved"])));
        assert!(!is_pausing(&slice("b", 2, "a", &["QuotaReserved", "Evicted"])));
    }
}
