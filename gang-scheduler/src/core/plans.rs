//! The plans of gangs: making them durable, carrying them out, finding those of a predecessor, clearing them away.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crds::api::trireme::v1alpha1::{
    GangChunk, GangMember, GangPhase, GangPlacement, GangPlacementSpec, GangReference,
};
use crds::names::trireme;
use crds::view;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use placement_engine::{DeviceChoice, Event, GangId, Placement, Plan, PodPhase, PodUid};
use serde_json::{Value, json};

use super::{Answer, Core, Outcome, Write};
use crate::grouping::{GangOwner, Key};
use crate::protocol::{Happened, Member, Protocol, Stage, Standing, Step};

/// So many members go into one object: the bound of the type, which keeps it below etcd's request size.
const CHUNK: usize = 2_000;

/// The plans.
#[derive(Default)]
pub(super) struct Plans {
    /// Those being carried out, by namespace and name of the first object.
    open: BTreeMap<Key, Open>,
    of_pod: BTreeMap<PodUid, BTreeSet<Key>>,
    /// The objects as seen, by uid.
    seen: BTreeMap<String, Seen>,
    /// Objects whose members may all be gone.
    maybe_stale: BTreeSet<String>,
    stale_of_pod: BTreeMap<PodUid, BTreeSet<String>>,
}

struct Open {
    gang: GangId,
    protocol: Protocol,
    /// Name and, once known, uid of each object.
    objects: Vec<(Key, Option<String>)>,
    bodies: Vec<GangPlacement>,
}

/// An object as seen.
#[derive(Clone)]
struct Seen {
    key: Key,
    finished: bool,
    members: Vec<(PodUid, Arc<str>, DeviceChoice)>,
    chunk: Option<GangChunk>,
    deleting: bool,
}

impl Plans {
    /// Takes in an object; gives the open plans, and the position in each, that it belongs to.
    pub(super) fn seen(&mut self, placement: &view::GangPlacement) -> Vec<(Key, usize)> {
        let meta = &placement.metadata;
        let uid = meta.uid.clone().unwrap_or_default();
        let spec = &placement.spec;
        let members = spec.members.iter().filter_map(|member| {
            let node = spec.nodes.get(usize::try_from(member.node).ok()?)?;
            Some((PodUid::new(member.uid.as_str()), Arc::from(node.as_str()), choice(member)))
        });
        let seen = Seen {
            key: (
                meta.namespace.as_deref().unwrap_or_default().into(),
                meta.name.as_deref().unwrap_or_default().into(),
            ),
            finished: matches!(placement.status.phase, Some(GangPhase::Bound | GangPhase::Undone)),
            members: members.collect(),
            chunk: spec.chunk,
            deleting: meta.deletion_timestamp.is_some(),
        };
        for (pod, ..) in &seen.members {
            self.stale_of_pod.entry(pod.clone()).or_default().insert(uid.clone());
        }
        let mut parts = Vec::new();
        for (plan, open) in &mut self.open {
            for (index, (key, known)) in open.objects.iter_mut().enumerate() {
                if *key == seen.key {
                    *known = Some(uid.clone());
                    parts.push((plan.clone(), index));
                }
            }
        }
        self.maybe_stale.insert(uid.clone());
        self.seen.insert(uid, seen);
        parts
    }

    /// How the deletion of an object ended.
    pub(super) fn deleted(&mut self, uid: &str, outcome: &Outcome) {
        match outcome {
            Outcome::Answered(_) | Outcome::Gone => self.unseen(uid),
            Outcome::Refused(_) => {}
            Outcome::Conflict | Outcome::Unknown | Outcome::NotSent => {
                self.maybe_stale.insert(uid.to_owned());
            }
        }
    }

    pub(super) fn unseen(&mut self, uid: &str) {
        let Some(seen) = self.seen.remove(uid) else { return };
        for (pod, ..) in &seen.members {
            if let Some(uids) = self.stale_of_pod.get_mut(pod) {
                uids.remove(uid);
                if uids.is_empty() {
                    self.stale_of_pod.remove(pod);
                }
            }
        }
        self.maybe_stale.remove(uid);
    }

    pub(super) fn pod_gone(&mut self, pod: &PodUid) {
        self.maybe_stale.extend(self.stale_of_pod.get(pod).into_iter().flatten().cloned());
    }

    pub(super) fn stand_down(&mut self) {
        self.open.clear();
        self.of_pod.clear();
        self.maybe_stale = self.seen.keys().cloned().collect();
    }

    pub(super) fn state(&self) -> Value {
        let open = self.open.iter().map(|(key, open)| {
            (
                format!("{}/{}", key.0, key.1),
                json!({ "gang": open.gang.as_str(), "stage": format!("{:?}", open.protocol.stage()) }),
            )
        });
        Value::Object(open.collect())
    }

    fn insert(&mut self, key: Key, open: Open) {
        for pod in open.protocol.members().keys() {
            self.of_pod.entry(pod.clone()).or_default().insert(key.clone());
        }
        self.open.insert(key, open);
    }

    fn remove(&mut self, key: &Key) {
        let Some(open) = self.open.remove(key) else { return };
        for pod in open.protocol.members().keys() {
            if let Some(keys) = self.of_pod.get_mut(pod) {
                keys.remove(key);
                if keys.is_empty() {
                    self.of_pod.remove(pod);
                }
            }
        }
        self.maybe_stale.extend(open.objects.into_iter().filter_map(|(_, uid)| uid));
    }
}

impl Core {
    /// Makes a plan durable; its binds follow.
    pub(super) fn begin_plan(&mut self, plan: Plan) {
        let Some(owner) = self.index.owner(&plan.gang).cloned() else {
            // Gangs of two or more are made by an object; without it nothing says that they belong together.
            for member in &plan.members {
                self.bindings.remove(&member.pod);
                self.engine.apply(0, Event::PlacementDropped(member.pod.clone()));
            }
            return;
        };
        let bodies = bodies(&plan, &owner);
        let objects: Vec<(Key, Option<String>)> = bodies
            .iter()
            .map(|body| {
                let name = body.metadata.name.as_deref().unwrap_or_default().into();
                ((owner.key.0.clone(), name), None)
            })
            .collect();
        let Some((key, _)) = objects.first().cloned() else { return };
        let (protocol, steps) =
            Protocol::begin(plan.members.iter().map(|member| member.pod.clone()), bodies.len());
        self.tally.plans += 1;
        self.plans.insert(key.clone(), Open { gang: plan.gang, protocol, objects, bodies });
        self.take_steps(&key, steps);
    }

    /// Finds what a predecessor (or this process, in an earlier term) left unfinished, and takes over its places.
    pub(super) fn adopt_plans(&mut self, now: i64) {
        let mut groups: BTreeMap<Key, Vec<(String, Seen)>> = BTreeMap::new();
        for (uid, seen) in self.plans.seen.iter().filter(|(_, seen)| !seen.finished && !seen.deleting) {
            groups.entry(base_of(seen)).or_default().push((uid.clone(), seen.clone()));
        }
        for (key, mut objects) in groups {
            objects.sort_by_key(|(_, seen)| seen.chunk.map_or(0, |chunk| chunk.index));
            let expected =
                objects[0].1.chunk.map_or(1, |chunk| usize::try_from(chunk.count).unwrap_or(usize::MAX));
            if objects.len() < expected {
                // Not all of it became durable, so nothing of it was bound: as if it had never been.
                for (uid, seen) in objects {
                    self.outbox.push(Write::DeletePlan { key: seen.key, uid });
                }
                continue;
            }
            self.adopt(now, key, &objects);
        }
    }

    fn adopt(&mut self, now: i64, key: Key, objects: &[(String, Seen)]) {
        let members = || objects.iter().flat_map(|(_, seen)| &seen.members);
        let gang = members().find_map(|(pod, ..)| self.index.gang_of(pod)).cloned();
        let Some(gang) = gang else {
            // No member is left.
            self.plans.maybe_stale.extend(objects.iter().map(|(uid, _)| uid.clone()));
            return;
        };
        self.engine.apply(now, Event::PlanFound(members().cloned().collect()));
        let mut states = BTreeMap::new();
        for (pod, ..) in members() {
            let state = match self.engine.pod(pod) {
                Some(info) if info.node.is_some() => Member::Bound,
                Some(info) if info.phase == PodPhase::Active && !info.deleting => Member::Waiting,
                _ => Member::Left,
            };
            states.insert(pod.clone(), state);
            if let (Some((node, devices)), Some(info)) = (self.engine.assumed(pod), self.engine.pod(pod)) {
                let binding = super::Binding {
                    key: (info.namespace.clone(), info.name.clone()),
                    node: node.clone(),
                    devices: devices.clone(),
                    conflicts: 0,
                };
                self.bindings.insert(pod.clone(), binding);
            }
        }
        let pods: Vec<PodUid> = states.keys().cloned().collect();
        let possible = self.is_possible(&gang, &pods) || states.values().any(|state| *state == Member::Bound);
        let placed = |pod: &PodUid| possible && self.engine.assumed(pod).is_some();
        let (mut protocol, mut steps) = Protocol::recover(states, objects.len(), placed);
        if !possible {
            steps = protocol.on(Happened::Abandoned, Standing::Empty);
        }
        let objects = objects.iter().map(|(uid, seen)| (seen.key.clone(), Some(uid.clone()))).collect();
        self.plans.insert(key.clone(), Open { gang, protocol, objects, bodies: Vec::new() });
        self.take_steps(&key, steps);
    }

    /// Tells the plans of a pod what happened to it.
    pub(super) fn on_member(&mut self, pod: &PodUid, happened: Happened) {
        for key in self.plans.of_pod.get(pod).cloned().unwrap_or_default() {
            self.on_plan(&key, happened.clone());
        }
    }

    /// Lets every open plan look at its gang, and clears away the plans of gangs that are gone.
    pub(super) fn look_at_plans(&mut self) {
        let keys: Vec<Key> = self.plans.open.keys().cloned().collect();
        for key in keys {
            for pod in self.done_for(&key) {
                self.on_plan(&key, Happened::Left(pod));
            }
            self.on_plan(&key, Happened::Looked);
        }
        for uid in std::mem::take(&mut self.plans.maybe_stale) {
            let Some(seen) = self.plans.seen.get(&uid) else { continue };
            let used =
                self.plans.open.values().any(|open| open.objects.iter().any(|(key, _)| *key == seen.key));
            let alive = seen.members.iter().any(|(pod, ..)| self.index.pod(pod).is_some());
            if !used && !alive && !seen.deleting {
                self.outbox.push(Write::DeletePlan { key: seen.key.clone(), uid });
            }
        }
    }

    /// Members that will never be bound, since their Workload has finished without them.
    fn done_for(&self, key: &Key) -> Vec<PodUid> {
        let members = self.plans.open.get(key).into_iter().flat_map(|open| open.protocol.members());
        let waiting = members.filter(|(_, state)| **state == Member::Waiting).map(|(pod, _)| pod);
        waiting.filter(|pod| self.index.is_done_for(pod)).cloned().collect()
    }

    pub(super) fn on_plan(&mut self, key: &Key, mut happened: Happened) {
        let Some(open) = self.plans.open.get(key) else { return };
        // A PodGroup that was deleted meanwhile takes its gang with it, not its pods.
        let gang = open.protocol.members().keys().find_map(|pod| self.index.gang_of(pod));
        let standing = self.standing(gang.unwrap_or(&open.gang), open.protocol.members().keys());
        if let Happened::Created(object) = happened
            && open.protocol.completed_by(object)
        {
            let (gang, members) =
                (open.gang.clone(), open.protocol.members().keys().cloned().collect::<Vec<_>>());
            if !self.is_possible(&gang, &members) {
                happened = Happened::Abandoned;
            }
        }
        let Some(open) = self.plans.open.get_mut(key) else { return };
        let steps = open.protocol.on(happened, standing);
        let closed = *open.protocol.stage() == Stage::Closed;
        self.take_steps(key, steps);
        if closed {
            self.plans.remove(key);
        }
    }

    /// Whether the gang has its minimum if every member of the plan is bound that still can be.
    fn is_possible(&mut self, gang: &GangId, members: &[PodUid]) -> bool {
        let Some(report) = self.engine.report(gang) else { return false };
        let assumed = |uid: &&PodUid| self.engine.assumed(uid).is_some();
        let assumed: Vec<PodUid> = members.iter().filter(assumed).cloned().collect();
        let lost = assumed.into_iter().filter(|uid| !self.engine.still_suits(uid)).count();
        let done = report.succeeded.saturating_add(report.failed);
        let reached = report.bound.saturating_add(report.assumed).saturating_add(done);
        reached.saturating_sub(to_u32(lost)) >= report.min_member.max(1)
    }

    /// How a gang stands. Of one whose job has finished, those who ran were enough; one of which nobody runs and too few
    /// have run will not be whole by this plan.
    fn standing<'a>(&self, gang: &GangId, mut planned: impl Iterator<Item = &'a PodUid>) -> Standing {
        let Some(report) = self.engine.report(gang) else { return Standing::Empty };
        let reached = report.bound.saturating_add(report.succeeded).saturating_add(report.failed);
        let is_enough = reached >= report.min_member || planned.any(|pod| self.index.is_done_for(pod));
        if reached > 0 && is_enough {
            Standing::Whole
        } else if report.bound > 0 {
            Standing::Below
        } else {
            Standing::Empty
        }
    }

    fn take_steps(&mut self, key: &Key, steps: Vec<Step>) {
        for step in steps {
            let Some(open) = self.plans.open.get(key) else { return };
            match step {
                Step::Create(index) => {
                    if let Some(body) = open.bodies.get(index) {
                        let object = Box::new(body.clone());
                        self.outbox.push(Write::CreatePlan { plan: key.clone(), index, object });
                    }
                }
                Step::Bind(pod) => self.bind(&pod),
                Step::Drop(pod) => {
                    self.bindings.remove(&pod);
                    self.engine.apply(0, Event::PlacementDropped(pod));
                }
                Step::Report(index, phase) => {
                    // Without its uid the object has not been seen; the next look reports again.
                    if let Some((object, Some(uid))) = open.objects.get(index).cloned() {
                        self.outbox.push(Write::ReportPlan {
                            plan: key.clone(),
                            index,
                            object: (object, uid),
                            phase,
                        });
                    }
                }
            }
        }
    }

    pub(super) fn plan_created(
        &mut self,
        now: i64,
        plan: &Key,
        index: usize,
        object: GangPlacement,
        outcome: Outcome,
    ) {
        match outcome {
            Outcome::Answered(Answer::Done { uid, .. }) => {
                self.plans.seen(&view::GangPlacement::created(object, uid));
                self.on_plan(plan, Happened::Created(index));
            }
            Outcome::Answered(_) => {}
            // A name holds a digest of the plan, so whoever took it wrote the very same plan: this process, when the
            // answer to an earlier attempt was lost.
            Outcome::Conflict => {
                self.outbox.push(Write::ReadPlan { plan: plan.clone(), index, object: Box::new(object) });
            }
            Outcome::Unknown => {
                self.outbox.push(Write::CreatePlan { plan: plan.clone(), index, object: Box::new(object) });
            }
            Outcome::Gone | Outcome::Refused(_) | Outcome::NotSent => {
                let problem: Arc<str> = match outcome {
                    Outcome::Refused(message) => message.into(),
                    Outcome::Gone => "the namespace is gone, or the kind is not served".into(),
                    _ => "it was not sent".into(),
                };
                tracing::warn!(plan = %plan.1, %problem, "a plan was not written; its gang is not bound");
                // The pause keeps this from becoming a loop.
                if let Some(gang) = self.plans.open.get(plan).map(|open| open.gang.clone()) {
                    self.engine.apply(now, Event::PlanRefused { gang, problem });
                }
                self.on_plan(plan, Happened::NotCreated);
            }
        }
    }

    /// What a plan's object looks like whose name was taken.
    pub(super) fn plan_read(
        &mut self,
        now: i64,
        plan: &Key,
        index: usize,
        object: Box<GangPlacement>,
        outcome: Outcome,
    ) {
        match outcome {
            Outcome::Answered(Answer::Plan(found)) => self.placement_applied(&found),
            Outcome::Answered(_) | Outcome::Gone => {
                self.outbox.push(Write::CreatePlan { plan: plan.clone(), index, object });
            }
            Outcome::Refused(_) => self.plan_created(now, plan, index, *object, outcome),
            _ => self.outbox.push(Write::ReadPlan { plan: plan.clone(), index, object }),
        }
    }

    pub(super) fn plan_reported(
        &mut self,
        plan: &Key,
        index: usize,
        object: (Key, String),
        phase: GangPhase,
        outcome: &Outcome,
    ) {
        match outcome {
            Outcome::Unknown | Outcome::Conflict => {
                self.outbox.push(Write::ReportPlan { plan: plan.clone(), index, object, phase });
            }
            _ => self.on_plan(plan, Happened::Reported(index)),
        }
    }
}

/// The first object's key of the plan an object is a chunk of.
fn base_of(seen: &Seen) -> Key {
    match seen.chunk {
        None => seen.key.clone(),
        Some(_) => {
            let base = seen.key.1.rsplit_once('-').map_or(seen.key.1.as_ref(), |(base, _)| base);
            (seen.key.0.clone(), format!("{base}-0").into())
        }
    }
}

fn choice(member: &view::PlacedMember) -> DeviceChoice {
    let by_resource = |list: &BTreeMap<String, Vec<u32>>| {
        list.iter().map(|(name, indices)| (name.as_str().into(), indices.clone())).collect()
    };
    member.devices.iter().map(|(container, list)| (container.clone(), by_resource(list))).collect()
}

/// The objects that make a plan durable.
fn bodies(plan: &Plan, owner: &GangOwner) -> Vec<GangPlacement> {
    let chunks: Vec<&[Placement]> = plan.members.chunks(CHUNK).collect();
    let count = chunks.len();
    let name = plan_name(plan, owner);
    let body = |(index, members): (usize, &&[Placement])| {
        let chunk = (count > 1).then(|| GangChunk { index: to_u32(index), count: to_u32(count) });
        let mut nodes: Vec<String> = members.iter().map(|member| member.node.to_string()).collect();
        nodes.sort();
        nodes.dedup();
        let members = members.iter().map(|member| GangMember {
            name: member.name.to_string(),
            uid: member.pod.to_string(),
            node: to_u32(nodes.binary_search(&member.node.to_string()).unwrap_or_default()),
            devices: member
                .devices
                .iter()
                .map(|(container, list)| {
                    let list = list.iter().map(|(name, indices)| (name.to_string(), indices.clone()));
                    (container.clone(), list.collect())
                })
                .collect(),
        });
        GangPlacement {
            metadata: ObjectMeta {
                name: Some(if count > 1 { format!("{name}-{index}") } else { name.clone() }),
                namespace: Some(owner.key.0.to_string()),
                labels: Some([(trireme::GANG_UID.to_owned(), owner.uid.clone())].into()),
                owner_references: Some(owners(plan, owner)),
                ..ObjectMeta::default()
            },
            spec: GangPlacementSpec {
                gang: GangReference {
                    group: owner.group.clone(),
                    kind: owner.kind.clone(),
                    name: owner.key.1.to_string(),
                    uid: owner.uid.clone(),
                },
                min_member: i32::try_from(plan.min_member).unwrap_or(i32::MAX),
                members: members.collect(),
                nodes,
                chunk,
            },
            ..GangPlacement::default()
        }
    };
    chunks.iter().enumerate().map(body).collect()
}

/// The gang, and one of its pods: a watch may lag, and of a gang that was just made anew the old one is known still. The plan
/// must not go with that before it is carried out.
fn owners(plan: &Plan, owner: &GangOwner) -> Vec<OwnerReference> {
    let gang = OwnerReference {
        api_version: format!("{}/{}", owner.group, owner.version),
        kind: owner.kind.clone(),
        name: owner.key.1.to_string(),
        uid: owner.uid.clone(),
        ..OwnerReference::default()
    };
    let pod = plan.members.first().filter(|member| *member.pod.to_string() != owner.uid).map(|member| {
        OwnerReference {
            api_version: "v1".to_owned(),
            kind: "Pod".to_owned(),
            name: member.name.to_string(),
            uid: member.pod.to_string(),
            ..OwnerReference::default()
        }
    });
    [gang].into_iter().chain(pod).collect()
}

/// The owner's name and a digest of who goes where: the same plan has the same name, another one another.
fn plan_name(plan: &Plan, owner: &GangOwner) -> String {
    let mut digest: u64 = 0xcbf2_9ce4_8422_2325;
    let mut feed = |text: &str| {
        for byte in text.bytes().chain([0]) {
            digest = (digest ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
    };
    feed(&owner.uid);
    for member in &plan.members {
        feed(member.pod.as_str());
        feed(&member.node);
    }
    // 253 is the longest name; what is appended takes up to 24.
    let base: String = owner.key.1.chars().take(200).collect();
    format!("{}-{digest:016x}", base.trim_end_matches(['-', '.']))
}

fn to_u32(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}
