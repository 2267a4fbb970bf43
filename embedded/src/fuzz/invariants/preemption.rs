//! Layer 1: who is preempted makes room for somebody, and nobody leaves in vain.

use std::collections::{BTreeSet, VecDeque};

use model::{ResourceList, resources};
use serde_json::Value;

use super::liveness::{asks, free, is_plain, pending, queue_of};
use super::quota::{became_true, beneficiary, borrows, cohort_of, held, quota_cell, used};
use super::slices::needs;
use super::tree::{Cell, Tree};
use crate::fuzz::world::{
    CLUSTER_QUEUES, FLAVORS, GRACE, Key, LOCAL_QUEUES, WORKLOADS, World, Write, condition, holds, key, text,
    uid,
};

/// How long after the first victim the last one of the same decision is written, in milliseconds, if nothing is in the way.
const BATCH: i64 = 5_000;

/// The victims of one decision.
#[derive(Debug)]
struct Batch {
    /// When the first of them was written.
    at: i64,
    /// By whom.
    by: String,
    /// The uid of the workload that they make room for.
    beneficiary: String,
    victims: BTreeSet<Key>,
}

/// A victim of another queue's claim to what is its own.
#[derive(Debug)]
struct Reclaimed {
    at: i64,
    victim: Key,
    queue: String,
    /// What the one asks for whom it makes room. Of which of it there was not enough is not known outside; a queue that borrows
    /// any of that may lose whoever uses any of it.
    asked: ResourceList,
}

/// The preemptions under way.
#[derive(Debug, Default)]
pub(super) struct Preemptions {
    open: Vec<Batch>,
    /// Victims of other queues, of whom it is not judged yet whether their queue borrowed.
    reclaimed: Vec<Reclaimed>,
    /// The queues and workloads after each change of quota within [`GRACE`], and before the first of these.
    seen: VecDeque<(i64, World)>,
    /// When a batch was last seen.
    last: i64,
}

impl Preemptions {
    /// Notes what a write says of preemption. The one it is for must exist.
    pub(super) fn observe(&mut self, world: &World, write: &Write) -> Result<(), String> {
        self.judge_reclaimed(world, write.at)?;
        let moves = match write.resource.as_str() {
            CLUSTER_QUEUES => spec(write.old.as_deref()) != spec(write.new.as_deref()),
            WORKLOADS => write.old.is_none() || changes_quota(write),
            _ => false,
        };
        if moves {
            self.seen.push_back((write.at, world.only(&[WORKLOADS, CLUSTER_QUEUES, LOCAL_QUEUES, FLAVORS])));
            while self.seen.get(1).is_some_and(|(at, _)| *at < write.at - GRACE) {
                self.seen.pop_front();
            }
        }
        if write.resource == WORKLOADS && became_true(write, "Preempted") {
            return self.victim(world, write);
        }
        Ok(())
    }

    fn victim(&mut self, world: &World, write: &Write) -> Result<(), String> {
        let Some(beneficiary) = beneficiary(write.object()) else {
            let told = condition(write.object(), "Preempted").map(|one| text(one, "/message"));
            return Err(format!("{:?} was preempted for {told:?}, which names nobody", write.key()));
        };
        if !world.once_known(WORKLOADS, beneficiary) {
            return Err(format!("{:?} was preempted for {beneficiary}, which does not exist", write.key()));
        }
        let why = condition(write.object(), "Preempted").map(|one| text(one, "/reason")).unwrap_or_default();
        let asked = world.all(WORKLOADS).find(|one| uid(one) == beneficiary).and_then(|one| asks(one));
        let queue = text(write.object(), "/status/admission/clusterQueue");
        // The victims of one instant are written in any order.
        self.reclaimed.retain(|one| !somebody_could_borrow(world, &one.queue, &one.asked));
        if let (true, Some(asked)) = (why.starts_with("InCohort"), asked)
            && !somebody_could_borrow(world, queue, &asked)
        {
            self.reclaimed.push(Reclaimed {
                at: write.at,
                victim: write.key(),
                queue: queue.to_owned(),
                asked,
            });
        }
        match self.open.iter_mut().find(|batch| batch.beneficiary == beneficiary) {
            Some(batch) => drop(batch.victims.insert(write.key())),
            None => self.open.push(Batch {
                at: write.at,
                by: write.writer.clone(),
                beneficiary: beneficiary.to_owned(),
                victims: [write.key()].into(),
            }),
        }
        Ok(())
    }

    /// Who is killed may have been about to write further victims of the same decision.
    pub(super) fn killed(&mut self, writer: &str) {
        self.open.retain(|batch| batch.by != writer);
    }

    /// Judges the decisions whose last victim must have been written by now.
    pub(super) fn judge(&mut self, world: &World, now: i64) -> Result<(), String> {
        let ripe = |batch: &Batch| batch.at + BATCH <= now;
        let (ripe, open): (Vec<_>, Vec<_>) = std::mem::take(&mut self.open).into_iter().partition(ripe);
        self.open = open;
        let Some(first) = ripe.iter().map(|batch| batch.at).min() else { return Ok(()) };
        // Which victims would do in a larger estate takes an engine to tell.
        let plain = self.seen.back().is_some_and(|(_, world)| is_plain(world));
        let alone = plain && ripe.len() == 1 && self.open.is_empty() && self.last < first - GRACE;
        self.last = now;
        // What was promised to several at once is not known outside.
        if !alone {
            return Ok(());
        }
        let verdicts: Vec<_> = self.seen.iter().map(|(_, before)| ripe[0].verdict(before, world)).collect();
        if verdicts.contains(&Verdict::Minimal) || verdicts.contains(&Verdict::Unknown) {
            return Ok(());
        }
        Err(format!("{:?} were preempted for {}: too few or too many", ripe[0].victims, ripe[0].beneficiary))
    }
}

impl Preemptions {
    /// Nobody is reclaimed from who uses no more than what is his. What was decided at the same time counts, and is written
    /// soon after; what was used then is forgotten after [`GRACE`], so it is judged in time, and not when somebody asks.
    fn judge_reclaimed(&mut self, world: &World, now: i64) -> Result<(), String> {
        let ripe = |one: &Reclaimed| one.at + BATCH <= now;
        let (ripe, open): (Vec<_>, Vec<_>) = std::mem::take(&mut self.reclaimed).into_iter().partition(ripe);
        self.reclaimed = open;
        match ripe.iter().find(|one| !borrows(world, &one.queue, &one.asked)) {
            Some(one) => {
                Err(format!("{:?} was preempted by others, and {} borrowed nothing", one.victim, one.queue))
            }
            None => Ok(()),
        }
    }
}

/// Whether somebody waits in this queue for whom there is room, or for whom others leave it, and who would borrow any of this.
/// Kueue would admit it, and then reclaim from the queue, from whom it may and in what order it does. Where both are decided
/// at one instant, or the claim is lost to others again when the room is there, the admission is never written.
fn somebody_could_borrow(world: &World, queue: &str, asked: &ResourceList) -> bool {
    let tree = Tree::now(world);
    let flavors: BTreeSet<&str> = world.all(FLAVORS).map(|flavor| text(flavor, "/metadata/name")).collect();
    let is_here = |one: &Value| text(one, "/status/admission/clusterQueue") == queue;
    let waiting = pending(world)
        .filter(|one| queue_of(world, one).is_some_and(|of| text(of, "/metadata/name") == queue))
        .filter_map(|one| Some((one, needs(world, one)?)));
    waiting.into_iter().any(|(workload, wanted)| {
        let leaving: Vec<&Value> = leaving_for(world, uid(workload)).collect();
        let mut own = used(world, queue);
        for (cell, gone) in leaving.iter().filter(|one| is_here(one)).flat_map(|one| held(one)) {
            *own.entry(cell).or_default() -= gone;
        }
        flavors.iter().any(|flavor| {
            let cells = wanted
                .iter()
                .filter(|(_, amount)| **amount > 0)
                .map(|(resource, amount)| (((*flavor).to_owned(), resource.as_str().to_owned()), *amount));
            let cells: Vec<_> = cells.filter(|(cell, _)| tree.offers(queue, cell)).collect();
            let would_borrow = |(cell, amount): &(Cell, i64)| {
                asked.keys().any(|resource| resource.as_str() == cell.1)
                    && own.get(cell).copied().unwrap_or(0) + amount > tree.nominal(queue, cell)
            };
            let has_room = || cells.iter().all(|(cell, amount)| tree.room(queue, cell) >= *amount);
            (!leaving.is_empty() || has_room()) && cells.iter().any(would_borrow)
        })
    })
}

/// The victims that make room for this one and have not left yet, or left of late.
fn leaving_for<'a>(world: &'a World, preemptor: &'a str) -> impl Iterator<Item = &'a Value> {
    let is_recent =
        |one: &Value| world.turned(one, "Preempted").is_some_and(|since| since >= world.now - GRACE);
    world.all(WORKLOADS).map(|one| &**one).filter(move |one| {
        holds(one, "Evicted")
            && holds(one, "Preempted")
            && beneficiary(one) == Some(preemptor)
            && (!held(one).is_empty() || is_recent(one))
    })
}

/// What is to be thought of the victims, if the queues were as somebody saw them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    /// With all of them gone the workload fits, with one of them left it does not.
    Minimal,
    /// They were too few, or more than needed.
    Wrong,
    /// It takes the engine's own property test to tell.
    Unknown,
}

impl Batch {
    /// `world` is as somebody saw it, `now` as it is since.
    fn verdict(&self, world: &World, now: &World) -> Verdict {
        let Some(workload) = world.all(WORKLOADS).find(|one| uid(one) == self.beneficiary) else {
            return Verdict::Wrong;
        };
        let Some((queue, asked)) = queue_of(world, workload).zip(needs(world, workload)) else {
            return Verdict::Unknown;
        };
        // One that was to leave and had its end first is a victim of whom nobody is told.
        let ends = |one: &Value| {
            let (namespace, name) = key(one);
            let later = now.get(WORKLOADS, &namespace, &name);
            later.is_none_or(|later| held(later).is_empty())
        };
        let mut others = world.all(WORKLOADS).filter(|one| !held(one).is_empty());
        let leaving =
            others.any(|one| !self.victims.contains(&key(one)) && (holds(one, "Evicted") || ends(one)));
        // Something is kept for the head of a StrictFIFO queue.
        let strict = world
            .all(CLUSTER_QUEUES)
            .filter(|one| uid(one) == uid(queue) || shares(one, queue))
            .any(|one| text(one, "/spec/queueingStrategy") == "StrictFIFO");
        if leaving || strict {
            return Verdict::Unknown;
        }
        let fits = |asked: &ResourceList, spared: Option<&Key>, borrowing: bool| {
            let mut after = world.clone();
            for victim in self.victims.iter().filter(|victim| Some(*victim) != spared) {
                after.forget(WORKLOADS, victim);
            }
            has_room(&after, queue, asked, borrowing)
        };
        let minimal = |asked: &ResourceList| {
            [true, false].into_iter().any(|borrowing| {
                fits(asked, None, borrowing)
                    && self.victims.iter().all(|victim| !fits(asked, Some(victim), borrowing))
            })
        };
        let beside = self.given_unseen(world, queue).into_iter().filter_map(|mut beside| {
            resources::checked_add(&mut beside, &asked).ok()?;
            Some(beside)
        });
        if minimal(&asked) || beside.into_iter().any(|both| minimal(&both)) {
            Verdict::Minimal
        } else {
            Verdict::Wrong
        }
    }

    /// What those ask for who have room, and may have been given it without a trace: the write was slow and failed in the end,
    /// or a third displaced them at the same instant, before anybody was told. (Kueue would write both.)
    fn given_unseen(&self, world: &World, queue: &Value) -> Vec<ResourceList> {
        let waiting = pending(world).filter(|one| uid(one) != self.beneficiary);
        let asked = waiting.filter_map(|one| {
            let of = queue_of(world, one).filter(|of| uid(of) == uid(queue) || shares(of, queue))?;
            needs(world, one).filter(|asked| has_room(world, of, asked, true))
        });
        asked.collect()
    }
}

fn has_room(world: &World, queue: &Value, asked: &ResourceList, borrowing: bool) -> bool {
    asked.iter().all(|(resource, amount)| {
        let resource = resource.as_str();
        let cell = ("gpu".to_owned(), resource.to_owned());
        let mine = used(world, text(queue, "/metadata/name")).get(&cell).copied().unwrap_or(0);
        let nominal = quota_cell(queue, "gpu", resource).map_or(0, |(nominal, _)| nominal);
        free(world, queue, resource) >= *amount && (borrowing || mine + amount <= nominal)
    })
}

fn shares(one: &Value, other: &Value) -> bool {
    !cohort_of(one).is_empty() && cohort_of(one) == cohort_of(other)
}

fn spec(object: Option<&Value>) -> Option<&Value> {
    object?.get("spec")
}

/// Whether a write changes what a workload holds, or begins an eviction that is no preemption.
fn changes_quota(write: &Write) -> bool {
    let state =
        |object: Option<&Value>| object.map(|one| (held(one), holds(one, "Evicted"))).unwrap_or_default();
    state(write.old.as_deref()) != state(write.new.as_deref())
}

#[cfg(test)]
mod tests {
    use cluster_sim::Verb;
    use serde_json::json;

    use super::*;

    const GPU: &str = "nvidia.com/gpu";

    /// A queue `q` with 8 GPUs of its own and another with 20, both with this spec otherwise, and workloads in `q`.
    fn world(spec: &Value, workloads: &[Value]) -> World {
        let quota = |nominal: i64| json!([{ "flavors": [{ "name": "gpu", "resources": [{ "name": GPU, "nominalQuota": nominal }] }] }]);
        let mut own = spec.clone();
        own["resourceGroups"] = quota(8);
        let mut others = spec.clone();
        others["resourceGroups"] = quota(20);
        let queue =
            |name: &str, spec: Value| json!({ "metadata": { "name": name, "uid": name }, "spec": spec });
        let local = json!({ "metadata": { "name": "l", "namespace": "n" }, "spec": { "clusterQueue": "q" } });
        let mut all = vec![
            (FLAVORS, json!({ "metadata": { "name": "gpu" } })),
            (LOCAL_QUEUES, local),
            (CLUSTER_QUEUES, queue("q", own)),
            (CLUSTER_QUEUES, queue("owner", others)),
        ];
        all.extend(workloads.iter().map(|one| (WORKLOADS, one.clone())));
        World::holding(all)
    }

    fn waits(name: &str, priority: i64, gpus: i64) -> Value {
        let container = json!({ "resources": { "requests": { GPU: gpus.to_string() } } });
        let set =
            json!({ "name": "main", "count": 1, "template": { "spec": { "containers": [container] } } });
        json!({
            "metadata": { "name": name, "namespace": "n", "uid": name },
            "spec": { "queueName": "l", "priority": priority, "podSets": [set] },
        })
    }

    fn runs(name: &str, priority: i64, gpus: i64) -> Value {
        let mut workload = waits(name, priority, gpus);
        let given = json!({ "name": "main", "count": 1, "flavors": { GPU: "gpu" }, "resourceUsage": { GPU: gpus.to_string() } });
        workload["status"] = json!({
            "admission": { "clusterQueue": "q", "podSetAssignments": [given] },
            "conditions": [{ "type": "QuotaReserved", "status": "True" }],
        });
        workload
    }

    /// It was preempted within its queue for `preemptor`.
    fn leaves(mut workload: Value, preemptor: &str) -> Value {
        let message = format!("makes room for a workload (UID: {preemptor})");
        for kind in ["Preempted", "Evicted"] {
            let condition = json!({ "type": kind, "status": "True", "message": message });
            workload["status"]["conditions"].as_array_mut().unwrap().push(condition);
        }
        workload
    }

    #[test]
    fn who_was_promised_more_than_its_queues_own_lets_others_reclaim_from_the_queue() {
        let asked = ResourceList::from([(GPU.into(), 2)]);
        let spec = json!({ "cohortName": "flat" });
        for (wanted, leaves_for, could) in [
            (25, Some("urgent"), true), // 3 that stay and 25 are more than 8.
            (25, None, false),          // Nobody leaves, and there is no room.
            (25, Some("another"), false),
            (5, Some("urgent"), false), // With those 5 gone it borrows nothing.
        ] {
            let small = runs("small", 0, 5);
            let small = leaves_for.map_or(small.clone(), |preemptor| leaves(small, preemptor));
            let workloads = [runs("stays", 100, 3), small, waits("urgent", 1000, wanted)];
            let world = world(&spec, &workloads);
            assert_eq!(somebody_could_borrow(&world, "q", &asked), could, "{wanted} {leaves_for:?}");
        }
    }

    /// Of the two victims that its decision had it wrote one.
    #[test]
    fn who_is_killed_between_two_victims_is_not_judged() {
        for (killed, is_fine) in [("admission-controller/0.1", true), ("admission-controller/1.1", false)] {
            let workloads = |first: Value| [first, runs("second", 0, 4), waits("urgent", 100, 8)];
            let before = world(&json!({}), &workloads(runs("first", 0, 4)));
            let mut after = world(&json!({}), &workloads(leaves(runs("first", 0, 4), "urgent")));
            after.now = 100_000;
            let batch = Batch {
                at: 90_000,
                by: "admission-controller/0.1".to_owned(),
                beneficiary: "urgent".to_owned(),
                victims: [("n".to_owned(), "first".to_owned())].into(),
            };
            let mut preemptions =
                Preemptions { open: vec![batch], seen: [(90_000, before)].into(), ..Preemptions::default() };
            preemptions.killed(killed);
            assert_eq!(preemptions.judge(&after, 100_000).is_ok(), is_fine, "{killed}");
        }
    }

    #[test]
    fn what_a_queue_borrowed_is_known_long_after_its_victims_left() {
        let spec = json!({ "cohortName": "flat" });
        for (used, is_fine) in [(10, true), (8, false)] {
            let mut world = world(&spec, &[runs("victim", 0, used)]);
            let one = Reclaimed {
                at: 40_000,
                victim: ("n".to_owned(), "victim".to_owned()),
                queue: "q".to_owned(),
                asked: ResourceList::from([(GPU.into(), 2)]),
            };
            let mut preemptions = Preemptions { reclaimed: vec![one], ..Preemptions::default() };
            let mut goes_on = |at: i64, before: Value, after: Value| {
                let write = Write::by_a_replica(at, WORKLOADS, Some(before), after);
                let write = Write { writer: "user".into(), verb: Verb::Update, ..write };
                world.apply(&write);
                preemptions.observe(&world, &write)
            };
            let (held, free) = (runs("victim", 0, used), waits("victim", 0, used));
            let mut seen = vec![goes_on(40_000, held, free.clone())];
            seen.extend([46_000, 100_000].map(|at| goes_on(at, free.clone(), free.clone())));
            seen.push(preemptions.judge(&world, 100_000));
            assert_eq!(seen.iter().all(Result::is_ok), is_fine, "{seen:?}");
        }
    }

    #[test]
    fn who_may_have_been_given_room_unseen_took_it_all_the_same() {
        let batch = Batch {
            at: 0,
            by: "admission-controller/0.1".to_owned(),
            beneficiary: "urgent".to_owned(),
            victims: [("n".to_owned(), "small".to_owned())].into(),
        };
        let spec = json!({ "preemption": { "withinClusterQueue": "LowerPriority" } });
        // 5 are free, so that the 3 of `small` are needed for the 4 of `urgent` only if somebody took 2 to 4 of the 5 before it.
        for (unseen, verdict) in [
            (Some(4), Verdict::Minimal),
            (Some(2), Verdict::Minimal),
            (Some(1), Verdict::Wrong),
            (Some(6), Verdict::Wrong), // It had no room.
            (None, Verdict::Wrong),
        ] {
            let mut workloads = vec![runs("small", 0, 3), waits("urgent", 100, 4)];
            workloads.extend(unseen.map(|gpus| waits("unseen", 0, gpus)));
            let world = world(&spec, &workloads);
            assert_eq!(batch.verdict(&world, &world), verdict, "{unseen:?}");
        }
        // What runs beside it has ended since, and may have been to leave as well.
        let seen = world(&spec, &[runs("small", 0, 3), runs("ends", 0, 3), waits("urgent", 100, 8)]);
        let now = world(&spec, &[runs("small", 0, 3), waits("urgent", 100, 8)]);
        assert_eq!(batch.verdict(&seen, &seen), Verdict::Wrong);
        assert_eq!(batch.verdict(&seen, &now), Verdict::Unknown);
    }
}
