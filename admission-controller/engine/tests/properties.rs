//! Random stories, judged after every step by a second, slow and independent reading of the rules.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use std::collections::{BTreeMap, BTreeSet};

use quota_engine::input::*;
use quota_engine::*;
use support::*;

/// In 256 and 1693 others leave for what an admission uses that is wanted back in the same call.
const STORIES: u64 = 2_000;
const STEPS: usize = 60;

/// One flat cohort of queues with one flavor: small enough to judge by hand.
struct Story {
    world: World,
    queues: BTreeMap<String, ClusterQueue>,
    /// Whether victims are chosen by shares.
    is_fair: bool,
    rng: fastrand::Rng,
    next: u32,
    now_ms: i64,
    /// Quota was taken away from under somebody: use above the rules is then no fault.
    shrunk: bool,
    /// Who was told to leave, which was lost: it is told again for the same, though what made it lawful may be lost as well.
    lost: BTreeSet<Uid>,
    /// What was last told of every queue.
    told: BTreeMap<String, String>,
}

impl Story {
    fn new(seed: u64) -> Self {
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut events = vec![Event::Flavor(flavor("a100"))];
        let mut queues = BTreeMap::new();
        for index in 0..rng.usize(1..=3) {
            let name = format!("cq-{index}");
            let queue = random_queue(&mut rng, &name);
            events.push(Event::ClusterQueue(queue.clone()));
            events.push(Event::LocalQueue(local_queue(&name)));
            let second =
                LocalQueue { cluster_queue: name.as_str().into(), ..local_queue(&format!("{name}-b")) };
            events.push(Event::LocalQueue(second));
            queues.insert(name, queue);
        }
        let fair_sharing = match rng.u32(0..6) {
            0 => Some(FairSharing::FinalThenInitialShare),
            1 => Some(FairSharing::FinalShare),
            2 => Some(FairSharing::InitialShare),
            _ => None,
        };
        let turns = AdmissionFairSharing { half_life_ms: 500, sampling_ms: 100, weights: BTreeMap::new() };
        let admission_fair_sharing = rng.bool().then_some(turns);
        let settings = Settings { fair_sharing, admission_fair_sharing, ..Settings::default() };
        let (is_fair, world) = (fair_sharing.is_some(), World::with(settings, events));
        Self {
            world,
            queues,
            is_fair,
            rng,
            next: 0,
            now_ms: 1_000,
            shrunk: false,
            lost: BTreeSet::new(),
            told: BTreeMap::new(),
        }
    }

    fn step(&mut self) {
        self.now_ms += self.rng.i64(0..200);
        match self.rng.u32(0..100) {
            0..50 => self.submit(),
            50..75 => {
                self.with_some(|standing| matches!(standing, Standing::Reserved { .. }), Standing::Finished)
            }
            75..90 => {
                let evicted =
                    |standing: &Standing| matches!(standing, Standing::Reserved { evicted: true, .. });
                self.with_some(evicted, Standing::Pending);
            }
            90..95 => self.delete_some(),
            _ => self.change_a_queue(),
        }
        self.decide();
    }

    fn submit(&mut self) {
        let name = format!("w{}", self.next);
        self.next += 1;
        let which = ["", "-b"][self.rng.usize(0..2)];
        let queue = format!("cq-{}{which}", self.rng.usize(0..self.queues.len()));
        let mut one = workload(&name, &queue, self.rng.i64(1..=5), self.rng.i32(0..3));
        one.queued_at_ms = i64::from(self.next);
        self.world.put(one);
    }

    fn with_some(&mut self, which: impl Fn(&Standing) -> bool, next: Standing) {
        let uids: Vec<String> = self
            .world
            .workloads
            .values()
            .filter(|one| which(&one.standing))
            .map(|one| one.uid.to_string())
            .collect();
        if let Some(uid) = self.rng.choice(&uids) {
            self.world.standing(uid, next);
        }
    }

    fn delete_some(&mut self) {
        let uids: Vec<Uid> = self.world.workloads.keys().cloned().collect();
        if let Some(uid) = self.rng.choice(&uids) {
            self.world.workloads.remove(uid);
            self.world.engine.apply(Event::WorkloadGone(uid.clone()));
        }
    }

    fn change_a_queue(&mut self) {
        let name = format!("cq-{}", self.rng.usize(0..self.queues.len()));
        let queue = random_queue(&mut self.rng, &name);
        self.world.engine.apply(Event::ClusterQueue(queue.clone()));
        self.queues.insert(name, queue);
        self.shrunk = true;
    }

    /// Decides until nothing is left, with some writes lost on the way.
    fn decide(&mut self) {
        self.lost.clear();
        for _ in 0..200 {
            let decisions = self.world.engine.decide(self.now_ms);
            self.world.engine.audit().unwrap();
            if decisions.is_empty() {
                break;
            }
            self.judge_victims(&decisions);
            for decision in decisions {
                let lost = self.rng.u32(0..12) == 0;
                match decision {
                    Decision::Reserve(reserve) if lost => {
                        self.world.engine.written(reserve.id, Outcome::NotWritten);
                    }
                    Decision::Evict(evict) if lost => {
                        self.lost.insert(evict.victim.clone());
                        self.world.engine.written(evict.id, Outcome::NotWritten);
                    }
                    Decision::Reserve(reserve) => {
                        let uid = reserve.workload.clone();
                        self.world.carry_out(Decision::Reserve(reserve));
                        self.judge_quota(&uid);
                    }
                    other => self.world.carry_out(other),
                }
                self.world.engine.audit().unwrap();
            }
        }
        assert!(self.world.engine.decide(self.now_ms).is_empty(), "does not come to rest");
        self.world.take_reasons();
        self.judge_who_waits();
        self.judge_who_may_preempt();
        self.judge_reports();
        self.shrunk &= !self.allowed(&self.used(&[]));
    }

    /// What is said to be untouched is told as before.
    fn judge_reports(&mut self) {
        let (touched, touched_local) = self.world.engine.take_touched();
        for name in self.queues.keys() {
            let key = LocalQueueKey::new("ns", name.as_str());
            let reports = [
                (
                    format!("ClusterQueue {name}"),
                    touched.contains(&name.as_str().into()),
                    format!("{:?}", self.world.engine.cluster_queue_report(&name.as_str().into())),
                ),
                (
                    format!("LocalQueue {name}"),
                    touched_local.contains(&key),
                    format!("{:?}", self.world.engine.local_queue_report(&key)),
                ),
            ];
            for (what, touched, report) in reports {
                let before = self.told.insert(what.clone(), report.clone());
                if !touched && let Some(before) = before {
                    assert_eq!(before, report, "{what} changed untouched");
                }
            }
        }
    }

    /// What each queue uses according to the statuses; `without` are counted as gone.
    fn used(&self, without: &[Uid]) -> BTreeMap<String, i64> {
        let mut used: BTreeMap<String, i64> = self.queues.keys().map(|name| (name.clone(), 0)).collect();
        for one in self.world.workloads.values().filter(|one| !without.contains(&one.uid)) {
            if let Standing::Reserved { admission, .. } = &one.standing {
                *used.entry(admission.cluster_queue.as_str().to_owned()).or_default() +=
                    admission.pod_sets[0].usage[GPU];
            }
        }
        used
    }

    /// What each queue would use when everything decided has come true, with `victims` still there.
    fn planned(&self, victims: &[Uid]) -> BTreeMap<String, i64> {
        let mut planned: BTreeMap<String, i64> = self.queues.keys().map(|name| (name.clone(), 0)).collect();
        for uid in self.world.engine.workloads() {
            let admission = match self.world.engine.explain(uid).unwrap().state {
                WorkloadState::Claiming(admission)
                | WorkloadState::Assumed(admission)
                | WorkloadState::Holding(admission) => admission,
                WorkloadState::Leaving(admission, _) if victims.contains(uid) => admission,
                _ => continue,
            };
            *planned.entry(admission.cluster_queue.as_str().to_owned()).or_default() +=
                admission.pod_sets[0].usage[GPU];
        }
        planned
    }

    /// The rules of a flat cohort, written down anew.
    fn allowed(&self, used: &BTreeMap<String, i64>) -> bool {
        let (mut pool, mut taken) = (0, 0);
        for (name, queue) in &self.queues {
            let quota = queue.groups[0].flavors[0].resources[GPU];
            let kept = quota.lending_limit.map_or(0, |limit| (quota.nominal - limit).max(0));
            let used = used[name];
            if used > quota.nominal && quota.borrowing_limit.is_some_and(|limit| used > quota.nominal + limit)
            {
                return false;
            }
            pool += quota.nominal - kept;
            taken += (used - kept).max(0);
        }
        taken <= pool
    }

    fn queue_of(&self, uid: &Uid) -> &str {
        self.world.workloads[uid].queue.as_ref().unwrap().trim_end_matches("-b")
    }

    fn nominal(&self, name: &str) -> i64 {
        self.queues[name].groups[0].flavors[0].resources[GPU].nominal
    }

    fn judge_quota(&self, uid: &Uid) {
        if !self.shrunk {
            assert!(self.allowed(&self.used(&[])), "{uid} was admitted beyond the quota");
        }
    }

    /// Victims only where policy allows, and none too many.
    fn judge_victims(&self, decisions: &[Decision]) {
        let mut by_preemptor: BTreeMap<Uid, Vec<Uid>> = BTreeMap::new();
        for decision in decisions {
            if let Decision::Evict(Evict { victim, preemptor: Some(preemptor), .. }) = decision {
                by_preemptor.entry(preemptor.clone()).or_default().push(victim.clone());
            }
        }
        let all: Vec<Uid> = by_preemptor.values().flatten().cloned().collect();
        for (preemptor, victims) in &by_preemptor {
            let (me, mine) = (&self.world.workloads[preemptor], self.queue_of(preemptor));
            let policy = self.queues[mine].preemption;
            for victim in victims {
                let (it, theirs) = (&self.world.workloads[victim], self.queue_of(victim));
                let allowed = if theirs == mine {
                    may_displace(policy, me, it)
                } else {
                    self.planned(&all)[theirs] > self.nominal(theirs) && may_reclaim(policy, me, it)
                };
                assert!(
                    allowed || self.lost.contains(victim),
                    "{victim} was evicted for {preemptor} against {policy:?}"
                );
            }
            // Only where nothing else happened at once is the state before it known well enough to judge the number.
            let leaving = self
                .world
                .workloads
                .values()
                .any(|one| matches!(one.standing, Standing::Reserved { evicted: true, .. }));
            let reserved = decisions.iter().any(|one| matches!(one, Decision::Reserve(_)));
            // What is kept for the blocked head of a StrictFIFO queue is not free either.
            let strict = self.queues.values().any(|one| one.strategy == QueueingStrategy::StrictFifo);
            if leaving || reserved || strict || by_preemptor.len() > 1 || self.shrunk {
                continue;
            }
            let fits = |without: &[Uid], borrowing: bool| {
                let mut used = self.used(without);
                *used.get_mut(mine).unwrap() += me.pod_sets[0].count;
                (borrowing || used[mine] <= self.nominal(mine)) && self.allowed(&used)
            };
            let spared =
                |victim: &Uid| -> Vec<Uid> { victims.iter().filter(|one| *one != victim).cloned().collect() };
            let minimal = [true, false].into_iter().any(|borrowing| {
                fits(victims, borrowing) && victims.iter().all(|victim| !fits(&spared(victim), borrowing))
            });
            assert!(minimal, "{victims:?} for {preemptor}: too few or too many");
            let borrows = !fits(victims, false);
            for victim in victims.iter().filter(|victim| borrows && self.queue_of(victim) != mine) {
                let allowed = may_borrow_from(policy, me, &self.world.workloads[victim]);
                assert!(allowed || self.is_fair, "{victim} leaves for {preemptor}, which borrows then");
            }
        }
    }

    /// At rest, whoever waits in a best-effort queue could not have been admitted, unless the room is promised.
    fn judge_who_waits(&self) {
        let claims =
            self.world.engine.workloads().any(|uid| {
                matches!(self.world.engine.explain(uid).unwrap().state, WorkloadState::Claiming(_))
            });
        if claims || self.queues.values().any(|queue| queue.strategy == QueueingStrategy::StrictFifo) {
            return;
        }
        let used = self.used(&[]);
        for one in self.world.workloads.values().filter(|one| one.standing == Standing::Pending) {
            let mut with = used.clone();
            *with.get_mut(self.queue_of(&one.uid)).unwrap() += one.pod_sets[0].count;
            let refused = self.world.pending.get(&one.uid);
            assert!(refused.is_some(), "{} waits without a reason", one.uid);
            assert!(!self.allowed(&with), "{} waits although it fits: {refused:?}", one.uid);
        }
    }

    /// At rest, nobody waits for whom others might be told to leave: of its own queue, so that it fits, borrowing or not; or of others
    /// as well that borrow, so that it fits within what its queue has of its own, in whatever order they are told.
    fn judge_who_may_preempt(&self) {
        let is_plain = !self.is_fair
            && self.queues.values().all(|queue| queue.strategy == QueueingStrategy::BestEffortFifo);
        let comes_to_rest = |uid: &Uid| {
            let state = self.world.engine.explain(uid).unwrap().state;
            !matches!(state, WorkloadState::Claiming(_) | WorkloadState::Leaving(..))
        };
        if !is_plain || !self.world.engine.workloads().all(comes_to_rest) {
            return;
        }
        for me in self.world.workloads.values().filter(|one| one.standing == Standing::Pending) {
            let mine = self.queue_of(&me.uid);
            let queue = &self.queues[mine];
            // Who asks for more than its queue has of its own displaces nobody, unless it may while borrowing.
            let may_preempt = me.pod_sets[0].count <= self.nominal(mine)
                || queue.preemption.borrow_within_cohort != BorrowWithinCohort::Never;
            if !may_preempt || queue.admission_mode == AdmissionMode::UsageBasedFairSharing {
                continue;
            }
            let (own, others) = self.victims_of(me);
            let fits = |mut used: BTreeMap<String, i64>, borrowing: bool| {
                *used.get_mut(mine).unwrap() += me.pod_sets[0].count;
                (borrowing || used[mine] <= self.nominal(mine)) && self.allowed(&used)
            };
            let why = &self.world.pending[&me.uid];
            assert!(
                own.is_empty() || !fits(self.used(&own), true),
                "{} may displace {own:?}: {why:?}",
                me.uid
            );
            let is_under = self.used(&[])[mine] < self.nominal(mine);
            // Where they may come back for their place, three may displace one another in a circle, which has to be broken somewhere.
            let comes_back = |it: &Uid| {
                let theirs = self.holds_in(&self.world.workloads[it]);
                self.queues[theirs].preemption.reclaim_within_cohort != ReclaimWithinCohort::Never
            };
            if is_under && (1..5).contains(&others.len()) && !others.iter().any(comes_back) {
                let mut told = others.clone();
                let fits =
                    permutations(&mut told, 0).iter().all(|order| fits(self.without(&own, order), false));
                assert!(!fits, "{} may displace {own:?} and {others:?}: {why:?}", me.uid);
            }
        }
    }

    /// Whom it may displace: of its own queue, and of those that borrow.
    fn victims_of(&self, me: &Workload) -> (Vec<Uid>, Vec<Uid>) {
        let mine = self.queue_of(&me.uid);
        let policy = self.queues[mine].preemption;
        let holding =
            self.world.workloads.values().filter(|one| matches!(one.standing, Standing::Reserved { .. }));
        let (own, others): (Vec<&Workload>, Vec<&Workload>) =
            holding.partition(|one| self.holds_in(one) == mine);
        let uids = |all: Vec<&Workload>, may: fn(Preemption, &Workload, &Workload) -> bool| -> Vec<Uid> {
            all.into_iter().filter(|it| may(policy, me, it)).map(|it| it.uid.clone()).collect()
        };
        (uids(own, may_displace), uids(others, may_reclaim))
    }

    fn holds_in(&self, one: &Workload) -> &str {
        let Standing::Reserved { admission, .. } = &one.standing else { return "" };
        self.queues.keys().find(|name| *name == admission.cluster_queue.as_str()).map_or("", String::as_str)
    }

    /// What is used when these are gone, and of those in this order whoever borrows when its turn comes.
    fn without(&self, own: &[Uid], others: &[Uid]) -> BTreeMap<String, i64> {
        let mut gone = own.to_vec();
        for it in others {
            let theirs = self.holds_in(&self.world.workloads[it]);
            if self.used(&gone)[theirs] > self.nominal(theirs) {
                gone.push(it.clone());
            }
        }
        self.used(&gone)
    }
}

/// Whether a policy lets one workload displace another of its queue.
fn may_displace(policy: Preemption, me: &Workload, it: &Workload) -> bool {
    match policy.within_cluster_queue {
        WithinClusterQueue::Never => false,
        WithinClusterQueue::LowerPriority => it.priority < me.priority,
        WithinClusterQueue::LowerOrNewerEqualPriority => {
            (it.priority, -it.queued_at_ms) < (me.priority, -me.queued_at_ms)
        }
    }
}

/// Whether it lets one displace another of a queue that borrows.
fn may_reclaim(policy: Preemption, me: &Workload, it: &Workload) -> bool {
    match policy.reclaim_within_cohort {
        ReclaimWithinCohort::Never | ReclaimWithinCohort::Unset => false,
        ReclaimWithinCohort::LowerPriority => it.priority < me.priority,
        ReclaimWithinCohort::Any => true,
    }
}

/// Whether it lets one displace another of a queue that borrows, and borrow itself.
fn may_borrow_from(policy: Preemption, me: &Workload, it: &Workload) -> bool {
    match policy.borrow_within_cohort {
        BorrowWithinCohort::Never => false,
        BorrowWithinCohort::LowerPriority { threshold } => {
            it.priority < me.priority && threshold.is_none_or(|most| it.priority <= most)
        }
    }
}

fn permutations(all: &mut Vec<Uid>, from: usize) -> Vec<Vec<Uid>> {
    if from + 1 >= all.len() {
        return vec![all.clone()];
    }
    let mut found = Vec::new();
    for next in from..all.len() {
        all.swap(from, next);
        found.extend(permutations(all, from + 1));
        all.swap(from, next);
    }
    found
}

fn random_queue(rng: &mut fastrand::Rng, name: &str) -> ClusterQueue {
    let nominal = rng.i64(0..=8);
    let limit = |rng: &mut fastrand::Rng, most: i64| rng.bool().then(|| rng.i64(0..=most));
    let quota = quota(nominal, limit(rng, 6), limit(rng, nominal));
    let mut queue = cluster_queue(name, Some("pool"), gpus(&[("a100", quota)]));
    if rng.u32(0..5) == 0 {
        queue.strategy = QueueingStrategy::StrictFifo;
    }
    queue.weight = Weight::from_nanos(i128::from(rng.u8(0..=4)) * 500_000_000);
    if rng.bool() {
        queue.admission_mode = AdmissionMode::UsageBasedFairSharing;
    }
    queue.preemption.within_cluster_queue = [
        WithinClusterQueue::Never,
        WithinClusterQueue::LowerPriority,
        WithinClusterQueue::LowerOrNewerEqualPriority,
    ][rng.usize(0..3)];
    queue.preemption.reclaim_within_cohort =
        [ReclaimWithinCohort::Never, ReclaimWithinCohort::LowerPriority, ReclaimWithinCohort::Any]
            [rng.usize(0..3)];
    if queue.preemption.reclaim_within_cohort != ReclaimWithinCohort::Never && rng.bool() {
        queue.preemption.borrow_within_cohort = BorrowWithinCohort::LowerPriority { threshold: Some(1) };
    }
    queue
}

fn tell(seed: u64) -> Vec<Uid> {
    let mut story = Story::new(seed);
    for _ in 0..STEPS {
        story.step();
    }
    story.world.admissions
}

#[test]
fn books_quota_victims_and_reasons_hold_in_random_stories() {
    let admissions: usize = (0..STORIES)
        .map(|seed| {
            std::panic::catch_unwind(|| tell(seed).len())
                .unwrap_or_else(|_| panic!("story {seed} went wrong"))
        })
        .sum();
    assert!(admissions > 2_000, "the stories are too dull: {admissions} admissions");
}

#[test]
fn the_same_story_is_told_twice_alike() {
    for seed in 0..20 {
        assert_eq!(tell(seed), tell(seed));
    }
}
