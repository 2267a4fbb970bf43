//! The rules of a gang: from its pods, their Workloads and its PodGroup.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crds::view;
use placement_engine::{Event, GangId, GangSpec, Hold, Unsupported};

use super::{Index, PodRecord, grant, read};

impl Index {
    /// Tells the engine the rules of a gang, and remembers its owner.
    pub(super) fn define(&mut self, gang: &GangId, events: &mut Vec<Event>) {
        let members = || self.members.get(gang).into_iter().flatten().filter_map(|uid| self.pods.get(uid));
        let first = members().next();
        let mut spec = GangSpec {
            id: gang.clone(),
            min_member: 1,
            expected: 1,
            created_ms: first.map_or(0, |record| record.created_ms),
            priority: None,
            roles: BTreeMap::new(),
            hold: None,
        };
        let group = first.and_then(|record| record.group.clone()).or_else(|| {
            self.owners.get(gang).filter(|owner| owner.kind == "PodGroup").map(|owner| owner.key.clone())
        });
        // A gang that is no PodGroup's has one Workload or none; a PodGroup's pods may have several.
        let some = if group.is_some() { usize::MAX } else { 1 };
        let workloads = self.workloads_of(members().take(some));
        let own_set = first.filter(|_| group.is_none()).and_then(|record| self.own_pod_set(record));
        let mut owner = None;
        for uid in &workloads {
            let Some(record) = self.workloads.get(uid) else { continue };
            let of_gang = |grant: &&grant::Grant| own_set.is_none_or(|set| grant.pod_set == set);
            let granted = record
                .grants
                .iter()
                .filter(of_gang)
                .fold(0, |sum: i64, grant| sum.saturating_add(grant.together));
            let granted = match record.starts {
                super::Together::Nothing => 1,
                super::Together::All | super::Together::PodSet => {
                    u32::try_from(granted.max(0)).unwrap_or(u32::MAX)
                }
            };
            spec.min_member = if owner.is_some() { spec.min_member.max(granted) } else { granted };
            spec.created_ms = record.created_ms;
            owner = Some(read::workload_owner(&record.key, uid));
        }
        if let Some(key) = group {
            match self.groups.get(&key) {
                Some(group) => {
                    let granted = owner.is_some().then_some(spec.min_member);
                    self.apply_group(&key.1, &group.view, &mut spec);
                    let minimum = spec.min_member;
                    spec.min_member = granted.map_or(minimum, |granted| granted.max(minimum));
                    let mut group = read::group_owner(&key, &group.uid);
                    group.disagreement =
                        granted.filter(|granted| *granted != minimum).map(|granted| (minimum, granted));
                    owner = Some(group);
                }
                None => spec.hold = Some(Hold::PodGroupMissing { name: key.1 }),
            }
        }
        if let Some(owner) = owner {
            self.owners.insert(gang.clone(), owner);
        }
        spec.expected = spec.min_member;
        events.push(Event::GangApplied(spec));
    }

    fn workloads_of<'a>(&self, pods: impl Iterator<Item = &'a PodRecord>) -> BTreeSet<Arc<str>> {
        pods.filter_map(|record| self.workload_of(record)).collect()
    }

    /// What a PodGroup says of its gang. What it asks for that is not supported holds the gang back.
    fn apply_group(&self, name: &Arc<str>, group: &view::PodGroup, spec: &mut GangSpec) {
        let wished = &group.spec;
        let negative = |field: &str, count: i64| Hold::Invalid {
            problem: format!("PodGroup {name}: {field} is {count}; it must be 0 or more").into(),
        };
        let bad_task = wished.min_task_member.iter().find(|(_, count)| **count < 0);
        spec.hold = if wished.min_member < 0 {
            Some(negative("spec.minMember", wished.min_member))
        } else if let Some((task, count)) = bad_task {
            Some(negative(&format!("spec.minTaskMember[{task}]"), *count))
        } else if wished.network_topology.as_ref().is_some_and(|topology| topology.mode != "soft") {
            Some(Hold::Unsupported(Unsupported::NetworkTopology))
        } else if !wished.sub_group_policy.is_empty() {
            Some(Hold::Unsupported(Unsupported::SubGroups))
        } else {
            None
        };
        let bounded = |count: i64| u32::try_from(count.max(0)).unwrap_or(u32::MAX);
        spec.min_member = bounded(wished.min_member);
        spec.roles = wished
            .min_task_member
            .iter()
            .map(|(task, count)| (Arc::from(task.as_str()), bounded(*count)))
            .collect();
        spec.priority = self.priorities.get(&wished.priority_class_name).copied();
        spec.created_ms = read::created_ms(&group.metadata);
    }
}

/// Whether two minima disagree, in words.
pub(crate) fn disagreement((group, granted): (u32, u32)) -> String {
    format!(
        "spec.minMember is {group}; of the pods that their Workload was granted {granted} start together; at least {} are waited for",
        group.max(granted)
    )
}
