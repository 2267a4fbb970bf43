//! One workload as JSON, looked at closely: the numbers of the quota that it asks for, whose turn is before its own, and what
//! would let it in.

use quota_engine::{Balance, LocalQueueKey, Outlook, PendingReason, Raise, Remedy, Uid};
use serde_json::{Value, json};

use super::{Known, named, workload};
use crate::words;

/// What was found of these workloads, beside what is told of every workload. `queues` are the LocalQueues of their namespace.
pub fn closely(known: &Known<'_>, found: &[(Uid, Option<Outlook>)], queues: &[LocalQueueKey]) -> Vec<Value> {
    let leaving = known.engine.leaving();
    let told = found.iter().filter_map(|(uid, outlook)| {
        let told = workload(known, uid, &leaving)?;
        more(known, told, uid, outlook.as_ref(), queues)
    });
    told.collect()
}

fn more(
    known: &Known<'_>,
    mut told: Value,
    uid: &Uid,
    outlook: Option<&Outlook>,
    queues: &[LocalQueueKey],
) -> Option<Value> {
    let missing = matches!(known.engine.explain(uid)?.reason, Some(PendingReason::LocalQueueMissing(_)));
    if missing {
        told["localQueues"] = queues.iter().map(|key| json!(&*key.name)).collect();
    }
    if let Some(outlook) = outlook {
        told["fits"] = json!(outlook.fits);
        told["quota"] = outlook.balances.iter().map(balance).collect();
        told["next"] = outlook.next.as_ref().map_or(Value::Null, |next| waiting(known, next));
        told["keptFor"] = outlook.kept_for.iter().map(|head| waiting(known, head)).collect();
        told["unblocks"] = outlook.remedies.iter().map(|one| remedy(known, one)).collect();
    }
    Some(told)
}

fn balance(balance: &Balance) -> Value {
    let amount = |amount: i64| balance.resource.quantity(amount);
    json!({
        "podSet": balance.pod_set,
        "flavor": balance.flavor.as_str(),
        "resource": balance.resource.as_str(),
        "asked": amount(balance.asked),
        "nominal": amount(balance.nominal),
        "used": amount(balance.used),
        "available": amount(balance.available),
        "borrowable": amount(balance.borrowable),
        "potentiallyAvailable": amount(balance.potential),
        "withheld": amount(balance.withheld),
    })
}

/// Another one that waits, and why.
fn waiting(known: &Known<'_>, uid: &Uid) -> Value {
    let mut told = named(known, uid);
    if let Some(reason) = known.engine.explain(uid).and_then(|one| one.reason) {
        told["reason"] = json!(reason.token());
        told["message"] = json!(words::pending(&reason));
    }
    told
}

fn remedy(known: &Known<'_>, remedy: &Remedy) -> Value {
    match remedy {
        Remedy::Leave(uids) => {
            json!({ "leave": uids.iter().map(|uid| named(known, uid)).collect::<Vec<_>>() })
        }
        Remedy::RaiseNominal(raises) => json!({ "raiseNominalQuota": told_raises(raises) }),
        Remedy::RaiseBorrowingLimit(raises) => json!({ "raiseBorrowingLimit": told_raises(raises) }),
        Remedy::FewerPods(counts) => {
            let counts = counts.iter().map(|(pod_set, count)| json!({ "podSet": pod_set, "count": count }));
            json!({ "fewerPods": counts.collect::<Vec<_>>() })
        }
    }
}

fn told_raises(raises: &[Raise]) -> Vec<Value> {
    let told = raises.iter().map(|raise| {
        json!({
            "flavor": raise.flavor.as_str(),
            "resource": raise.resource.as_str(),
            "by": raise.resource.quantity(raise.by),
        })
    });
    told.collect()
}
