//! Random stories in trees of cohorts with several resources, flavors and limits at every level: too wide to be judged by hand in
//! all, so what is judged holds of every decision. Whatever happens, the engine comes to rest; nobody drives others out in circles;
//! nothing is used beyond the rules; and nobody leaves against the policies.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use std::collections::BTreeMap;

use model::ResourceName;
use quota_engine::input::*;
use quota_engine::topology::{HOSTNAME, Node, Spread};
use quota_engine::*;
use support::*;

/// In 344 and 1262 two heads went round their flavors out of step, for ever.
const STORIES: u64 = 2_000;
const STEPS: usize = 60;
const RESOURCES: [&str; 2] = ["cpu", "memory"];
const FLAVORS: [&str; 3] = ["f0", "f1", "f2"];
/// In the stories in which there are places.
const NODES: usize = 9;
const RACK: &str = "rack";

struct Story {
    world: World,
    queues: BTreeMap<String, ClusterQueue>,
    cohorts: BTreeMap<String, Cohort>,
    settings: Settings,
    /// Flavors have nodes, and pods want to be near to one another.
    has_places: bool,
    rng: fastrand::Rng,
    next: u32,
    now_ms: i64,
    /// Quota was taken away from under somebody: use above the rules is then no fault.
    shrunk: bool,
}

impl Story {
    fn new(seed: u64) -> Self {
        let mut rng = fastrand::Rng::with_seed(seed);
        let has_places = rng.u32(0..3) == 0;
        let of_racks = |name: &&str| Flavor { topology: Some("racks".into()), ..flavor(name) };
        let mut events: Vec<Event> = match has_places {
            false => FLAVORS.iter().map(|name| Event::Flavor(flavor(name))).collect(),
            true => FLAVORS.iter().map(|name| Event::Flavor(of_racks(name))).collect(),
        };
        if has_places {
            events.push(Event::Topology("racks".into(), vec![RACK.to_owned(), HOSTNAME.to_owned()]));
            events.extend((0..NODES).map(|index| random_node(&mut rng, index)));
        }
        let mut cohorts = BTreeMap::new();
        for index in 0..rng.usize(0..=2) {
            let cohort = random_cohort(&mut rng, index);
            events.push(Event::Cohort(cohort.clone()));
            cohorts.insert(cohort.name.to_string(), cohort);
        }
        let mut queues = BTreeMap::new();
        for index in 0..rng.usize(1..=4) {
            let name = format!("q{index}");
            let queue = random_queue(&mut rng, &name, cohorts.len());
            events.extend([Event::ClusterQueue(queue.clone()), Event::LocalQueue(local_queue(&name))]);
            queues.insert(name, queue);
        }
        let settings = random_settings(&mut rng);
        let world = World::with(settings.clone(), events);
        Self { world, queues, cohorts, settings, has_places, rng, next: 0, now_ms: 1_000, shrunk: false }
    }

    fn step(&mut self) {
        self.now_ms += self.rng.i64(0..200);
        match self.rng.u32(0..100) {
            0..55 => self.submit(),
            55..80 => self.end_one(),
            80..90 => self.delete_one(),
            90..95 if self.has_places => self.change_a_node(),
            _ => self.change_a_queue(),
        }
        self.come_to_rest();
        self.judge_use();
    }

    fn submit(&mut self) {
        let name = format!("w{}", self.next);
        self.next += 1;
        let queue = format!("q{}", self.rng.usize(0..self.queues.len()));
        let mut one = workload(&name, &queue, 1, self.rng.i32(0..4));
        one.queued_at_ms = i64::from(self.next);
        let sets = if self.rng.u32(0..4) == 0 { 2 } else { 1 };
        one.pod_sets = (0..sets).map(|index| random_pod_set(&mut self.rng, index, self.has_places)).collect();
        self.world.put(one);
    }

    fn some(&mut self, which: impl Fn(&Standing) -> bool) -> Option<String> {
        let all = self.world.workloads.values().filter(|one| which(&one.standing));
        let uids: Vec<String> = all.map(|one| one.uid.to_string()).collect();
        self.rng.choice(uids)
    }

    fn end_one(&mut self) {
        if let Some(uid) = self.some(|standing| matches!(standing, Standing::Reserved { .. })) {
            self.world.standing(&uid, Standing::Finished);
        }
    }

    fn delete_one(&mut self) {
        if let Some(uid) = self.some(|_| true) {
            self.world.workloads.remove(&Uid::from(uid.as_str()));
            self.world.engine.apply(Event::WorkloadGone(uid.as_str().into()));
        }
    }

    fn change_a_node(&mut self) {
        let index = self.rng.usize(0..NODES);
        let event = match self.rng.bool() {
            true => random_node(&mut self.rng, index),
            false => Event::NodeGone(format!("node-{index}").as_str().into()),
        };
        self.world.engine.apply(event);
    }

    fn change_a_queue(&mut self) {
        let name = format!("q{}", self.rng.usize(0..self.queues.len()));
        let queue = random_queue(&mut self.rng, &name, self.cohorts.len());
        self.world.engine.apply(Event::ClusterQueue(queue.clone()));
        self.queues.insert(name, queue);
        self.shrunk = true;
    }

    /// Decides and writes until nothing is left to do; who is told to leave does so now or in the next round.
    fn come_to_rest(&mut self) {
        let before = self.world.evictions.len();
        for _ in 0..400 {
            let decisions = self.decide();
            let leaving = self.world.leaving();
            if decisions.is_empty() && leaving.is_empty() {
                self.world.take_reasons();
                let evictions = self.world.evictions.len() - before;
                let most = 3 * self.world.workloads.len();
                assert!(
                    evictions <= most,
                    "{evictions} evictions among {} workloads",
                    self.world.workloads.len()
                );
                self.judge_what_is_told();
                return self.judge_who_waits();
            }
            for decision in decisions {
                self.judge_victim(&decision);
                match decision {
                    Decision::Reserve(Reserve { id, .. }) | Decision::Evict(Evict { id, .. })
                        if self.rng.u32(0..12) == 0 =>
                    {
                        self.world.engine.written(id, Outcome::NotWritten);
                    }
                    other => self.world.carry_out(other),
                }
                self.world.engine.audit().unwrap();
            }
            for uid in leaving {
                if self.rng.bool() {
                    self.world.standing(&uid.to_string(), Standing::Pending);
                }
            }
        }
        panic!("it does not come to rest");
    }

    /// Nobody waits whom an engine would admit that knows nothing of what was before. Pod sets of one workload take each other's
    /// flavors, so that less room may suit them better; and without what was tried before, others go round in its place.
    fn judge_who_waits(&self) {
        if self.has_places || !self.settings.preserve_scan_progress {
            return;
        }
        let flavors = FLAVORS.iter().map(|name| Event::Flavor(flavor(name)));
        let cohorts = self.cohorts.values().cloned().map(Event::Cohort);
        let queues = self.queues.values().cloned().map(Event::ClusterQueue);
        let locals = self.queues.keys().map(|name| Event::LocalQueue(local_queue(name)));
        let events = flavors.chain(cohorts).chain(queues).chain(locals);
        let mut other = World::with(self.settings.clone(), events);
        for one in self.world.workloads.values() {
            other.put(one.clone());
        }
        let decisions = other.engine.decide(self.now_ms);
        let mut admitted = decisions.iter().filter_map(|one| match one {
            Decision::Reserve(one) => Some(&one.workload),
            _ => None,
        });
        let simple = admitted.find(|uid| self.world.workloads[*uid].pod_sets.len() == 1);
        let evicts = decisions.iter().any(|one| matches!(one, Decision::Evict(_)));
        assert!(evicts || simple.is_none(), "{simple:?} waits: {:?}", self.world.pending);
    }

    /// Everybody was told what it waits for, and so was its like.
    fn judge_what_is_told(&self) {
        for one in self.world.workloads.values().filter(|one| one.standing == Standing::Pending) {
            let known = self.world.engine.last_reason(&one.uid).map(PendingReason::token);
            let told = self.world.pending.get(&one.uid).map(PendingReason::token);
            assert!(known.is_some() && told == known, "{} was told {told:?}, not {known:?}", one.uid);
        }
    }

    fn decide(&mut self) -> Vec<Decision> {
        let mut decisions = self.world.engine.decide(self.now_ms);
        for _ in 0..3 {
            if !self.world.engine.has_more() {
                self.world.engine.audit().unwrap();
                return decisions;
            }
            decisions.extend(self.world.engine.decide(self.now_ms));
        }
        panic!("it looks at the same heads for ever");
    }

    /// Only who may be displaced is, for the reason that is told.
    fn judge_victim(&self, decision: &Decision) {
        let Decision::Evict(Evict { victim, preemptor: Some(preemptor), reason, .. }) = decision else {
            return;
        };
        let EvictReason::Preempted(right) = reason else { panic!("{reason:?} for {preemptor}") };
        let (it, me) = (&self.world.workloads[victim], &self.world.workloads[preemptor]);
        let queue = |one: &Workload| one.queue.as_ref().unwrap().to_string();
        let policy = self.queues[&queue(me)].preemption;
        let is_lower = it.priority < me.priority;
        let allowed = match right {
            PreemptionReason::InClusterQueue => {
                queue(me) == queue(it)
                    && match policy.within_cluster_queue {
                        WithinClusterQueue::Never => false,
                        WithinClusterQueue::LowerPriority => is_lower,
                        WithinClusterQueue::LowerOrNewerEqualPriority => {
                            is_lower || it.priority == me.priority && it.queued_at_ms > me.queued_at_ms
                        }
                    }
            }
            PreemptionReason::InCohortReclamation | PreemptionReason::InCohortFairSharing => {
                queue(me) != queue(it)
                    && match policy.reclaim_within_cohort {
                        ReclaimWithinCohort::Never | ReclaimWithinCohort::Unset => false,
                        ReclaimWithinCohort::LowerPriority => is_lower,
                        ReclaimWithinCohort::Any => true,
                    }
            }
            PreemptionReason::InCohortReclaimWhileBorrowing => {
                queue(me) != queue(it)
                    && match policy.borrow_within_cohort {
                        BorrowWithinCohort::Never => false,
                        BorrowWithinCohort::LowerPriority { threshold } => {
                            is_lower && threshold.is_none_or(|most| it.priority <= most)
                        }
                    }
            }
        };
        assert!(allowed, "{victim} leaves for {preemptor}: {right:?} against {policy:?}");
        assert!(self.settings.fair_sharing.is_some() || *right != PreemptionReason::InCohortFairSharing);
    }

    /// Each queue and cohort uses what it has, what it may borrow and what others lend, and nothing more.
    fn judge_use(&mut self) {
        let all = FLAVORS.iter().flat_map(|flavor| RESOURCES.map(|resource| (*flavor, resource)));
        let wrong =
            all.filter_map(|(flavor, resource)| Tree { story: self, flavor, resource }.judge_all().err());
        let wrong: Vec<String> = wrong.collect();
        assert!(self.shrunk || wrong.is_empty(), "{wrong:?}");
        self.shrunk = !wrong.is_empty();
    }
}

/// What is used and what there is of one resource of one flavor.
struct Tree<'a> {
    story: &'a Story,
    flavor: &'a str,
    resource: &'a str,
}

impl Tree<'_> {
    fn judge_all(&self) -> Result<(), String> {
        let alone = self.story.queues.values().filter(|queue| queue.cohort.is_none());
        for queue in alone {
            self.within(queue.name.as_str(), self.used_by(queue), self.of(&queue.groups).nominal)?;
        }
        let (used, quota) = self.judge("root")?;
        self.within("root", used, quota)
    }

    fn within(&self, who: &str, used: i64, most: i64) -> Result<(), String> {
        let words = || format!("{who} uses {used} {} {}, and may use {most}", self.flavor, self.resource);
        (used <= most).then_some(()).ok_or_else(words)
    }

    fn of(&self, groups: &[ResourceGroup]) -> Quota {
        let resource = ResourceName::from(self.resource);
        let mut quotas =
            groups.iter().flat_map(|group| &group.flavors).filter(|one| one.flavor.as_str() == self.flavor);
        quotas.find_map(|one| one.resources.get(&resource).copied()).unwrap_or(quota(0, None, None))
    }

    fn used_by(&self, queue: &ClusterQueue) -> i64 {
        let resource = ResourceName::from(self.resource);
        let mut used = 0;
        for one in self.story.world.workloads.values() {
            let Standing::Reserved { admission, .. } = &one.standing else { continue };
            if admission.cluster_queue == queue.name {
                let sets = admission.pod_sets.iter();
                let here = sets
                    .filter(|set| set.flavors.get(&resource).is_some_and(|one| one.as_str() == self.flavor));
                used += here.map(|set| set.usage.get(&resource).copied().unwrap_or(0)).sum::<i64>();
            }
        }
        used
    }

    /// Of a cohort: what is used of what is lent to it and its own, and how much that is. Judges everybody below.
    fn judge(&self, cohort: &str) -> Result<(i64, i64), String> {
        let own = self.story.cohorts.get(cohort).map_or(quota(0, None, None), |one| self.of(&one.groups));
        let (mut used, mut total) = (0, own.nominal);
        let mut members = Vec::new();
        for queue in self
            .story
            .queues
            .values()
            .filter(|one| one.cohort.as_ref().is_some_and(|name| name.as_str() == cohort))
        {
            let of = self.of(&queue.groups);
            members.push((queue.name.to_string(), self.used_by(queue), of.nominal, of));
        }
        for (name, below) in &self.story.cohorts {
            if below.parent.as_ref().is_some_and(|parent| parent.as_str() == cohort) {
                let (used, quota) = self.judge(name)?;
                members.push((name.clone(), used, quota, self.of(&below.groups)));
            }
        }
        for (name, uses, has, Quota { borrowing_limit, lending_limit, .. }) in members {
            let kept = lending_limit.map_or(0, |limit| (has - limit).max(0));
            if let Some(limit) = borrowing_limit {
                self.within(&name, uses, has + limit)?;
            }
            used += (uses - kept).max(0);
            total += has - kept;
        }
        Ok((used, total))
    }
}

fn random_settings(rng: &mut fastrand::Rng) -> Settings {
    let strategies = [FairSharing::FinalThenInitialShare, FairSharing::FinalShare, FairSharing::InitialShare];
    let turns = AdmissionFairSharing { half_life_ms: 500, sampling_ms: 100, weights: BTreeMap::new() };
    let usual = Settings {
        fair_sharing: rng.choice(strategies).filter(|_| rng.u32(0..3) == 0),
        admission_fair_sharing: Some(turns).filter(|_| rng.u32(0..4) == 0),
        ..Settings::default()
    };
    if rng.bool() {
        return usual;
    }
    Settings {
        partial_admission: rng.bool(),
        priority_sorting: rng.bool(),
        recompute_overlapping_targets: rng.bool(),
        preserve_scan_progress: rng.bool(),
        non_borrowing_first: rng.bool(),
        preempt_within_nominal: rng.bool(),
        ..usual
    }
}

fn random_quota(rng: &mut fastrand::Rng, nominals: &[i64], borrows: bool) -> Quota {
    let nominal = *rng.choice(nominals).unwrap();
    if !borrows {
        return quota(nominal, None, None);
    }
    let borrowing_limit = rng.choice([0, 2, 4, 8]).filter(|_| rng.u32(0..5) < 2);
    let lending_limit = rng.choice([0, 1, 2, nominal]).filter(|_| rng.u32(0..3) == 0);
    quota(nominal, borrowing_limit, lending_limit.map(|limit| limit.min(nominal)))
}

/// Cohorts `c0` and, below that or beside it, `c1`; their root is nowhere but in their names.
fn random_cohort(rng: &mut fastrand::Rng, index: usize) -> Cohort {
    let parent = if index == 1 && rng.bool() { "c0" } else { "root" };
    let quotas = FlavorQuotas {
        flavor: "f0".into(),
        resources: RESOURCES.map(|name| (name.into(), random_quota(rng, &[0, 2, 4], true))).into(),
    };
    let group = ResourceGroup { covered: RESOURCES.map(Into::into).into(), flavors: vec![quotas] };
    let name = format!("c{index}");
    Cohort {
        name: name.as_str().into(),
        uid: name.as_str().into(),
        parent: Some(parent.into()),
        groups: if rng.bool() { vec![group] } else { Vec::new() },
        weight: Weight::from_nanos(i128::from(rng.u8(0..=4)) * 500_000_000),
    }
}

fn random_queue(rng: &mut fastrand::Rng, name: &str, cohorts: usize) -> ClusterQueue {
    let parent = match rng.usize(0..cohorts + 3) {
        0 => None,
        index if index <= cohorts => Some(format!("c{}", index - 1)),
        _ => Some("root".to_owned()),
    };
    let mut flavors: Vec<&str> = FLAVORS[..rng.choice([1, 2, 3, 3]).unwrap()].to_vec();
    let group = |rng: &mut fastrand::Rng, covered: &[&str], flavors: &[&str]| ResourceGroup {
        covered: covered.iter().map(|name| (*name).into()).collect(),
        flavors: flavors
            .iter()
            .map(|flavor| FlavorQuotas {
                flavor: (*flavor).into(),
                resources: covered
                    .iter()
                    .map(|name| ((*name).into(), random_quota(rng, &[0, 2, 3, 4, 6, 8], parent.is_some())))
                    .collect(),
            })
            .collect(),
    };
    let groups = if flavors.len() > 1 && rng.u32(0..3) > 0 {
        vec![group(rng, &RESOURCES[..1], &flavors[..1]), group(rng, &RESOURCES[1..], &flavors[1..])]
    } else {
        rng.shuffle(&mut flavors);
        vec![group(rng, &RESOURCES, &flavors)]
    };
    let mut queue = cluster_queue(name, parent.as_deref(), groups);
    if rng.bool() {
        queue.strategy = QueueingStrategy::StrictFifo;
    }
    if rng.u32(0..10) == 0 {
        queue.stop = rng.choice([StopPolicy::Hold, StopPolicy::HoldAndDrain]).unwrap();
    }
    if rng.bool() {
        queue.admission_mode = AdmissionMode::UsageBasedFairSharing;
    }
    queue.weight = Weight::from_nanos(i128::from(rng.u8(0..=4)) * 500_000_000);
    let searches = [Search::MayStop, Search::TryNext];
    queue.fungibility = Fungibility {
        when_can_borrow: rng.choice(searches).unwrap(),
        when_can_preempt: rng.choice(searches).unwrap(),
        preference: rng
            .choice([Preference::BorrowingOverPreemption, Preference::PreemptionOverBorrowing])
            .unwrap(),
    };
    let (within, reclaim) = (
        [
            WithinClusterQueue::Never,
            WithinClusterQueue::LowerPriority,
            WithinClusterQueue::LowerOrNewerEqualPriority,
        ],
        [ReclaimWithinCohort::Never, ReclaimWithinCohort::LowerPriority, ReclaimWithinCohort::Any],
    );
    queue.preemption.within_cluster_queue = rng.choice(within).unwrap();
    queue.preemption.reclaim_within_cohort = rng.choice(reclaim).unwrap();
    if queue.preemption.reclaim_within_cohort != ReclaimWithinCohort::Never && rng.u32(0..5) < 2 {
        let threshold = rng.choice([None, Some(0), Some(1), Some(2)]).unwrap();
        queue.preemption.borrow_within_cohort = BorrowWithinCohort::LowerPriority { threshold };
    }
    queue
}

fn random_node(rng: &mut fastrand::Rng, index: usize) -> Event {
    let name = format!("node-{index}");
    let label = |key: &str, value: &str| (key.to_owned(), value.to_owned());
    let labels = [
        label(HOSTNAME, &name),
        label(RACK, ["left", "right"][index / FLAVORS.len() % 2]),
        label("gpu-type", FLAVORS[index % FLAVORS.len()]),
    ];
    let amounts = RESOURCES.map(|name| (ResourceName::from(name), rng.choice([2, 3, 5, 8]).unwrap()));
    let pods = (ResourceName::from(ResourceName::PODS), 9);
    Event::Node(Node {
        name: name.as_str().into(),
        labels: labels.into(),
        taints: Vec::new(),
        allocatable: amounts.into_iter().chain([pods]).collect(),
        ready: true,
    })
}

fn random_wish(rng: &mut fastrand::Rng) -> TopologyWish {
    let level = rng.choice([RACK, HOSTNAME]).unwrap();
    let spread = rng.choice([
        Spread::Required(level.into()),
        Spread::Preferred(level.into()),
        Spread::Unconstrained,
        Spread::Unsaid,
    ]);
    TopologyWish { spread: spread.unwrap(), layers: Vec::new() }
}

fn random_pod_set(rng: &mut fastrand::Rng, index: usize, has_places: bool) -> PodSet {
    let count = rng.choice([1, 1, 1, 2, 3]).unwrap();
    let mut requests = BTreeMap::new();
    for name in RESOURCES {
        if requests.is_empty() || rng.u32(0..3) > 0 {
            requests.insert(ResourceName::from(name), rng.choice([1, 1, 2, 2, 3, 5]).unwrap());
        }
    }
    PodSet {
        name: ["main", "workers"][index].into(),
        count,
        min_count: (index == 0 && count > 1 && rng.u32(0..3) == 0).then_some(1),
        pod_requests: std::sync::Arc::new(requests.clone().into_iter().collect()),
        requests: requests.into_iter().collect(),
        topology: (has_places && rng.u32(0..4) > 0).then(|| random_wish(rng)),
        ..PodSet::default()
    }
}

fn tell(seed: u64) -> (usize, usize) {
    let mut story = Story::new(seed);
    for _ in 0..STEPS {
        story.step();
    }
    (story.world.admissions.len(), story.world.evictions.len())
}

#[test]
fn whatever_happens_it_comes_to_rest_within_the_rules() {
    let (mut admissions, mut evictions) = (0, 0);
    for seed in 0..STORIES {
        let told = std::panic::catch_unwind(|| tell(seed));
        let (admitted, evicted) = told.unwrap_or_else(|_| panic!("story {seed} went wrong"));
        admissions += admitted;
        evictions += evicted;
    }
    assert!(
        admissions > 10_000 && evictions > 1_500,
        "too dull: {admissions} admissions, {evictions} evictions"
    );
}
