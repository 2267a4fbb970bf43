//! Pods that have places already: a failed node is replaced, an elastic job grows or shrinks.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::place::Task;
use super::{
    Assignment, PodSetRequest, Previous, Rules, SliceLayer, Spread, TopologyIndex, TopologyReason, View,
};

/// Leaves and pods.
type Places = Vec<(u32, i64)>;
/// New places of a group's workers and of its leader.
type Resized = Result<(Assignment, Assignment), TopologyReason>;

impl TopologyIndex {
    /// Finds places for the pods of a failed node, as near to the others as the request demands. Returns the assignment as it
    /// is to be, and the new places in it.
    ///
    /// # Errors
    /// Another place of the assignment is gone as well, the node has none of its pods, or there is no room.
    pub(super) fn replace(
        &mut self,
        set: &PodSetRequest,
        assignment: &Assignment,
        node: &Arc<str>,
        rules: Rules,
        view: View,
    ) -> Result<(Assignment, Places), TopologyReason> {
        let mut rest = assignment.clone();
        rest.domains.retain(|domain| domain.values.last() != Some(node));
        let missing = assignment.pods() - rest.pods();
        let kept = self.places(&rest)?;
        if missing == 0 {
            return Err(TopologyReason::NotOnNode { node: Arc::clone(node) });
        }
        let within = self.replacement_domain(set, missing, &kept);
        let layers = match within {
            Some(_) => remaining_layers(&set.layers, missing),
            None => set.layers.clone(),
        };
        let task = Task { count: missing, layers: &layers, within, ..Task::new(set, None) };
        let found = self.find(&task, rules, view)?.workers;
        Ok((self.merged(kept, &found), found))
    }

    /// Leaves of an assignment.
    fn places(&self, assignment: &Assignment) -> Result<Places, TopologyReason> {
        let place = |domain: &super::DomainPods| match self.leaf(&domain.values) {
            Some(leaf) => Ok((leaf, domain.pods)),
            None => Err(TopologyReason::StaleAssignment { domain: domain.values.clone() }),
        };
        assignment.domains.iter().map(place).collect()
    }

    fn merged(&self, kept: Places, more: &Places) -> Assignment {
        let mut pods: BTreeMap<u32, i64> = BTreeMap::new();
        for (leaf, count) in kept.iter().chain(more) {
            *pods.entry(*leaf).or_default() += count;
        }
        self.assignment(&pods.into_iter().collect::<Vec<_>>())
    }

    /// Where the missing pods must lie: with the slice that they leave incomplete, the innermost one there is; else, if the
    /// pod set is bound to one domain, in that one.
    fn replacement_domain(&self, set: &PodSetRequest, missing: i64, kept: &Places) -> Option<(usize, u32)> {
        let (first, _) = kept.first()?;
        let broken = set.layers.iter().rev().find(|layer| layer.size > 0 && missing % layer.size != 0);
        if set.layers.first().is_some_and(|outer| outer.size > 0 && missing % outer.size != 0) {
            return self.incomplete_slice(broken?, missing, kept);
        }
        let Spread::Required(level) = &set.spread else { return None };
        let level = self.level(level).ok()?;
        Some((level, self.ground.tree.ancestor(*first, level)))
    }

    fn incomplete_slice(&self, layer: &SliceLayer, missing: i64, kept: &Places) -> Option<(usize, u32)> {
        let level = self.level(&layer.level).ok()?;
        let mut pods: BTreeMap<u32, i64> = BTreeMap::new();
        for (leaf, count) in kept {
            *pods.entry(self.ground.tree.ancestor(*leaf, level)).or_default() += count;
        }
        let completed = |(_, pods): &(&u32, &i64)| (**pods + missing) % layer.size == 0;
        pods.iter().find(completed).map(|(domain, _)| (level, *domain))
    }

    /// Carries over the places of the job slice that this one takes over from. `None`: there are none, or they are gone, and
    /// everything is placed anew.
    pub(super) fn resize(
        &mut self,
        workers: &PodSetRequest,
        leader: Option<&PodSetRequest>,
        rules: Rules,
        view: View,
    ) -> Option<Resized> {
        let previous = |set: &PodSetRequest| match &set.previous {
            Some(Previous::Slice(assignment)) if rules.elastic => Some(assignment.clone()),
            _ => None,
        };
        let before = previous(workers)?;
        let kept = self.places(&before).ok()?;
        let leader_before = leader.and_then(previous);
        let leader_kept = leader_before.as_ref().map(|one| self.places(one)).transpose().ok()?;
        if let (Some(set), Some(places)) = (leader, &leader_kept) {
            self.assume_all(places, set);
        }
        let more = workers.count - before.pods();
        // What is no whole slice gets no places.
        if more < workers.layers.first().map_or(1, |layer| layer.size.max(1)) {
            // The leader runs beside them; without its place the group is no whole.
            if leader.is_some() && leader_before.is_none() {
                return None;
            }
            let after = if more < 0 { before.truncated(workers.count) } else { before };
            let places = self.places(&after).ok()?;
            self.assume_all(&places, workers);
            return Some(Ok((after, leader_before.unwrap_or_default())));
        }
        self.assume_all(&kept, workers);
        let new_leader = leader.filter(|_| leader_before.is_none());
        let task = Task { count: more, ..Task::new(workers, new_leader) };
        let found = match self.find(&task, rules, view) {
            Ok(found) => found,
            Err(reason) => return Some(Err(reason)),
        };
        self.assume_all(&found.workers, workers);
        new_leader.iter().for_each(|set| self.assume_all(&found.leader, set));
        let of_leader = leader_before.unwrap_or_else(|| self.assignment(&found.leader));
        Some(Ok((self.merged(kept, &found.workers), of_leader)))
    }
}

/// Of pods that complete a slice only the innermost layer still binds that they fill with whole slices.
fn remaining_layers(layers: &[SliceLayer], missing: i64) -> Vec<SliceLayer> {
    if layers.first().is_none_or(|outer| outer.size <= 0 || missing % outer.size == 0) {
        return layers.to_vec();
    }
    let whole = layers.iter().rev().find(|layer| layer.size > 0 && missing % layer.size == 0);
    whole.cloned().into_iter().collect()
}
