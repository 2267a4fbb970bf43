//! Flavors for one workload: for each pod set and each resource group the first flavor that serves, or the least costly.
//!
//! Rules: Kueue `pkg/scheduler/flavorassigner`. [`Engine::find_flavors`] answers with a [`FlavorAssignment`], which says of
//! every flavor it looked at how well it serves and why not better. Whether others could make room is asked of an
//! [`Oracle`], for one flavor and resource at a time; the engine's own, [`VictimSearch`], searches for victims and undoes it.

mod grade;
mod precedent;
mod progress;
mod scan;
mod spots;
mod suit;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use model::ResourceName;

use crate::engine::Engine;
use crate::few::Few;
use crate::input::{Admission, DelayedTopology, PodSetAssignment};
use crate::names::{ClusterQueueName, FlavorName};
use crate::places::{Places, Wishes};
use crate::preempt::{Search, Target};
use crate::reason::{Hindrance, Obstacle, PodSetObstacles};
use crate::slices::on_top;
use crate::topology::{Assignment as Topology, View};
use crate::tree::{FlavorResource, Ledger, NodeId, Usage};
use crate::uid::Uid;
use crate::workloads::WorkloadId;
use progress::Tried;
use scan::{Scan, Scanned};

pub(crate) use precedent::Precedent;
pub use progress::Progress;
pub use suit::TopologyDefect;

/// What it takes to get a flavor; later is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mode {
    /// It cannot be had now, and displacing others is no way to it.
    NoFit,
    /// Others would have to be displaced.
    Preempt,
    /// It is there when those who were already told to leave have left.
    Deferred,
    /// It is there.
    Fit,
}

/// What a search for victims came to; later is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Possibility {
    /// Nobody may be displaced, or not enough of them.
    NoCandidates,
    /// Somebody of the same ClusterQueue would have to go.
    Preempt,
    /// Only borrowers in other ClusterQueues would have to go.
    Reclaim,
}

/// What an [`Oracle`] answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Simulated {
    /// Whether there are victims, and where.
    pub possibility: Possibility,
    /// How far up the tree the workload would borrow after that.
    pub height: u32,
}

/// What an [`Oracle`] is asked: whether victims would make this much room.
#[derive(Clone, Copy, Debug)]
pub struct Question<'a> {
    /// Who needs the room.
    pub workload: &'a Uid,
    /// The queue whose quota it would use.
    pub cluster_queue: &'a ClusterQueueName,
    /// Of which flavor.
    pub flavor: &'a FlavorName,
    /// Of which resource.
    pub resource: &'a ResourceName,
    /// How much, pod sets assigned before included.
    pub amount: i64,
}

/// Tells whether others could make room.
pub trait Oracle {
    /// Answers, and leaves the engine as it was.
    fn simulate(&mut self, engine: &mut Engine, question: Question<'_>) -> Simulated;
}

/// The engine's own search for victims.
#[derive(Clone, Debug, Default)]
pub struct VictimSearch {
    /// What room was looked for last, of one flavor and resource, and who would leave for it.
    last: Option<(Usage, Vec<Target>)>,
}

/// Nobody leaves.
struct Nobody;

impl Oracle for Nobody {
    fn simulate(&mut self, _: &mut Engine, _: Question<'_>) -> Simulated {
        Simulated { possibility: Possibility::NoCandidates, height: 0 }
    }
}

impl Oracle for VictimSearch {
    fn simulate(&mut self, engine: &mut Engine, question: Question<'_>) -> Simulated {
        let pair = engine.tree.pair(question.flavor, question.resource);
        let node = engine.queue_named(question.cluster_queue);
        let single: Usage = [(pair, question.amount)].into();
        let short = [pair].into();
        // Whether places come free with it is asked once for the whole workload.
        let places = Wishes::new();
        let who = engine.workloads.id(question.workload);
        let targets = who.map(|who| Search::new(engine, who, node, &single, short, &places).run());
        let targets = targets.unwrap_or_default();
        let mark = engine.tree.mark();
        for target in &targets {
            target.leave(&mut engine.tree);
        }
        let (height, _) = engine.tree.borrow_height(node, pair, Ledger::Planned, i128::from(question.amount));
        engine.tree.rollback(mark);
        let possibility = if targets.is_empty() {
            Possibility::NoCandidates
        } else if targets.iter().any(|target| target.queue == node) {
            Possibility::Preempt
        } else {
            Possibility::Reclaim
        };
        self.last = Some((single, targets));
        Simulated { possibility, height }
    }
}

/// Beyond the workload itself, what a search of flavors goes by.
#[derive(Clone, Copy, Debug, Default)]
pub struct Ask<'a> {
    /// Pods per pod set, in their order; `None` is all of them.
    pub counts: Option<&'a [i64]>,
    /// Only the flavors that it was found before.
    pub pinned: Option<&'a Admission>,
    /// The quota that it holds already: only places are looked for.
    pub held: Option<&'a Admission>,
    /// What the workload slice holds that this one replaces: only the difference is asked for, of the same flavors.
    pub replaced: Option<&'a Admission>,
    /// How far the last search came.
    pub progress: Option<&'a Progress>,
}

/// The flavor of one resource of one pod set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlavorChoice {
    /// Which.
    pub flavor: FlavorName,
    /// What it takes.
    pub mode: Mode,
    /// How far up the tree it borrows; 0 within the queue's own quota.
    pub height: u32,
    /// The index, in its resource group, of the last flavor that was looked at; `None` when that was the last of all, so
    /// that the next search begins anew.
    pub tried: Option<usize>,
}

/// How one flavor did for all resources of a pod set together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attempt {
    /// The worst of its resources.
    pub mode: Mode,
    /// The farthest up the tree that any of them borrows.
    pub height: u32,
    /// The least of what searches for victims came to, where there were any.
    pub possibility: Option<Possibility>,
    /// What stands in the way, sorted.
    pub obstacles: Vec<Obstacle>,
    /// The hardest kind of it, where waiting alone does not help or nobody may be displaced.
    pub hindrance: Option<Hindrance>,
}

/// What one pod set gets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodSetFlavors {
    /// The pod set.
    pub name: Arc<str>,
    /// How many pods.
    pub count: i64,
    /// What they ask for together.
    pub requests: Few<ResourceName, i64>,
    /// The flavor of each resource; empty where one of them finds none.
    pub flavors: Few<ResourceName, FlavorChoice>,
    /// What stands in the way, sorted; empty when it fits.
    pub obstacles: Vec<Obstacle>,
    /// Why its pods cannot be placed by topology on these flavors, if that was asked.
    pub topology_defect: Option<TopologyDefect>,
    /// Where its pods go, if that was asked.
    pub topology: Option<Arc<Topology>>,
    /// Whether that is, or was, left for later.
    pub delayed: Option<DelayedTopology>,
    /// Every flavor that was looked at.
    pub attempts: Few<FlavorName, Attempt>,
    /// The hardest kind of obstacle; only where there is no fit.
    pub hindrance: Option<Hindrance>,
}

impl PodSetFlavors {
    /// What it takes for the whole pod set.
    pub fn mode(&self) -> Mode {
        if self.topology_defect.is_some() || (self.flavors.is_empty() && !self.obstacles.is_empty()) {
            return Mode::NoFit;
        }
        self.flavors.values().map(|choice| choice.mode).min().unwrap_or(Mode::Fit)
    }
}

/// What was found for a workload.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FlavorAssignment {
    /// The pod sets in their order, up to the first that finds nothing.
    pub pod_sets: Vec<PodSetFlavors>,
    /// How far up the tree it borrows; 0 within its queue's own quota.
    pub height: u32,
    /// What it would use of each flavor and resource, resources of which it asks for nothing included; for a slice that
    /// replaces another the difference.
    pub usage: BTreeMap<(FlavorName, ResourceName), i64>,
    /// The hardest kind of obstacle; only where there is no fit.
    pub hindrance: Option<Hindrance>,
}

impl FlavorAssignment {
    /// What it takes for the whole workload.
    pub fn mode(&self) -> Mode {
        self.pod_sets.iter().map(PodSetFlavors::mode).min().unwrap_or(Mode::NoFit)
    }

    fn into_admission(self, name: &ClusterQueueName) -> Arc<Admission> {
        let granted = |one: PodSetFlavors| {
            let PodSetFlavors { name, count, requests, flavors: choices, .. } = one;
            // A leader that asks for nothing has a flavor all the same, of which it uses nothing.
            let asked = |resource: &ResourceName| requests.get(resource).copied().unwrap_or(0);
            let usage = choices.keys().map(|resource| (resource.clone(), asked(resource))).collect();
            let flavors = choices.into_iter().map(|(resource, choice)| (resource, choice.flavor)).collect();
            PodSetAssignment { name, flavors, usage, count, topology: one.topology, delayed: one.delayed }
        };
        let mut pod_sets = Vec::with_capacity(self.pod_sets.len());
        pod_sets.extend(self.pod_sets.into_iter().map(granted));
        Arc::new(Admission { cluster_queue: name.clone(), pod_sets })
    }

    /// What stands in the way. Where there was only nobody to displace, it waits for quota; what fits, or would if others
    /// left, is not to blame for what never does beside it.
    fn obstacles(&self) -> Vec<PodSetObstacles> {
        let blamed = self.pod_sets.iter().filter_map(|one| {
            let (obstacles, otherwise) = match &one.topology_defect {
                Some(defect) => (vec![Obstacle::NotOneTopology(defect.clone())], Hindrance::NoMatchingFlavor),
                None if one.obstacles.iter().any(|one| matches!(one, Obstacle::ResourceNotCovered(_))) => {
                    (one.obstacles.clone(), Hindrance::NoMatchingFlavor)
                }
                None => (one.obstacles.clone(), self.hindrance.unwrap_or(Hindrance::Quota)),
            };
            let (pod_set, hindrance) = (one.name.clone(), one.hindrance.unwrap_or(otherwise));
            (!obstacles.is_empty()).then_some(PodSetObstacles { pod_set, obstacles, hindrance })
        });
        blamed.collect()
    }
}

/// How a workload could get its quota.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Now.
    Fit,
    /// When those who were already told to leave have left.
    Wait,
    /// When these have left.
    Preempt(Vec<Target>),
}

/// Where a workload's quota would come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Assignment {
    pub(crate) admission: Arc<Admission>,
    pub(crate) usage: Arc<Usage>,
    pub(crate) places: Places,
    pub(crate) verdict: Verdict,
    /// How far up the tree it borrows; 0 within its queue's own quota.
    pub(crate) height: u32,
    pub(crate) tried: Tried,
}

/// Why it gets none.
#[derive(Clone, Debug)]
pub(crate) struct NoFit {
    pub(crate) obstacles: Vec<PodSetObstacles>,
    /// What it would use of the flavors that it was found.
    pub(crate) usage: Usage,
    /// Its places, if it has a right to preempt and only lacks victims: then it was found flavors for everything.
    pub(crate) entitled_to: Option<Places>,
    /// How far up the tree it would borrow.
    pub(crate) height: u32,
    pub(crate) tried: Tried,
}

impl Engine {
    /// Finds flavors for a workload as if it waited in `name`, asking `oracle` whether others could make room. Changes
    /// nothing but interned names and what the oracle does.
    pub fn find_flavors(
        &mut self,
        uid: &Uid,
        name: &ClusterQueueName,
        ask: Ask<'_>,
        oracle: &mut dyn Oracle,
    ) -> FlavorAssignment {
        self.reconfigure();
        let queue = self.queue_named(name);
        let Some(who) = self.workloads.id(uid) else { return FlavorAssignment::default() };
        let Scanned { mut found, usage, .. } = self.scan(who, queue, ask, oracle);
        let named = usage.iter().map(|(pair, amount)| (self.tree.pair_name(*pair).clone(), *amount));
        found.usage = named.collect();
        found
    }

    fn scan(&mut self, who: WorkloadId, queue: NodeId, ask: Ask<'_>, oracle: &mut dyn Oracle) -> Scanned {
        let Some(spec) = self.queues[queue].spec.clone() else { return Scanned::default() };
        Scan::new(self, oracle, who, (queue, &spec), ask).run()
    }

    /// Finds quota, and places on nodes, for a workload that waits in `queue`, as `ask` wants it.
    pub(crate) fn assign_asked(
        &mut self,
        who: WorkloadId,
        queue: NodeId,
        ask: Ask<'_>,
    ) -> Result<Assignment, NoFit> {
        if let Some(found) = self.found_before(who, queue, ask) {
            debug_assert!(self.search(who, queue, ask).is_ok_and(|anew| anew == found));
            return Ok(found);
        }
        let found = self.search(who, queue, ask)?;
        self.note_precedent(who, queue, ask, &found);
        Ok(found)
    }

    /// The same, whatever others of its kind were found.
    fn search(&mut self, who: WorkloadId, queue: NodeId, ask: Ask<'_>) -> Result<Assignment, NoFit> {
        let mut victims = VictimSearch::default();
        let Scanned { mut found, usage, wishes, placed, waits } = self.scan(who, queue, ask, &mut victims);
        let usage = on_top(usage);
        let (height, tried) = (found.height, progress::tried(&found));
        if found.mode() == Mode::NoFit {
            return Err(NoFit { obstacles: found.obstacles(), usage, entitled_to: None, height, tried });
        }
        // Quota that it has is not given once more, but nobody leaves for its places who would not for as much on top, as in
        // Kueue.
        let held = ask.held.map(|held| self.usage_of(held));
        let sought = held.as_ref().unwrap_or(&usage);
        match self.verdict((who, queue), &found, (&usage, sought), (&wishes, placed), victims) {
            Some(mut verdict) => {
                if let Verdict::Preempt(targets) = &verdict {
                    self.place_without(&mut found, &wishes, targets);
                } else if waits {
                    verdict = Verdict::Wait;
                }
                let admission = found.into_admission(&self.queues[queue].name);
                let places = self.places_of(who, &admission);
                let usage = Arc::new(usage);
                Ok(Assignment { admission, usage, places, verdict, height, tried })
            }
            None => {
                // Somewhere it would be: what is kept for it shall be there.
                self.place_in(&mut found, &wishes, View::Empty);
                let obstacles = found.obstacles();
                let places = self.places_of(who, &found.into_admission(&self.queues[queue].name));
                Err(NoFit { obstacles, usage, entitled_to: Some(places), height, tried })
            }
        }
    }

    /// What a workload that waits in `queue` can have at once, and nobody leaves for it: looked for from the first flavor on, up to one
    /// that will do when others have left, if that ends a search. For so many pods per pod set; `None` is all of them.
    pub(crate) fn assign_free(
        &mut self,
        who: WorkloadId,
        queue: NodeId,
        counts: Option<&[i64]>,
    ) -> Option<Assignment> {
        let replaced = self.adds_to(who, queue).map(|(_, admission)| admission);
        let ask = Ask { counts, replaced: replaced.as_deref(), ..Ask::default() };
        let Scanned { found, usage, placed, waits, .. } = self.scan(who, queue, ask, &mut Nobody);
        let usage = on_top(usage);
        if found.mode() != Mode::Fit || !placed || waits {
            return None;
        }
        let height = found.height;
        let admission = found.into_admission(&self.queues[queue].name);
        let places = self.places_of(who, &admission);
        let (usage, verdict, tried) = (Arc::new(usage), Verdict::Fit, Tried::new());
        Some(Assignment { admission, usage, places, verdict, height, tried })
    }

    /// What has to be freed by others.
    fn short_of(&mut self, found: &FlavorAssignment) -> BTreeSet<FlavorResource> {
        let choices = found.pod_sets.iter().flat_map(|one| one.flavors.iter());
        let lacking: Vec<_> = choices.filter(|(_, choice)| choice.mode == Mode::Preempt).collect();
        lacking.into_iter().map(|(resource, choice)| self.tree.pair(&choice.flavor, resource)).collect()
    }

    /// What it takes for the whole of `usage` to fit: single resources were judged one by one before. `sought` is what victims are
    /// sought for. `wishes` are for places, and whether all were found some. `search` is that by which flavors were judged.
    fn verdict(
        &mut self,
        (who, queue): (WorkloadId, NodeId),
        found: &FlavorAssignment,
        (usage, sought): (&Usage, &Usage),
        (wishes, placed): (&Wishes, bool),
        search: VictimSearch,
    ) -> Option<Verdict> {
        // What was judged last of a flavor's resource was judged with all that was found before.
        if placed && found.mode() == Mode::Fit {
            return Some(Verdict::Fit);
        }
        if placed && self.fits(queue, usage, Ledger::Planned) {
            return Some(if self.fits(queue, usage, Ledger::Held) { Verdict::Fit } else { Verdict::Wait });
        }
        let short = self.short_of(found);
        let targets = match search.last {
            // That is all it asks for, and it wants no places: the answer is the same.
            Some((asked, targets)) if asked == *usage && short.len() == 1 && wishes.is_empty() => targets,
            _ => Search::new(self, who, queue, sought, short, wishes).run(),
        };
        (!targets.is_empty()).then_some(Verdict::Preempt(targets))
    }

    pub(crate) fn fits(&self, node: NodeId, usage: &Usage, ledger: Ledger) -> bool {
        usage
            .iter()
            .filter(|(_, amount)| **amount > 0)
            .all(|(pair, amount)| i128::from(*amount) <= self.tree.available(node, *pair, ledger))
    }

    /// What may be taken without anybody leaving who was not told to.
    pub(crate) fn room(&self, node: NodeId, pair: FlavorResource) -> i128 {
        self.tree.available(node, pair, Ledger::Held).min(self.tree.available(node, pair, Ledger::Planned))
    }
}
