//! The engine beside Kueue. Kueue's objects are the truth; the engine decides on them at every event, and what it decides is an
//! opinion until Kueue does the same, does otherwise, or has had its time.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use crds::api::kueue::v1beta2::TopologyAssignment;
use crds::reasons::workload::{self as tokens, evicted, quota_reserved as reasons};
use crds::view::workload::Workload;
use jiff::{SignedDuration, Timestamp};
use kit::watch::Change;
use quota_engine::input::Admission;
use quota_engine::{Decision, DecisionId, Engine, EvictReason, Outcome, PendingReason, Uid, WorkloadState};

use super::Summary;
use super::report::{Difference, Question, Report};
use crate::config::Configuration;
use crate::controller::feeds::Seen;
use crate::controller::world::World;
use crate::{input, words};

/// Two reasons to wait are compared when neither has changed for so long; and Kueue, having said why a workload waits, has so
/// long for changing its mind: what it writes may be older than what made it fit.
const SETTLED: SignedDuration = SignedDuration::from_secs(5);

/// The reasons that say the same on both sides. Kueue's other ones (`Pending`, without `UnadmittedWorkloadsObservability`) say
/// nothing to compare, and `PendingEvaluation` that nobody has looked yet.
const COMPARABLE: [&str; 8] = [
    reasons::NO_MATCHING_FLAVOR,
    reasons::WAITING_FOR_QUOTA,
    reasons::TOPOLOGY_PLACEMENT_FAILED,
    reasons::EXCEEDS_MAX_QUOTA,
    reasons::WAITING_FOR_PREEMPTED_WORKLOADS,
    reasons::MISCONFIGURED,
    reasons::SUSPENDED,
    reasons::ADMISSION_GATED,
];

/// The evictions that the engine decides.
const DECIDED_HERE: [&str; 4] =
    [evicted::PREEMPTED, evicted::CLUSTER_QUEUE_STOPPED, evicted::LOCAL_QUEUE_STOPPED, evicted::DEACTIVATED];

enum Opinion {
    Admit(Arc<Admission>),
    /// Where the pods go of what has quota already.
    Place(Arc<Admission>),
    /// Why, and for whom.
    Evict(EvictReason, Option<Uid>),
}

struct Held {
    opinion: Opinion,
    id: DecisionId,
    due: Timestamp,
}

pub(super) struct Judge {
    engine: Engine,
    world: World,
    patience: SignedDuration,
    opinions: BTreeMap<Uid, Held>,
    /// An opinion about what has changed just now: if the engine is of it still, it is no new one.
    questioned: Option<(Uid, Held)>,
    /// When the reasons for waiting are compared.
    reasons_due: BTreeMap<Uid, Timestamp>,
    /// Reasons that were told of, by workload: here, there.
    told: BTreeMap<Uid, (&'static str, String)>,
    /// Workloads that Kueue was told about not to have admitted.
    overdue: BTreeSet<Uid>,
    /// Workloads with quota of which it was told that their pods are not where they would be here.
    misplaced: BTreeSet<Uid>,
    report: Report,
}

impl Judge {
    pub(super) fn new(config: &Configuration, patience: Duration, report: Report) -> Self {
        Self {
            engine: Engine::new(config.settings()),
            world: World::new(config),
            patience: SignedDuration::try_from(patience).unwrap_or(SignedDuration::MAX),
            opinions: BTreeMap::new(),
            questioned: None,
            reasons_due: BTreeMap::new(),
            told: BTreeMap::new(),
            overdue: BTreeSet::new(),
            misplaced: BTreeSet::new(),
            report,
        }
    }

    /// Whether nodes and the pods on them are of concern.
    pub(super) fn wants_places(&self) -> bool {
        self.world.wants_places()
    }

    pub(super) fn is_synced(&self) -> bool {
        self.world.is_synced()
    }

    pub(super) fn summary(&self) -> Summary {
        Summary { open: self.opinions.len(), ..self.report.summary() }
    }

    /// When there is something to be looked at though nothing happens.
    pub(super) fn next_due(&self) -> Option<Timestamp> {
        let alarm = self.engine.next_alarm_ms().filter(|_| self.is_synced());
        let alarm = alarm.and_then(|at_ms| Timestamp::from_millisecond(at_ms).ok());
        let opinions = self.opinions.values().map(|held| held.due);
        opinions.chain(self.reasons_due.values().copied()).chain(alarm).min()
    }

    pub(super) fn take(&mut self, seen: Seen, now: Timestamp) {
        self.engine.tell_time(now.as_millisecond());
        let was_synced = self.is_synced();
        match seen {
            Seen::Workload(Change::Applied(view)) if self.is_synced() => self.take_workload(view, now),
            Seen::Workload(Change::Deleted(view)) => {
                self.forget(&input::uid(&view.metadata));
                self.world.take(&mut self.engine, Seen::Workload(Change::Deleted(view)));
            }
            other => self.world.take(&mut self.engine, other),
        }
        if !was_synced && self.is_synced() {
            // It rests on a part of what there is.
            self.engine.take_back_untold();
        }
        self.decide(now);
        self.questioned = None;
    }

    fn take_workload(&mut self, view: Workload, now: Timestamp) {
        let uid = input::uid(&view.metadata);
        let before = self.world.workloads.get(&uid);
        if before.is_some() && self.world.workloads.before(&view).is_none() {
            // A list tells of it again: whatever was thought of it stands.
            return self.world.take(&mut self.engine, Seen::Workload(Change::Applied(view)));
        }
        let reason = self.engine.explain(&uid).and_then(|one| one.reason);
        // What the engine decided about it rests on what it was: it decides anew.
        let opinion = self.opinions.remove(&uid);
        self.world.take(&mut self.engine, Seen::Workload(Change::Applied(view.clone())));
        if view.holds(tokens::FINISHED) {
            return self.forget(&uid);
        }
        // What is seen for the first time may have been decided before this program looked.
        let Some(before) = before else { return };
        let became = |kind: &str| view.holds(kind) && !before.holds(kind);
        if became(tokens::QUOTA_RESERVED) {
            self.admitted_there(&uid, &view, opinion, reason, now);
            return self.needs_no_victims(&uid, now);
        }
        if became(tokens::EVICTED) {
            // That of who has nothing to lose is no decision: it says that somebody deactivated it.
            if before.holds(tokens::QUOTA_RESERVED) {
                self.evicted_there(&view, opinion, now);
            }
            return;
        }
        let holds = view.holds(tokens::QUOTA_RESERVED);
        if holds && topologies(&view) != topologies(&before) {
            self.needs_no_victims(&uid, now);
            return self.placed_there(&uid, (&before, &view), opinion, reason, now);
        }
        if !holds || view.status.unhealthy_nodes != before.status.unhealthy_nodes {
            self.misplaced.remove(&uid);
        }
        let waits = |view: &Workload| {
            let condition = view.condition(tokens::QUOTA_RESERVED).filter(|one| one.status == "False");
            condition.map(|one| (one.reason.clone(), one.message.clone()))
        };
        let says_why = waits(&view).is_some() && waits(&view) != waits(&before);
        if let Some(mut held) = opinion {
            held.due = if says_why { held.due.min(now + SETTLED) } else { held.due };
            self.questioned = Some((uid.clone(), held));
        }
        if says_why {
            self.reasons_due.insert(uid, now + SETTLED);
        }
    }

    /// Those who were to leave for it and have not left need not, unless a list shows it before them.
    fn needs_no_victims(&mut self, preemptor: &Uid, now: Timestamp) {
        for held in self.opinions.values_mut() {
            if matches!(&held.opinion, Opinion::Evict(_, Some(one)) if one == preemptor) {
                held.due = held.due.min(now + SETTLED);
            }
        }
    }

    fn forget(&mut self, uid: &Uid) {
        self.opinions.remove(uid);
        self.reasons_due.remove(uid);
        self.told.remove(uid);
        self.overdue.remove(uid);
        self.misplaced.remove(uid);
    }

    fn decide(&mut self, now: Timestamp) {
        if !self.is_synced() {
            return;
        }
        loop {
            for decision in self.engine.decide(now.as_millisecond()) {
                match decision {
                    Decision::Reserve(one) => {
                        self.hold(one.workload, one.id, Opinion::Admit(one.admission), now)
                    }
                    Decision::Evict(one) => {
                        self.hold(one.victim, one.id, Opinion::Evict(one.reason, one.preemptor), now)
                    }
                    // Of what had only quota in a queue that is stopped, the running Kueue says what becomes.
                    Decision::Withdraw(one) => self.engine.written(one.id, Outcome::Unsettled),
                    // What follows from an admission, and words that stand in events: no decisions of their own.
                    Decision::Replace(_) | Decision::SetUnplaced(_) => {}
                }
            }
            for new in self.engine.take_reasons(usize::MAX) {
                self.reasons_due.insert(new.workload, now + SETTLED);
            }
            if !self.engine.has_more() {
                return;
            }
        }
    }

    /// Kueue has its time from when the opinion first arose.
    fn hold(&mut self, uid: Uid, id: DecisionId, opinion: Opinion, now: Timestamp) {
        let has_quota = self.world.workloads.get(&uid).is_some_and(|view| view.holds(tokens::QUOTA_RESERVED));
        let opinion = match opinion {
            Opinion::Admit(ours) if has_quota => Opinion::Place(ours),
            opinion => opinion,
        };
        let alike = |held: &&Held| std::mem::discriminant(&held.opinion) == std::mem::discriminant(&opinion);
        let questioned = self.questioned.as_ref().filter(|(of, _)| *of == uid).map(|(_, held)| held);
        let due = self.opinions.get(&uid).or(questioned).filter(alike).map(|held| held.due);
        let due = due.unwrap_or_else(|| now.saturating_add(self.patience).unwrap_or(Timestamp::MAX));
        self.opinions.insert(uid, Held { opinion, id, due });
    }

    /// What a workload has, as Kueue wrote it.
    fn held(&self, uid: &Uid) -> Option<Admission> {
        match self.engine.explain(uid)?.state {
            WorkloadState::Holding(theirs) => Some(theirs),
            _ => None,
        }
    }

    fn admitted_there(
        &mut self,
        uid: &Uid,
        view: &Workload,
        opinion: Option<Held>,
        reason: Option<PendingReason>,
        now: Timestamp,
    ) {
        self.reasons_due.remove(uid);
        // Kueue may have taken longer than it was given, which was told.
        let was_told = self.overdue.remove(uid);
        let Some(theirs) = self.held(uid) else { return };
        let ours = match opinion.map(|held| held.opinion) {
            Some(Opinion::Admit(ours)) if alike(&ours, &theirs) => {
                self.report.same(Question::Admission);
                return self.compare_places(view, &ours, &theirs, now);
            }
            Some(Opinion::Admit(ours)) => admission(&ours),
            Some(Opinion::Evict(..) | Opinion::Place(_)) | None if was_told => return,
            Some(Opinion::Evict(..) | Opinion::Place(_)) | None => waiting(reason.as_ref()),
        };
        self.differs(Question::Admission, view, ours, admission(&theirs), now);
    }

    /// Its pods get places, or others, when it has its quota already.
    fn placed_there(
        &mut self,
        uid: &Uid,
        (before, view): (&Workload, &Workload),
        opinion: Option<Held>,
        reason: Option<PendingReason>,
        now: Timestamp,
    ) {
        let was_told = self.misplaced.remove(uid);
        let Some(theirs) = self.held(uid) else { return };
        if places(&theirs).is_none() {
            return;
        }
        let ours = match (opinion.map(|held| held.opinion), reason) {
            (Some(Opinion::Place(ours)), _) => return self.compare_places(view, &ours, &theirs, now),
            _ if was_told => return,
            (Some(Opinion::Evict(reason, _)), _) => eviction(reason),
            (_, Some(reason)) => waiting(Some(&reason)),
            _ if topologies(before).iter().any(|one| one.is_some()) => {
                "its pods stay where they are".to_owned()
            }
            _ => told(None),
        };
        self.differs(Question::Placement, view, ours, told(places(&theirs)), now);
    }

    /// Of what has the same quota.
    fn compare_places(&mut self, view: &Workload, ours: &Admission, theirs: &Admission, now: Timestamp) {
        let (here, there) = (places(ours), places(theirs));
        match here == there {
            true if here.is_none() => {}
            true => self.report.same(Question::Placement),
            false => self.differs(Question::Placement, view, told(here), told(there), now),
        }
    }

    fn evicted_there(&mut self, view: &Workload, opinion: Option<Held>, now: Timestamp) {
        let reason = view.condition(tokens::EVICTED).map_or("", |one| one.reason.as_str());
        if !DECIDED_HERE.contains(&reason) {
            return;
        }
        let preempted = view.true_condition(tokens::PREEMPTED).map(|one| one.reason.as_str());
        let theirs = [Some(reason), preempted].into_iter().flatten().collect::<Vec<_>>().join(", ");
        let ours = match opinion.map(|held| held.opinion) {
            Some(Opinion::Evict(ours, _)) => {
                let ours = eviction(ours);
                if ours == theirs {
                    return self.report.same(Question::Eviction);
                }
                ours
            }
            // Nobody who is being placed is evicted here at that moment.
            Some(Opinion::Place(_)) => return,
            Some(Opinion::Admit(_)) | None => "it stays".to_owned(),
        };
        self.differs(Question::Eviction, view, ours, theirs, now);
    }

    /// Opinions that Kueue has not come to share, reasons that have settled, and what the engine does by itself.
    pub(super) fn look_at_what_is_due(&mut self, now: Timestamp) {
        let overdue: Vec<Uid> =
            self.opinions.iter().filter(|(_, held)| held.due <= now).map(|(uid, _)| uid.clone()).collect();
        for uid in &overdue {
            self.not_done_there(uid, now);
        }
        let settled: Vec<Uid> =
            self.reasons_due.iter().filter(|(_, due)| **due <= now).map(|(uid, _)| uid.clone()).collect();
        for uid in &settled {
            self.reasons_due.remove(uid);
            self.compare_reasons(uid, now);
        }
        let now_ms = now.as_millisecond();
        if !overdue.is_empty() || self.engine.next_alarm_ms().is_some_and(|at_ms| at_ms <= now_ms) {
            self.engine.tell_time(now_ms);
            self.decide(now);
        }
    }

    fn not_done_there(&mut self, uid: &Uid, now: Timestamp) {
        let Some(held) = self.opinions.remove(uid) else { return };
        // From here on the engine goes by what Kueue has decided, so that one difference does not bring others.
        self.engine.written(held.id, Outcome::Overruled("Kueue decided otherwise".to_owned()));
        let Some(view) = self.world.workloads.get(uid) else { return };
        match held.opinion {
            Opinion::Admit(ours) => {
                self.overdue.insert(uid.clone());
                let condition = view.condition(tokens::QUOTA_RESERVED).filter(|one| one.status == "False");
                let theirs = condition.map(|one| format!("{}: {}", one.reason, one.message));
                let theirs = theirs.unwrap_or_else(|| "it says nothing".to_owned());
                self.differs(Question::Admission, &view, admission(&ours), theirs, now);
            }
            Opinion::Place(ours) => {
                let Some(theirs) = self.held(uid) else { return };
                let (here, there) = (places(&ours), places(&theirs));
                if here != there && self.misplaced.insert(uid.clone()) {
                    self.differs(Question::Placement, &view, told(here), told(there), now);
                }
            }
            Opinion::Evict(ours, _) if DECIDED_HERE.contains(&ours.token()) => {
                self.differs(Question::Eviction, &view, eviction(ours), "it stays".to_owned(), now)
            }
            // Kueue may have its own idea of when.
            Opinion::Evict(..) => {}
        }
    }

    fn compare_reasons(&mut self, uid: &Uid, now: Timestamp) {
        let Some(ours) = self.engine.explain(uid).and_then(|one| one.reason) else { return };
        let Some(view) = self.world.workloads.get(uid) else { return };
        let Some(theirs) = view.condition(tokens::QUOTA_RESERVED).filter(|one| one.status == "False") else {
            return;
        };
        // Of those who wait when a queue is stopped, Kueue tells it to some only.
        let is_old_news = ours.token() == reasons::SUSPENDED && theirs.reason != reasons::SUSPENDED;
        if self.overdue.contains(uid)
            || is_old_news
            || !COMPARABLE.contains(&ours.token())
            || !COMPARABLE.contains(&theirs.reason.as_str())
        {
            return;
        }
        if ours.token() == theirs.reason {
            self.told.remove(uid);
            return self.report.same(Question::Reason);
        }
        let pair = (ours.token(), theirs.reason.clone());
        if self.told.get(uid) != Some(&pair) {
            let (view, theirs) = (view.clone(), format!("{}: {}", theirs.reason, theirs.message));
            self.told.insert(uid.clone(), pair);
            self.differs(Question::Reason, &view, waiting(Some(&ours)), theirs, now);
        }
    }

    fn differs(&mut self, question: Question, view: &Workload, ours: String, theirs: String, now: Timestamp) {
        let text = |part: &Option<String>| part.clone().unwrap_or_default();
        let workload = format!("{}/{}", text(&view.metadata.namespace), text(&view.metadata.name));
        self.report.differs(&Difference { at: now, question, workload, ours, theirs });
    }
}

/// Whether every pod set gets the same flavors for the same number of pods.
fn alike(ours: &Admission, theirs: &Admission) -> bool {
    let sets = |one: &Admission| {
        let mut sets: Vec<_> =
            one.pod_sets.iter().map(|set| (set.name.clone(), set.count, set.flavors.clone())).collect();
        sets.sort();
        sets
    };
    ours.cluster_queue == theirs.cluster_queue && sets(ours) == sets(theirs)
}

fn admission(one: &Admission) -> String {
    let set = |set: &quota_engine::input::PodSetAssignment| {
        let flavors: Vec<String> =
            set.flavors.iter().map(|(resource, flavor)| format!("{}={flavor}", resource.as_str())).collect();
        format!("{} x{} {}", set.name, set.count, flavors.join(" "))
    };
    let sets: Vec<String> = one.pod_sets.iter().map(set).collect();
    format!("admitted by {}: {}", one.cluster_queue, sets.join(", "))
}

/// Where the pods go, pod set by pod set, if any have places.
fn places(one: &Admission) -> Option<String> {
    let set = |set: &quota_engine::input::PodSetAssignment| {
        let topology = set.topology.as_ref()?;
        let mut domains: Vec<String> = topology
            .domains
            .iter()
            .map(|domain| format!("{} x{}", domain.values.join("/"), domain.pods))
            .collect();
        domains.sort();
        Some(format!("{} in {}", set.name, domains.join(", ")))
    };
    let mut sets: Vec<String> = one.pod_sets.iter().filter_map(set).collect();
    sets.sort();
    (!sets.is_empty()).then(|| sets.join("; "))
}

fn told(places: Option<String>) -> String {
    places.unwrap_or_else(|| "its pods have no places yet".to_owned())
}

/// Where the pods of a Workload go, as it is written.
fn topologies(view: &Workload) -> Vec<&Option<TopologyAssignment>> {
    let sets = view.status.admission.iter().flat_map(|one| &one.pod_set_assignments);
    sets.map(|set| &set.topology_assignment).collect()
}

fn waiting(reason: Option<&PendingReason>) -> String {
    reason.map_or_else(
        || format!("{}: nobody has looked at it", reasons::PENDING_EVALUATION),
        |reason| format!("{}: {}", reason.token(), words::pending(reason)),
    )
}

fn eviction(reason: EvictReason) -> String {
    match reason {
        EvictReason::Preempted(right) => format!("{}, {}", reason.token(), right.token()),
        _ => reason.token().to_owned(),
    }
}
