//! Whether all pods of a job are ready or have succeeded, as its status tells it.

use serde_json::Value;

use super::read::{count, is_active, parallel};
use super::table::{PodSets, Ready};
use super::{JobKind, JobObject};

/// Whether all pods of a job are ready or have succeeded.
pub fn are_ready(kind: &JobKind, object: &JobObject) -> bool {
    let number = |at: &str| object.at(at).and_then(Value::as_i64).unwrap_or(0);
    match (&kind.ready, &kind.pod_sets) {
        (Ready::Pods { counts, names }, PodSets::Single { parallelism, completions, .. }) => {
            let counted = counts.iter().map(|at| number(at)).fold(0, i64::saturating_add);
            let named: usize = names.iter().map(|at| object.length(at)).sum();
            let all = counted.saturating_add(i64::try_from(named).unwrap_or(i64::MAX));
            parallel(object, parallelism, completions).is_ok_and(|wanted| all >= wanted)
        }
        (Ready::Jobs { at, counts }, PodSets::Jobs { at: sets, replicas, .. }) => {
            let of_set = |index: usize| count(object, &format!("{sets}/{index}{replicas}"));
            let wanted = (0..object.length(sets)).try_fold(0_i64, |sum, index| {
                Ok::<_, String>(sum.saturating_add(of_set(index)?.unwrap_or(1)))
            });
            let entries = object.at(at).and_then(Value::as_array).into_iter().flatten();
            let ready = entries.flat_map(|entry| counts.iter().map(move |field| entry.pointer(field)));
            wanted == Ok(ready.filter_map(|count| count?.as_i64()).fold(0, i64::saturating_add))
        }
        (Ready::Condition(name), _) => {
            let conditions = object.at("/status/conditions").and_then(Value::as_array);
            conditions.into_iter().flatten().any(|one| one["type"] == *name && one["status"] == "True")
        }
        (Ready::Says { at, value }, _) => object.text(at) == *value,
        (Ready::WhileActive, _) => is_active(kind, object),
        _ => false,
    }
}
