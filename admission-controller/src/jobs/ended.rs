//! Pods that have ended and will not run again, as the job's status tells it.

use std::collections::BTreeMap;

use crds::names::kueue;
use crds::view::workload::ReclaimablePod;
use serde_json::Value;

use super::read::{MAX_POD_SETS, count, parallel};
use super::table::{Ended, PodSets};
use super::{JobKind, JobObject};

/// Those of each pod set that has any; `None` where the kind does not tell.
pub(super) fn reclaimable(kind: &JobKind, object: &JobObject) -> Option<Vec<ReclaimablePod>> {
    match (&kind.ended, &kind.pod_sets) {
        (Ended::Pods { succeeded, mode, indexes }, PodSets::Single { parallelism, completions, .. }) => {
            let at_once = parallel(object, parallelism, completions).ok()?;
            let in_all = count(object, completions).ok()?;
            let in_all = in_all.or(count(object, parallelism).ok()?).unwrap_or(1);
            let over = match object.text(mode) {
                "Indexed" => indexes_below(in_all, object, indexes),
                _ => object.at(succeeded).and_then(Value::as_i64).unwrap_or(0),
            };
            let left = in_all.saturating_sub(over).max(0);
            // What is left to be done may need all pods still.
            let free = if over > 0 && at_once > 1 { at_once.saturating_sub(left) } else { 0 };
            let name = kueue::DEFAULT_PODSET.to_owned();
            Some((free > 0).then_some(ReclaimablePod { name, count: free }).into_iter().collect())
        }
        (
            Ended::Jobs { at, name, succeeded },
            PodSets::Jobs { at: sets, name: set_name, replicas, parallelism, completions, .. },
        ) => {
            let length = object.length(sets).min(MAX_POD_SETS);
            let mut status = BTreeMap::new();
            for entry in object.at(at).and_then(Value::as_array)? {
                let name = entry.pointer(name).and_then(Value::as_str).unwrap_or_default();
                status.entry(name).or_insert(entry);
            }
            let of_set = |index: usize| {
                let here = |rest: &str| format!("{sets}/{index}{rest}");
                let name_of_set = object.at(&here(set_name)).and_then(Value::as_str)?;
                let entry = status.get(name_of_set)?;
                let over = entry.pointer(succeeded).and_then(Value::as_i64)?;
                let jobs = count(object, &here(replicas)).ok()?.unwrap_or(1);
                let pods = parallel(object, &here(parallelism), &here(completions)).ok()?;
                let count = over.checked_mul(pods).filter(|_| over > 0 && over <= jobs)?;
                Some(ReclaimablePod { name: name_of_set.to_owned(), count })
            };
            Some((0..length).filter_map(of_set).collect())
        }
        _ => None,
    }
}

/// How many indexes below `end` are in any of these lists, each counted once.
fn indexes_below(end: i64, object: &JobObject, lists: &[&str]) -> i64 {
    let lists = lists.iter().filter_map(|at| object.at(at).and_then(Value::as_str));
    let range = |text: &str| {
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        let (first, last): (i64, i64) = (first.parse().ok()?, last.parse().ok()?);
        (0 <= first && first <= last).then_some((first, last.min(end - 1)))
    };
    let mut ranges: Vec<(i64, i64)> = lists.flat_map(|list| list.split(',')).filter_map(range).collect();
    ranges.sort_unstable();
    let (mut counted, mut next) = (0i64, 0i64);
    for (first, last) in ranges {
        let first = first.max(next);
        if first <= last {
            counted += last - first + 1;
            next = last + 1;
        }
    }
    counted
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::jobs::table;

    fn told(owner: (&str, &str), object: Value) -> Vec<(String, i64)> {
        let kind = table::of_owner(owner.0, owner.1).unwrap();
        let object: JobObject = serde_json::from_value(object).unwrap();
        reclaimable(kind, &object).unwrap().into_iter().map(|one| (one.name, one.count)).collect()
    }

    #[test]
    fn a_job_gives_back_what_the_rest_does_not_need() {
        for (parallelism, completions, succeeded, free) in [
            (Some(3), Some(3), 0, 0),
            (Some(3), Some(3), 1, 1),
            (Some(3), None, 2, 2),
            // Seven are left for three at a time.
            (Some(3), Some(10), 3, 0),
            (Some(3), Some(10), 8, 1),
            (Some(3), Some(10), 12, 3),
            // Only two run at a time.
            (Some(5), Some(2), 1, 1),
            (Some(1), Some(1), 1, 0),
        ] {
            let spec = json!({ "parallelism": parallelism, "completions": completions });
            let job = json!({ "spec": spec, "status": { "succeeded": succeeded } });
            let expected: Vec<_> = (free > 0).then(|| ("main".to_owned(), free)).into_iter().collect();
            assert_eq!(
                told(("batch/v1", "Job"), job),
                expected,
                "{parallelism:?} {completions:?} {succeeded}"
            );
        }
    }

    #[test]
    fn indexes_that_failed_for_good_count_and_none_counts_twice() {
        let spec = json!({ "parallelism": 6, "completions": 6, "completionMode": "Indexed" });
        let status = json!({ "completedIndexes": "0-1,3,9", "failedIndexes": "1,4-7,x,5-4", "succeeded": 6 });
        let job = json!({ "spec": spec, "status": status });
        assert_eq!(told(("batch/v1", "Job"), job), [("main".to_owned(), 5)]);
    }

    #[test]
    fn a_jobset_gives_back_whole_jobs() {
        let set = |name: &str, replicas: i64| json!({ "name": name, "replicas": replicas, "template": { "spec": { "parallelism": 4, "completions": 2 } } });
        let over = |name: &str, succeeded: i64| json!({ "name": name, "succeeded": succeeded });
        let jobset = json!({
            "spec": { "replicatedJobs": [set("a", 3), set("b", 1), set("c", 1)] },
            "status": { "replicatedJobsStatus": [over("a", 2), over("b", 0), over("c", 5)] },
        });
        assert_eq!(told(("jobset.x-k8s.io/v1alpha2", "JobSet"), jobset), [("a".to_owned(), 4)]);
    }
}
