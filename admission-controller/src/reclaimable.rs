//! Pods that have ended and will not run again: their quota is free while the rest of the job goes on (KEP-78).

use std::collections::BTreeMap;

use crds::view::workload::{PodSet, ReclaimablePod, Workload};

use crate::requests::Rules;
use crate::slices;

/// Pods of each set that still need quota. A job that was scaled down can have had more pods that ended than it has now.
pub fn remaining<'a>(view: &'a Workload, rules: &Rules) -> BTreeMap<&'a str, i64> {
    let ended = |name: &str| {
        let ended = view.status.reclaimable_pods.iter().find(|one| one.name == name);
        ended.filter(|_| !rules.ignores_reclaimable()).map_or(0, |one| one.count)
    };
    let left = |set: &'a PodSet| {
        let count = set.count.unwrap_or(1);
        (set.name.as_str(), count - ended(&set.name).clamp(0, count.max(0)))
    };
    view.spec.pod_sets.iter().map(left).collect()
}

/// What a job reports, no more than each pod set has pods: the API server would refuse it.
pub fn limited(reported: &[ReclaimablePod], pod_sets: &[PodSet]) -> Vec<ReclaimablePod> {
    let limited = |one: &ReclaimablePod| {
        let set = pod_sets.iter().find(|set| set.name == one.name);
        let most = set.map_or(i64::MAX, |set| set.count.unwrap_or(1));
        ReclaimablePod { name: one.name.clone(), count: one.count.min(most) }
    };
    reported.iter().map(limited).collect()
}

/// Whether two reports say the same, in whatever order.
pub fn same(a: &[ReclaimablePod], b: &[ReclaimablePod]) -> bool {
    let by_name = |list: &[ReclaimablePod]| -> BTreeMap<String, i64> {
        list.iter().map(|one| (one.name.clone(), one.count)).collect()
    };
    a.len() == b.len() && by_name(a) == by_name(b)
}

/// What is to be written of a job's report; `None` where the Workload says so already, or where its reservation forbids
/// that numbers become smaller. Where a job shrank that may be resized they are counted anew: what is left to be done may need
/// all the pods that it still has.
pub fn news(view: &Workload, reported: &[ReclaimablePod], reserved: bool) -> Option<Vec<ReclaimablePod>> {
    let said = &view.status.reclaimable_pods;
    let wanted = limited(reported, &view.spec.pod_sets);
    let shrinks = |before: &&ReclaimablePod| {
        let now = wanted.iter().find(|one| one.name == before.name);
        now.is_none_or(|now| now.count < before.count)
    };
    let is_forbidden = reserved && said.iter().filter(shrinks).any(|one| !has_shrunk(view, &one.name));
    let settled = same(&wanted, said) || is_forbidden;
    (!settled).then_some(wanted)
}

/// Of a slice whose job shrank, the pods of which both its Workload and its job say that they have ended; `None` where the Workload says
/// no more than the job. The counts of the one are written before the other is: what was said of more pods than there are now would
/// set quota free of which those that are left run.
pub fn agreed(view: &Workload, reported: &[ReclaimablePod]) -> Option<Vec<ReclaimablePod>> {
    let told = |name: &str| reported.iter().find(|one| one.name == name).map_or(0, |one| one.count);
    let most = |name: &str| if has_shrunk(view, name) { told(name) } else { i64::MAX };
    let said = &view.status.reclaimable_pods;
    let agreed = said.iter().map(|one| {
        let count = one.count.min(most(&one.name));
        ReclaimablePod { name: one.name.clone(), count }
    });
    let agreed: Vec<_> = agreed.collect();
    (!same(&agreed, said)).then_some(agreed)
}

/// Whether a pod set of an elastic job has fewer pods than it was admitted with.
fn has_shrunk(view: &Workload, name: &str) -> bool {
    let mut granted = view.status.admission.iter().flat_map(|admission| &admission.pod_set_assignments);
    let granted = granted.find(|one| one.name == name).and_then(|one| one.count);
    let set = view.spec.pod_sets.iter().find(|set| set.name == name);
    let left = set.map_or(0, |set| set.count.unwrap_or(1));
    slices::is_slice(view) && granted.is_some_and(|granted| granted > left)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compose::Priorities;
    use crate::defaults::PodDefaults;
    use crate::input::{self, Texts};

    fn pods(counts: &[(&str, i64)]) -> Vec<ReclaimablePod> {
        counts
            .iter()
            .map(|(name, count)| ReclaimablePod { name: (*name).to_owned(), count: *count })
            .collect()
    }

    #[test]
    fn who_is_admitted_in_part_is_given_fewer_than_all_there_were() {
        let mut view = Workload::default();
        let set = |name: &str, least| PodSet {
            name: name.into(),
            count: Some(4),
            min_count: least,
            ..PodSet::default()
        };
        view.spec.pod_sets = [set("a", Some(3)), set("b", None)].into();
        view.status.reclaimable_pods = pods(&[("a", 3), ("b", 1)]);
        let told = input::workload(
            Texts::from(&view),
            &view,
            &Rules::default(),
            &PodDefaults::default(),
            &Priorities::default(),
        );
        let counts: Vec<_> = told.pod_sets.iter().map(|one| (one.count, one.done, one.min_count)).collect();
        assert_eq!(counts, [(1, 3, Some(3)), (3, 1, None)]);
    }

    #[test]
    fn a_report_is_written_once_and_never_shrinks_under_a_reservation() {
        let mut view = Workload::default();
        view.spec.pod_sets =
            [PodSet { name: "a".into(), count: Some(3), ..PodSet::default() }, PodSet::default()].into();
        view.status.reclaimable_pods = pods(&[("a", 2)]);
        for (reported, reserved, written) in [
            (pods(&[("a", 2)]), true, None),
            (pods(&[("a", 9)]), true, Some(pods(&[("a", 3)]))),
            (pods(&[("a", 1)]), true, None),
            (pods(&[]), false, Some(pods(&[]))),
        ] {
            assert_eq!(news(&view, &reported, reserved), written, "{reported:?} {reserved}");
        }
        assert_eq!(remaining(&view, &Rules::default())["a"], 1);
        view.status.reclaimable_pods = pods(&[("a", 7)]);
        assert_eq!(remaining(&view, &Rules::default())["a"], 0);
        view.status.reclaimable_pods = pods(&[("a", 0)]);
        assert_eq!(news(&view, &[], true), None, "an entry stays, whatever it says");
    }

    #[test]
    fn pods_of_an_elastic_job_that_shrank_are_counted_anew() {
        let workload = |elastic: &str, granted: i64| -> Workload {
            serde_json::from_value(serde_json::json!({
                "metadata": { "annotations": { "kueue.x-k8s.io/elastic-job": elastic } },
                "spec": { "podSets": [{ "name": "a", "count": 3 }, { "name": "b", "count": 5 }] },
                "status": {
                    "admission": { "clusterQueue": "cq", "podSetAssignments": [
                        { "name": "a", "count": granted }, { "name": "b", "count": 5 },
                    ]},
                    "reclaimablePods": [{ "name": "a", "count": 2 }, { "name": "b", "count": 1 }],
                },
            }))
            .unwrap()
        };
        let (all, less) = (pods(&[("b", 1)]), pods(&[]));
        for (elastic, granted, reported, written) in [
            ("true", 5, &all, Some(&all)),
            // The other set has as many pods as it was given.
            ("true", 5, &less, None),
            ("true", 3, &all, None),
            ("false", 5, &all, None),
        ] {
            let view = workload(elastic, granted);
            assert_eq!(news(&view, reported, true).as_ref(), written, "{elastic} {granted} {reported:?}");
        }
    }
}
