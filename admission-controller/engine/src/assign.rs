//! Flavors for one workload: for each pod set and each resource group the first flavor that serves, or the least costly.
//!
//! Rules: Kueue `pkg/scheduler/flavorassigner`.

use std::collections::BTreeSet;

use model::node::{NodeSelector, NodeSelectorTerm, Toleration, first_untolerated};
use model::selector::Labels;
use model::{ResourceList, ResourceName};

use crate::engine::{Engine, Undeclared};
use crate::input::{
    Admission, BorrowWithinCohort, ClusterQueue, Flavor, FlavorQuotas, Fungibility, PodSet, PodSetAssignment,
    Preference, ResourceGroup, Search,
};
use crate::names::{ClusterQueueName, FlavorName, Uid};
use crate::preempt::{Search as VictimSearch, Target};
use crate::reason::{Obstacle, PodSetObstacles, can_wait};
use crate::tree::{FlavorResource, Ledger, NodeId, Usage};

/// How a workload could get its quota.
#[derive(Clone, Debug)]
pub(crate) enum Verdict {
    /// Now.
    Fit,
    /// When those who were already told to leave have left.
    Wait,
    /// When these have left.
    Preempt(Vec<Target>),
}

/// Where a workload's quota would come from.
#[derive(Clone, Debug)]
pub(crate) struct Assignment {
    pub(crate) admission: Admission,
    pub(crate) usage: Usage,
    pub(crate) verdict: Verdict,
    /// How far up the tree it borrows; 0 within its queue's own quota.
    pub(crate) height: u32,
}

/// Why it gets none.
#[derive(Clone, Debug)]
pub(crate) struct NoFit {
    pub(crate) obstacles: Vec<PodSetObstacles>,
    /// What it would use, if it has a right to preempt and only lacks victims.
    pub(crate) entitled_to: Option<Usage>,
    /// How far up the tree it would borrow.
    pub(crate) height: u32,
}

/// What is to be assigned.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Ask<'a> {
    /// How many pods of each pod set; `None` is all.
    pub(crate) counts: Option<&'a [i64]>,
    /// Only the flavors that it was found before.
    pub(crate) pinned: Option<&'a Admission>,
}

/// How well one flavor serves; later is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Mode {
    NoFit,
    NoCandidates,
    Preempt,
    Reclaim,
    Wait,
    Fit,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Grade {
    mode: Mode,
    height: u32,
}

impl Grade {
    const BEST: Self = Self { mode: Mode::Fit, height: 0 };

    /// The worst of a flavor's resources is what the flavor is worth.
    fn worst(self, other: Self) -> Self {
        Self { mode: self.mode.min(other.mode), height: self.height.max(other.height) }
    }

    fn is_better_than(self, other: Self, preference: Preference) -> bool {
        // Where nobody can be displaced, borrowing less is no merit.
        if self.mode.min(other.mode) <= Mode::NoCandidates {
            return (self.mode, other.height) > (other.mode, self.height);
        }
        match preference {
            Preference::BorrowingOverPreemption => (self.mode, other.height) > (other.mode, self.height),
            Preference::PreemptionOverBorrowing => (other.height, self.mode) > (self.height, other.mode),
        }
    }

    fn will_do(self, fungibility: &Fungibility) -> bool {
        match self.mode {
            Mode::NoFit | Mode::NoCandidates => return false,
            Mode::Preempt | Mode::Reclaim | Mode::Wait if fungibility.when_can_preempt == Search::TryNext => {
                return false;
            }
            _ => {}
        }
        self.height == 0 || fungibility.when_can_borrow == Search::MayStop
    }
}

/// One workload's search.
struct Assigner<'a> {
    engine: &'a mut Engine,
    uid: &'a Uid,
    queue: &'a ClusterQueue,
    node: NodeId,
    pinned: Option<&'a Admission>,
    usage: Usage,
    grade: Grade,
}

impl Engine {
    /// Finds quota for a workload that waits in `name`. Changes nothing but interned names and the queue's note that a
    /// search passed over assumed workloads.
    pub(crate) fn assign_asked(
        &mut self,
        uid: &Uid,
        name: &ClusterQueueName,
        ask: Ask<'_>,
    ) -> Result<Assignment, NoFit> {
        let nothing = || NoFit { obstacles: Vec::new(), entitled_to: None, height: 0 };
        let node = self.queue(name).node;
        let Some(queue) = self.queue(name).spec.clone() else { return Err(nothing()) };
        let Some(mut pod_sets) = self.workloads.get(uid).map(|record| record.workload.pod_sets.clone())
        else {
            return Err(nothing());
        };
        for (pod_set, count) in pod_sets.iter_mut().zip(ask.counts.into_iter().flatten()) {
            pod_set.count = *count;
        }
        let mut assigner = Assigner {
            engine: self,
            uid,
            queue: &queue,
            node,
            pinned: ask.pinned,
            usage: Usage::new(),
            grade: Grade::BEST,
        };
        let mut assigned = Vec::new();
        let mut failed = Vec::new();
        for pod_set in &pod_sets {
            let (assignment, obstacles) = assigner.pod_set(pod_set);
            assigned.push(assignment);
            if !obstacles.is_empty() {
                failed.push(PodSetObstacles { pod_set: pod_set.name.clone(), obstacles });
            }
        }
        let Assigner { usage, grade, .. } = assigner;
        if grade.mode == Mode::NoFit {
            return Err(NoFit { obstacles: failed, entitled_to: None, height: grade.height });
        }
        if grade.mode == Mode::NoCandidates {
            return Err(NoFit { obstacles: failed, entitled_to: Some(usage), height: grade.height });
        }
        let verdict = match self.verdict(uid, name, node, &usage) {
            Some(verdict) => verdict,
            None => {
                let obstacles = self.lacking(&pod_sets, &assigned, node);
                return Err(NoFit { obstacles, entitled_to: Some(usage), height: grade.height });
            }
        };
        let admission = Admission { cluster_queue: name.clone(), pod_sets: assigned };
        Ok(Assignment { admission, usage, verdict, height: grade.height })
    }

    /// What it takes for the whole of `usage` to fit: single resources were judged one by one before.
    fn verdict(
        &mut self,
        uid: &Uid,
        name: &ClusterQueueName,
        node: NodeId,
        usage: &Usage,
    ) -> Option<Verdict> {
        if self.fits(node, usage, Ledger::Planned) {
            return Some(if self.fits(node, usage, Ledger::Held) { Verdict::Fit } else { Verdict::Wait });
        }
        let targets = VictimSearch::new(self, uid, name, usage).run();
        (!targets.is_empty()).then_some(Verdict::Preempt(targets))
    }

    pub(crate) fn fits(&self, node: NodeId, usage: &Usage, ledger: Ledger) -> bool {
        usage
            .iter()
            .filter(|(_, amount)| **amount > 0)
            .all(|(pair, amount)| i128::from(*amount) <= self.tree.available(node, *pair, ledger))
    }

    fn lacking(
        &mut self,
        pod_sets: &[PodSet],
        assigned: &[PodSetAssignment],
        node: NodeId,
    ) -> Vec<PodSetObstacles> {
        let mut before = Usage::new();
        let mut lacking = Vec::new();
        for (pod_set, assignment) in pod_sets.iter().zip(assigned) {
            let mut obstacles = Vec::new();
            for (resource, amount) in &assignment.usage {
                let Some(flavor) = assignment.flavors.get(resource) else { continue };
                let pair = self.tree.pair(flavor, resource);
                let sum = before.entry(pair).or_insert(0);
                *sum = sum.saturating_add(*amount);
                let missing = i128::from(*sum) - self.room(node, pair);
                if missing > 0 && *amount > 0 {
                    obstacles.push(insufficient(flavor, resource, missing));
                }
            }
            if !obstacles.is_empty() {
                obstacles.sort();
                lacking.push(PodSetObstacles { pod_set: pod_set.name.clone(), obstacles });
            }
        }
        lacking
    }

    /// What may be taken without anybody leaving who was not told to.
    pub(crate) fn room(&self, node: NodeId, pair: FlavorResource) -> i128 {
        self.tree.available(node, pair, Ledger::Held).min(self.tree.available(node, pair, Ledger::Planned))
    }
}

fn insufficient(flavor: &FlavorName, resource: &ResourceName, missing: i128) -> Obstacle {
    Obstacle::Insufficient {
        flavor: flavor.clone(),
        resource: resource.clone(),
        missing: i64::try_from(missing).unwrap_or(i64::MAX),
    }
}

impl Assigner<'_> {
    /// Assigns one pod set, and tells what stood in the way where something did.
    fn pod_set(&mut self, pod_set: &PodSet) -> (PodSetAssignment, Vec<Obstacle>) {
        let mut assignment = PodSetAssignment {
            name: pod_set.name.clone(),
            count: pod_set.count,
            ..PodSetAssignment::default()
        };
        let mut obstacles = Vec::new();
        let totals = self.totals(pod_set);
        let queue = self.queue;
        let covered: BTreeSet<&ResourceName> = queue.groups.iter().flat_map(|group| &group.covered).collect();
        let ignore = self.engine.settings.undeclared == Undeclared::Ignore;
        for (resource, amount) in totals.iter().filter(|_| !ignore) {
            if *amount > 0 && !covered.contains(resource) && resource.as_str() != ResourceName::PODS {
                obstacles.push(Obstacle::ResourceNotCovered(resource.clone()));
                self.grade.mode = Mode::NoFit;
            }
        }
        let mut by_group = Vec::new();
        for group in &queue.groups {
            let asked: ResourceList = totals
                .iter()
                .filter(|(resource, _)| group.covered.contains(resource))
                .map(|(resource, amount)| (resource.clone(), *amount))
                .collect();
            if !asked.is_empty() {
                let mut met = Vec::new();
                self.group(pod_set, group, &asked, &mut assignment, &mut met);
                by_group.push(met);
            }
        }
        // Where one group can never serve, it does not help that another may some day.
        let hopeless = |met: &Vec<Obstacle>| !met.is_empty() && !can_wait(met);
        if by_group.iter().any(hopeless) || !obstacles.is_empty() {
            by_group.retain(hopeless);
        }
        obstacles.extend(by_group.into_iter().flatten());
        obstacles.sort();
        obstacles.dedup();
        (assignment, obstacles)
    }

    /// What all pods of the set use together. The input is checked (`Workload::defect`), so nothing saturates here.
    fn totals(&self, pod_set: &PodSet) -> ResourceList {
        let mut totals: ResourceList = pod_set
            .requests
            .iter()
            .map(|(resource, amount)| (resource.clone(), amount.saturating_mul(pod_set.count)))
            .collect();
        totals.insert(ResourceName::new(ResourceName::PODS), pod_set.count);
        totals
    }

    fn group(
        &mut self,
        pod_set: &PodSet,
        group: &ResourceGroup,
        asked: &ResourceList,
        assignment: &mut PodSetAssignment,
        obstacles: &mut Vec<Obstacle>,
    ) {
        let mut best: Option<(Grade, &FlavorName)> = None;
        let mut met = Vec::new();
        for quotas in &group.flavors {
            if self.was_another(pod_set, asked, &quotas.flavor) {
                continue;
            }
            let Some(flavor) = self.engine.flavors.get(&quotas.flavor) else {
                met.push(Obstacle::FlavorNotFound(quotas.flavor.clone()));
                continue;
            };
            if let Some(obstacle) = unsuitable(flavor, pod_set) {
                met.push(obstacle);
                continue;
            }
            let grade = self.grade_flavor(quotas, asked, &mut met);
            let better =
                best.is_none_or(|(known, _)| grade.is_better_than(known, self.queue.fungibility.preference));
            if better {
                best = Some((grade, &quotas.flavor));
            }
            if grade.will_do(&self.queue.fungibility) {
                break;
            }
        }
        let (grade, flavor) = match best {
            Some((grade, flavor)) if grade.mode != Mode::NoFit => (grade, flavor),
            _ => {
                self.grade.mode = Mode::NoFit;
                obstacles.append(&mut met);
                return;
            }
        };
        self.grade = self.grade.worst(grade);
        if grade.mode == Mode::NoCandidates {
            obstacles.append(&mut met);
        }
        for (resource, amount) in asked {
            let pair = self.engine.tree.pair(flavor, resource);
            let sum = self.usage.entry(pair).or_insert(0);
            *sum = sum.saturating_add(*amount);
            assignment.flavors.insert(resource.clone(), flavor.clone());
            assignment.usage.insert(resource.clone(), *amount);
        }
    }

    /// Whether a search that is repeated within a cycle had chosen another flavor for these resources.
    fn was_another(&self, pod_set: &PodSet, asked: &ResourceList, flavor: &FlavorName) -> bool {
        let before =
            self.pinned.and_then(|pinned| pinned.pod_sets.iter().find(|one| one.name == pod_set.name));
        before.is_some_and(|before| {
            asked.keys().next().and_then(|resource| before.flavors.get(resource)) != Some(flavor)
        })
    }

    fn grade_flavor(
        &mut self,
        quotas: &FlavorQuotas,
        asked: &ResourceList,
        met: &mut Vec<Obstacle>,
    ) -> Grade {
        let mut grade = Grade::BEST;
        for (resource, amount) in asked {
            let pair = self.engine.tree.pair(&quotas.flavor, resource);
            let previously = self.usage.get(&pair).copied().unwrap_or(0);
            let one = self.grade_resource(pair, *amount, previously);
            let total = i128::from(previously) + i128::from(*amount);
            let maximum = self.engine.tree.maximum(self.node, pair);
            match one.mode {
                Mode::NoFit if total > maximum => met.push(Obstacle::ExceedsMaximum {
                    flavor: quotas.flavor.clone(),
                    resource: resource.clone(),
                    requested: *amount,
                    previously,
                    maximum: i64::try_from(maximum).unwrap_or(i64::MAX),
                }),
                Mode::NoFit | Mode::NoCandidates => {
                    let missing = total - self.engine.room(self.node, pair);
                    met.push(insufficient(&quotas.flavor, resource, missing));
                }
                _ => {}
            }
            grade = grade.worst(one);
        }
        grade
    }

    fn grade_resource(&mut self, pair: FlavorResource, amount: i64, previously: i64) -> Grade {
        if amount == 0 {
            return Grade::BEST;
        }
        let (node, tree) = (self.node, &self.engine.tree);
        let total = i128::from(amount) + i128::from(previously);
        if total > tree.maximum(node, pair) {
            return Grade { mode: Mode::NoFit, height: 0 };
        }
        let (height, lender_below_root) = tree.borrow_height(node, pair, Ledger::Planned, total);
        if total <= tree.available(node, pair, Ledger::Planned) {
            let now = total <= tree.available(node, pair, Ledger::Held);
            return Grade { mode: if now { Mode::Fit } else { Mode::Wait }, height };
        }
        let preemption = &self.queue.preemption;
        let borrows_by_preempting = preemption.borrow_within_cohort != BorrowWithinCohort::Never;
        let entitled = total <= tree.nominal(node, pair) || lender_below_root || borrows_by_preempting;
        if !entitled {
            return Grade { mode: Mode::NoFit, height };
        }
        let single: Usage = [(pair, i64::try_from(total).unwrap_or(i64::MAX))].into();
        let targets = VictimSearch::new(self.engine, self.uid, &self.queue.name, &single).run();
        let mode = if targets.is_empty() {
            Mode::NoCandidates
        } else if targets.iter().all(|target| target.cluster_queue != self.queue.name) {
            Mode::Reclaim
        } else {
            Mode::Preempt
        };
        Grade { mode, height }
    }
}

/// Why pods of this set cannot run on the flavor's nodes, whatever the quota.
fn unsuitable(flavor: &Flavor, pod_set: &PodSet) -> Option<Obstacle> {
    if flavor.topology.is_some() {
        return Some(Obstacle::NeedsTopology(flavor.name.clone()));
    }
    let tolerations: Vec<&Toleration> = pod_set.tolerations.iter().chain(&flavor.tolerations).collect();
    if let Some(taint) = first_untolerated(&flavor.taints, tolerations) {
        return Some(Obstacle::UntoleratedTaint(flavor.name.clone(), taint.clone()));
    }
    let selected = pod_set
        .node_selector
        .iter()
        .all(|(key, value)| flavor.node_labels.get(key).is_none_or(|given| given == value));
    let matches = selected
        && pod_set.affinity.as_ref().is_none_or(|affinity| affinity_allows(affinity, &flavor.node_labels));
    (!matches).then(|| Obstacle::AffinityMismatch(flavor.name.clone()))
}

/// Only keys that the flavor has are looked at: its nodes may have others besides. A term about nothing else allows it.
fn affinity_allows(affinity: &NodeSelector, labels: &Labels) -> bool {
    let terms: Vec<NodeSelectorTerm> = affinity
        .node_selector_terms
        .iter()
        .map(|term| NodeSelectorTerm {
            match_expressions: term
                .match_expressions
                .iter()
                .filter(|one| labels.contains_key(&one.key))
                .cloned()
                .collect(),
            match_fields: Vec::new(),
        })
        .collect();
    terms.is_empty()
        || terms.iter().any(|term| term.match_expressions.is_empty())
        || NodeSelector { node_selector_terms: terms }.matches("", labels)
}
