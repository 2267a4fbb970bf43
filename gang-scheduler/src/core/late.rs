//! What people read, written late: merged, only when it changes, and not often.

use std::collections::BTreeMap;

use crds::reasons;
use placement_engine::{GangId, Pending, PodUid, Why};
use serde_json::{Value, json};

use super::{Core, Notice, Outcome, Write};
use crate::grouping::GangOwner;
use crate::words;

/// What is said for the first time waits so long for better news: pods of a job arrive one after another.
const FIRST_MS: i64 = 1_000;
/// A gang's conditions are rewritten at most this often; the numbers in them move with every pod of the cluster.
const QUIET_MS: i64 = 10_000;
/// For each status written the gang is quiet for so long at least: ten writes a second for it, however many pods it has.
const QUIET_PER_WRITE_MS: i64 = 100;
/// A longer message is cut: the API server keeps at most 32,768 characters of a condition's.
const LONGEST: usize = 4_000;

/// Gangs with something to say.
#[derive(Default)]
pub(super) struct Late {
    pending: BTreeMap<GangId, Pending>,
    due: BTreeMap<GangId, i64>,
    /// Until when each is quiet.
    quiet: BTreeMap<GangId, i64>,
}

impl Late {
    /// Something about the gang may have changed.
    pub(super) fn touch(&mut self, now: i64, gang: &GangId) {
        let earliest = self.quiet.get(gang).copied().unwrap_or_default();
        self.due.entry(gang.clone()).or_insert_with(|| earliest.max(now.saturating_add(FIRST_MS)));
    }

    pub(super) fn touch_all<'a>(&mut self, now: i64, gangs: impl Iterator<Item = &'a GangId>) {
        for gang in gangs {
            self.touch(now, gang);
        }
    }

    pub(super) fn say(&mut self, now: i64, pending: Pending) {
        self.touch(now, &pending.gang);
        self.pending.insert(pending.gang.clone(), pending);
    }

    /// These pods no longer wait.
    pub(super) fn clear<'a>(&mut self, gang: &GangId, pods: impl Iterator<Item = &'a PodUid>) {
        let Some(pending) = self.pending.get_mut(gang) else { return };
        for pod in pods {
            pending.pods.remove(pod);
        }
        if pending.pods.is_empty() {
            self.pending.remove(gang);
        }
    }

    pub(super) fn stand_down(&mut self) {
        *self = Self::default();
    }

    pub(super) fn forget(&mut self, gang: &GangId) {
        self.pending.remove(gang);
        self.due.remove(gang);
        self.quiet.remove(gang);
    }

    /// A status was not written: try again with what is true then, unless the object is gone or will not have it.
    pub(super) fn retry(&mut self, now: i64, gang: &GangId, outcome: &Outcome) {
        if matches!(outcome, Outcome::Conflict | Outcome::Unknown | Outcome::NotSent) {
            self.touch(now, gang);
        }
    }

    pub(super) fn next(&self) -> Option<i64> {
        self.due.values().min().copied()
    }
}

impl Core {
    /// Writes what is due.
    pub(super) fn write_late(&mut self, now: i64, wall: i64) {
        let due: Vec<GangId> =
            self.late.due.iter().filter(|(_, at)| **at <= now).map(|(gang, _)| gang.clone()).collect();
        for gang in due {
            self.late.due.remove(&gang);
            let before = self.outbox.len();
            self.write_pods(wall, &gang);
            self.write_group(wall, &gang);
            let written = i64::try_from(self.outbox.len() - before).unwrap_or(i64::MAX);
            if written > 0 {
                let quiet = written.saturating_mul(QUIET_PER_WRITE_MS).max(QUIET_MS);
                self.late.quiet.insert(gang, now.saturating_add(quiet));
            }
        }
    }

    fn write_pods(&mut self, wall: i64, gang: &GangId) {
        let Some(pending) = self.late.pending.get(gang) else { return };
        for (uid, why) in &pending.pods {
            let Some(record) = self.index.pod(uid).filter(|record| record.info.node.is_none()) else {
                continue;
            };
            let (reason, message) = (words::token(why), cut(why.to_string()));
            let merged = words::with_condition(
                &record.conditions,
                reasons::pod::POD_SCHEDULED,
                "False",
                (reason, &message),
                wall,
            );
            let Some(conditions) = merged else { continue };
            let key = (record.info.namespace.clone(), record.info.name.clone());
            self.outbox.push(Write::PodStatus {
                pod: uid.clone(),
                key: key.clone(),
                resource_version: record.resource_version.clone(),
                conditions,
            });
            // `kubectl describe` shows no messages of conditions, so each pod has its event.
            self.notices.push(Notice {
                about: ("v1", "Pod", key, uid.to_string()),
                warning: true,
                reason: reasons::event::FAILED_SCHEDULING.to_owned(),
                message,
            });
        }
    }

    fn write_group(&mut self, wall: i64, gang: &GangId) {
        let Some(owner) = self.index.owner(gang).filter(|owner| owner.kind == "PodGroup") else { return };
        let Some(record) = self.index.group(&owner.key) else { return };
        let Some(report) = self.engine.report(gang) else { return };
        let old = &record.view.status;
        let phase = words::group_phase(&report);
        let why = self.late.pending.get(gang).map(|pending| &pending.why);
        let waiting = group_conditions(&old.conditions, why, &report, wall);
        let list = waiting.as_deref().unwrap_or(&old.conditions);
        let conditions = minima_condition(list, owner.disagreement, wall).or(waiting);
        // Volcano's counts are of pods by phase: those bound whose containers do not run yet are not among them.
        let running = i64::try_from(self.index.running(gang)).unwrap_or(i64::MAX);
        let counts = [running, i64::from(report.succeeded), i64::from(report.failed)];
        let unchanged =
            conditions.is_none() && old.phase == phase && counts == [old.running, old.succeeded, old.failed];
        if unchanged {
            return;
        }
        self.notices.extend(group_notice(owner, &old.conditions, conditions.as_deref()));
        let mut status = json!({ "phase": phase });
        // A zero that was never written stays unwritten, as Volcano's omitempty has it.
        for (name, old, new) in [
            ("running", old.running, counts[0]),
            ("succeeded", old.succeeded, counts[1]),
            ("failed", old.failed, counts[2]),
        ] {
            if old != new {
                status[name] = json!(new);
            }
        }
        if let Some(conditions) = conditions {
            status["conditions"] = Value::Array(conditions);
        }
        self.outbox.push(Write::GroupStatus {
            key: owner.key.clone(),
            uid: owner.uid.clone(),
            resource_version: record.view.metadata.resource_version.clone().unwrap_or_default(),
            status,
        });
    }
}

/// Volcano's two conditions: `Unschedulable` while it waits, `Scheduled` once it has its minimum. `None`: as they are.
fn group_conditions(
    old: &[Value],
    why: Option<&Why>,
    report: &placement_engine::GangReport,
    now: i64,
) -> Option<Vec<Value>> {
    let done = report.succeeded.saturating_add(report.failed);
    let whole =
        report.bound.saturating_add(done) >= report.min_member && report.bound.saturating_add(done) > 0;
    if whole {
        let message = format!("{} pods have a node, at least {} must", report.bound, report.min_member);
        // The count moves with every pod that ends; the condition says only that the minimum was reached.
        let already =
            old.iter().any(|one| one["type"] == reasons::pod_group::SCHEDULED && one["status"] == "True");
        let scheduled = if already {
            None
        } else {
            words::with_condition(
                old,
                reasons::pod_group::SCHEDULED,
                "True",
                ("tasks in gang are ready to be scheduled", &message),
                now,
            )
        };
        let list = scheduled.as_deref().unwrap_or(old);
        let waits = list
            .iter()
            .any(|one| one["type"] == reasons::pod_group::UNSCHEDULABLE && one["status"] == "True");
        let cleared = waits
            .then(|| {
                let kind = reasons::pod_group::UNSCHEDULABLE;
                words::with_condition(list, kind, "False", (reasons::pod_group::SCHEDULED, &message), now)
            })
            .flatten();
        return cleared.or(scheduled);
    }
    let why = why?;
    let message = cut(format!(
        "{} of {} pods have a node, at least {} must: {why}",
        report.bound, report.members, report.min_member
    ));
    let unschedulable = reasons::pod_group::UNSCHEDULABLE;
    let waits = words::with_condition(old, unschedulable, "True", (words::group_token(why), &message), now);
    let list = waits.as_deref().unwrap_or(old);
    let lost = list.iter().any(|one| one["type"] == reasons::pod_group::SCHEDULED && one["status"] == "True");
    let cleared = lost
        .then(|| {
            words::with_condition(
                list,
                reasons::pod_group::SCHEDULED,
                "False",
                (words::group_token(why), &message),
                now,
            )
        })
        .flatten();
    cleared.or(waits)
}

/// What of new conditions is worth an event on the PodGroup: another status or reason, not other numbers.
fn group_notice(owner: &GangOwner, old: &[Value], new: Option<&[Value]>) -> Option<Notice> {
    let heard = [reasons::pod_group::UNSCHEDULABLE, reasons::pod_group::SCHEDULED];
    let news = new?.iter().find(|condition| {
        let before = old.iter().find(|one| one["type"] == condition["type"]);
        let same = |field: &str| before.is_some_and(|before| before[field] == condition[field]);
        condition["status"] == "True"
            && heard.iter().any(|kind| condition["type"] == *kind)
            && !(same("status") && same("reason"))
    })?;
    Some(Notice {
        about: ("scheduling.volcano.sh/v1beta1", "PodGroup", owner.key.clone(), owner.uid.clone()),
        warning: news["type"] == reasons::pod_group::UNSCHEDULABLE,
        reason: news["type"].as_str()?.to_owned(),
        message: news["message"].as_str()?.to_owned(),
    })
}

/// Whether the PodGroup's minimum is the one that holds. Nothing is said as long as it always was.
fn minima_condition(old: &[Value], disagreement: Option<(u32, u32)>, now: i64) -> Option<Vec<Value>> {
    let kind = reasons::pod_group::MIN_MEMBER_DISAGREES;
    match disagreement {
        Some((group, granted)) => {
            let reason = match group < granted {
                true => reasons::pod_group::WORKLOAD_NEEDS_MORE,
                false => reasons::pod_group::POD_GROUP_NEEDS_MORE,
            };
            let message = crate::grouping::disagreement((group, granted));
            words::with_condition(old, kind, "True", (reason, &message), now)
        }
        None if old.iter().any(|one| one["type"] == kind) => {
            let message = "spec.minMember is how many pods of their Workload start together";
            words::with_condition(old, kind, "False", (reasons::pod_group::MINIMA_AGREE, message), now)
        }
        None => None,
    }
}

fn cut(mut text: String) -> String {
    if text.len() > LONGEST {
        let end = (0..=LONGEST).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
        text.truncate(end);
        text.push('…');
    }
    text
}
