//! How a gang's plan is carried out, as a state machine. Pure.
//!
//! ```text
//! Creating --all objects are durable--> Binding --every member is settled--> Reporting --written--> Closed
//! ```
//!
//! Kubernetes has no bind of many pods. So the plan is made durable first, and whoever leads next finds it and goes on
//! from what the pods show: [`Protocol::recover`]. A member is settled when it is bound (by whomever, wherever) or gone.
//! The outcome is `Bound` when the gang then has its minimum, `Undone` when nobody of it runs, and until one of the two is
//! true the plan stays open.

use std::collections::{BTreeMap, BTreeSet};

use crds::api::trireme::v1alpha1::GangPhase;
use placement_engine::PodUid;

/// Where a plan stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stage {
    /// These objects of the plan (by position) are not durable yet. Nothing is bound before they are.
    Creating(BTreeSet<usize>),
    /// Members are being bound.
    Binding,
    /// The outcome is being written to these objects.
    Reporting(GangPhase, BTreeSet<usize>),
    /// Nothing is left to do.
    Closed,
}

/// Where a member stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Member {
    /// Not sent, or refused: the engine finds it another place.
    Waiting,
    /// The bind is on its way.
    Sent,
    /// It has a node.
    Bound,
    /// It is gone, or ended without having had a node.
    Left,
}

/// How the whole gang stands, by the engine's count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// At least its minimum.
    Whole,
    /// Some run, but fewer.
    Below,
    /// Nobody runs, and too few have run.
    Empty,
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Happened {
    /// This object of the plan is durable.
    Created(usize),
    /// The plan cannot be made durable: nothing of it may be bound.
    NotCreated,
    /// Too little of the plan is possible by now: if nothing of it was bound, nothing is to be.
    Abandoned,
    /// A member has a node.
    Bound(PodUid),
    /// The server refused a member's bind, or it was not sent.
    Refused(PodUid),
    /// A member is gone.
    Left(PodUid),
    /// The outcome stands in this object, or the object is gone.
    Reported(usize),
    /// The gang's standing may have changed.
    Looked,
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Create this object of the plan.
    Create(usize),
    /// Bind this member to its planned node.
    Bind(PodUid),
    /// Give this member's place back: its bind will not be sent.
    Drop(PodUid),
    /// Write the outcome to this object.
    Report(usize, GangPhase),
}

/// One plan being carried out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Protocol {
    stage: Stage,
    objects: usize,
    members: BTreeMap<PodUid, Member>,
}

impl Protocol {
    /// A fresh plan of these members, written to so many objects.
    pub fn begin(members: impl IntoIterator<Item = PodUid>, objects: usize) -> (Self, Vec<Step>) {
        let protocol = Self {
            stage: Stage::Creating((0..objects).collect()),
            objects,
            members: members.into_iter().map(|uid| (uid, Member::Waiting)).collect(),
        };
        (protocol, (0..objects).map(Step::Create).collect())
    }

    /// A plan that was found durable and without an outcome. `members`: what the pods show; a member that is
    /// [`Member::Waiting`] and for which `placed` holds is bound as planned, the others are the engine's to place.
    pub fn recover(
        members: BTreeMap<PodUid, Member>,
        objects: usize,
        placed: impl Fn(&PodUid) -> bool,
    ) -> (Self, Vec<Step>) {
        let mut protocol = Self { stage: Stage::Binding, objects, members };
        let steps = protocol.send(placed);
        (protocol, steps)
    }

    /// Where the plan stands.
    pub fn stage(&self) -> &Stage {
        &self.stage
    }

    /// Where the members stand.
    pub fn members(&self) -> &BTreeMap<PodUid, Member> {
        &self.members
    }

    /// Takes in what happened.
    pub fn on(&mut self, happened: Happened, standing: Standing) -> Vec<Step> {
        match happened {
            Happened::Created(object) => {
                if let Stage::Creating(left) = &mut self.stage {
                    left.remove(&object);
                    if left.is_empty() {
                        self.stage = Stage::Binding;
                        return self.send(|_| true);
                    }
                }
            }
            Happened::NotCreated => return self.give_up(),
            Happened::Abandoned => return self.abandon(),
            Happened::Bound(uid) => self.set(&uid, Member::Bound),
            Happened::Refused(uid) => {
                if self.members.get(&uid) == Some(&Member::Sent) {
                    self.set(&uid, Member::Waiting);
                }
            }
            Happened::Left(uid) => self.set(&uid, Member::Left),
            Happened::Reported(object) => {
                if let Stage::Reporting(_, left) = &mut self.stage {
                    left.remove(&object);
                    if left.is_empty() {
                        self.stage = Stage::Closed;
                    }
                }
            }
            Happened::Looked => {}
        }
        self.conclude(standing)
    }

    fn set(&mut self, uid: &PodUid, member: Member) {
        if let Some(known) = self.members.get_mut(uid) {
            *known = member;
        }
    }

    fn send(&mut self, placed: impl Fn(&PodUid) -> bool) -> Vec<Step> {
        let waiting =
            self.members.iter_mut().filter(|(uid, state)| **state == Member::Waiting && placed(uid));
        waiting
            .map(|(uid, state)| {
                *state = Member::Sent;
                Step::Bind(uid.clone())
            })
            .collect()
    }

    fn give_up(&mut self) -> Vec<Step> {
        if !matches!(self.stage, Stage::Creating(_)) {
            return Vec::new();
        }
        self.stage = Stage::Closed;
        let waiting = self.members.iter().filter(|(_, state)| **state == Member::Waiting);
        waiting.map(|(uid, _)| Step::Drop(uid.clone())).collect()
    }

    fn abandon(&mut self) -> Vec<Step> {
        let begun = self.members.values().any(|state| matches!(state, Member::Sent | Member::Bound));
        if begun || !matches!(self.stage, Stage::Creating(_) | Stage::Binding) {
            return Vec::new();
        }
        self.stage = Stage::Reporting(GangPhase::Undone, (0..self.objects).collect());
        let waiting = self.members.iter().filter(|(_, state)| **state == Member::Waiting);
        let dropped = waiting.map(|(uid, _)| Step::Drop(uid.clone()));
        dropped.chain((0..self.objects).map(|object| Step::Report(object, GangPhase::Undone))).collect()
    }

    /// Whether this object is the last one that is not durable yet.
    pub fn completed_by(&self, object: usize) -> bool {
        matches!(&self.stage, Stage::Creating(left) if left.iter().eq([&object]))
    }

    /// The outcome, once every member is settled.
    fn conclude(&mut self, standing: Standing) -> Vec<Step> {
        let settled = self.members.values().all(|state| matches!(state, Member::Bound | Member::Left));
        let phase = match standing {
            _ if self.stage != Stage::Binding || !settled => return Vec::new(),
            Standing::Whole => GangPhase::Bound,
            Standing::Empty => GangPhase::Undone,
            Standing::Below => return Vec::new(),
        };
        self.stage = Stage::Reporting(phase, (0..self.objects).collect());
        (0..self.objects).map(|object| Step::Report(object, phase)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The part of the server that the protocol writes to.
    #[derive(Clone, Default)]
    struct Server {
        objects: BTreeSet<usize>,
        bound: BTreeSet<PodUid>,
        outcome: BTreeMap<usize, GangPhase>,
        writes: usize,
    }

    impl Server {
        fn apply(&mut self, step: &Step, objects: usize) -> Happened {
            self.writes += 1;
            match step {
                Step::Create(object) => {
                    self.objects.insert(*object);
                    Happened::Created(*object)
                }
                Step::Bind(uid) => {
                    assert_eq!(self.objects.len(), objects, "bound before the plan is durable");
                    assert!(self.bound.insert(uid.clone()), "bound twice");
                    Happened::Bound(uid.clone())
                }
                Step::Report(object, phase) => {
                    self.outcome.insert(*object, *phase);
                    Happened::Reported(*object)
                }
                Step::Drop(_) => unreachable!("nothing is refused here"),
            }
        }

        fn standing(&self, members: usize) -> Standing {
            match self.bound.len() {
                0 => Standing::Empty,
                count if count == members => Standing::Whole,
                _ => Standing::Below,
            }
        }
    }

    fn uids(count: usize) -> Vec<PodUid> {
        (0..count).map(|index| PodUid::new(format!("pod-{index}"))).collect()
    }

    /// Carries out steps in the order that `picks` says, until nothing is left or so many writes were made.
    fn run(
        protocol: &mut Protocol,
        mut steps: Vec<Step>,
        server: &mut Server,
        (members, objects): (usize, usize),
        picks: &[usize],
        crash_at: usize,
    ) {
        let mut picks = picks.iter().cycle();
        while !steps.is_empty() && server.writes < crash_at {
            let step = steps.remove(picks.next().copied().unwrap_or(0) % steps.len());
            let happened = server.apply(&step, objects);
            let standing = server.standing(members);
            steps.extend(protocol.on(happened, standing));
        }
    }

    proptest! {
        /// Whatever prefix of the writes was made, in whatever order: what a successor finds it brings to an end, either
        /// everything bound and said so, or (no complete plan was durable) nothing.
        #[test]
        fn every_crash_is_recovered_from(
            members in 1..6usize,
            objects in 1..4usize,
            crash_at in 0..12usize,
            picks in prop::collection::vec(0..100usize, 1..20),
        ) {
            let mut server = Server::default();
            let (mut protocol, steps) = Protocol::begin(uids(members), objects);
            run(&mut protocol, steps, &mut server, (members, objects), &picks, crash_at);
            if server.objects.len() == objects {
                let seen = uids(members).into_iter().map(|uid| {
                    let state = if server.bound.contains(&uid) { Member::Bound } else { Member::Waiting };
                    (uid, state)
                });
                let (mut successor, mut steps) = Protocol::recover(seen.collect(), objects, |_| true);
                let standing = server.standing(members);
                steps.extend(successor.on(Happened::Looked, standing));
                run(&mut successor, steps, &mut server, (members, objects), &picks, usize::MAX);
                prop_assert_eq!(server.bound.len(), members);
                prop_assert_eq!(successor.stage(), &Stage::Closed);
                prop_assert!(server.outcome.values().all(|phase| *phase == GangPhase::Bound));
            } else {
                prop_assert!(server.bound.is_empty());
            }
        }
    }

    #[test]
    fn n_members_take_n_plus_two_writes() {
        let mut server = Server::default();
        let (mut protocol, steps) = Protocol::begin(uids(4), 1);
        run(&mut protocol, steps, &mut server, (4, 1), &[0], usize::MAX);
        assert_eq!(server.writes, 6);
        assert_eq!(protocol.stage(), &Stage::Closed);
    }

    #[test]
    fn a_plan_that_is_not_durable_gives_its_places_back() {
        let (mut protocol, _) = Protocol::begin(uids(2), 2);
        assert_eq!(protocol.on(Happened::Created(0), Standing::Empty), []);
        let dropped = protocol.on(Happened::NotCreated, Standing::Empty);
        assert_eq!(dropped, uids(2).into_iter().map(Step::Drop).collect::<Vec<_>>());
        assert_eq!(protocol.stage(), &Stage::Closed);
    }

    #[test]
    fn a_plan_that_became_impossible_is_undone_unless_it_was_begun() {
        let (mut protocol, _) = Protocol::begin(uids(2), 1);
        assert!(protocol.completed_by(0));
        let [first, second] = <[PodUid; 2]>::try_from(uids(2)).unwrap();
        assert_eq!(protocol.on(Happened::Left(first.clone()), Standing::Empty), []);
        let steps = protocol.on(Happened::Abandoned, Standing::Empty);
        assert_eq!(steps, [Step::Drop(second), Step::Report(0, GangPhase::Undone)]);

        let (mut protocol, _) = Protocol::begin(uids(2), 1);
        protocol.on(Happened::Created(0), Standing::Empty);
        assert_eq!(protocol.on(Happened::Abandoned, Standing::Empty), [], "binds are on their way");
    }

    #[test]
    fn the_outcome_waits_for_a_refused_member_and_for_the_minimum() {
        let [first, second] = <[PodUid; 2]>::try_from(uids(2)).unwrap();
        let (mut protocol, _) = Protocol::begin([first.clone(), second.clone()], 1);
        assert_eq!(protocol.on(Happened::Created(0), Standing::Empty).len(), 2);
        assert_eq!(protocol.on(Happened::Bound(first.clone()), Standing::Below), []);
        assert_eq!(protocol.on(Happened::Refused(second.clone()), Standing::Below), []);
        assert_eq!(protocol.on(Happened::Left(second), Standing::Below), [], "below its minimum");
        assert_eq!(protocol.on(Happened::Left(first), Standing::Empty), [Step::Report(0, GangPhase::Undone)]);
    }
}
