//! What LocalQueues have used so far: admission fair sharing. An account is kept of every LocalQueue that leads to a
//! ClusterQueue; it orders workloads, and is charged with penalties, only in those that want it.
//!
//! Rules: Kueue KEP-4136, `pkg/cache/queue/afs` and `pkg/util/admissionfairsharing`. In a ClusterQueue with
//! `admissionScope.admissionMode: UsageBasedAdmissionFairSharing` those go first whose LocalQueue has used less. What it has
//! used is an average that forgets half of what was in the half-life. Until the average has taken notice of a workload that
//! was just let in, a penalty stands for it: what it would add within one sampling interval.
//!
//! Kueue takes a sample now and then, and takes what is used at that moment for what was used all the time. Here the average
//! follows every change of use; the samples only bring those up to date whose use did not change. Numbers are integers,
//! billionths of a unit (of a core, a byte, a device), rounded down.

use std::collections::BTreeMap;

use model::ResourceName;

use crate::engine::Engine;
use crate::input::{Admission, AdmissionMode, Weight};
use crate::line::Order;
use crate::local_queues::LocalQueueId;
use crate::names::LocalQueueKey;
use crate::record::{Holding, Record};
use crate::tree::NodeId;
use crate::workloads::WorkloadId;

/// Kueue's `admissionFairSharing`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdmissionFairSharing {
    /// `usageHalfLifeTime`, in milliseconds; 0 forgets everything at once.
    pub half_life_ms: u64,
    /// `usageSamplingInterval`, in milliseconds.
    pub sampling_ms: u64,
    /// `resourceWeights`; 1 where there is none.
    pub weights: BTreeMap<ResourceName, Weight>,
}

/// Billionths of a unit, by resource.
pub type Amounts = BTreeMap<ResourceName, i128>;

/// What a LocalQueue has used, weighted: billionths. The most there is belongs to those of weight 0, who come last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Consumption(u128);

impl Consumption {
    /// As near as a float comes; infinite for weight 0.
    #[allow(clippy::cast_precision_loss, reason = "nothing is decided by it")]
    pub fn approximate(self) -> f64 {
        if self.0 == u128::MAX { f64::INFINITY } else { self.0 as f64 / NANO as f64 }
    }
}

/// What is known of what a LocalQueue has used.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct History {
    /// The average as of `at_ms`: of every resource that its ClusterQueue has quota of, and of those that were used before.
    pub consumed: Amounts,
    /// When it was brought up to date, in milliseconds since the epoch.
    pub at_ms: i64,
    /// Penalties that are not in it yet.
    pub penalty: Amounts,
    /// What its turn goes by.
    pub consumption: Consumption,
}

const NANO: i128 = 1_000_000_000;

/// What one LocalQueue has used, uses, and owes.
#[derive(Debug)]
pub(crate) struct Account {
    queue: NodeId,
    consumed: Amounts,
    at_ms: i64,
    /// What admitted workloads have used since then.
    using: Amounts,
    /// What they use now.
    uses: Amounts,
    /// Penalties of those whose admission is not complete.
    owed: BTreeMap<WorkloadId, Amounts>,
    /// Penalties of those whose admission is complete since `at_ms`.
    settled: Amounts,
    /// Whether something was decided by it: it is newer then than what is written.
    own: bool,
}

impl Account {
    /// Brings the average up to date.
    fn advance(&mut self, now_ms: i64, half_life_ms: u64) {
        let elapsed = u64::try_from(now_ms - self.at_ms).unwrap_or(0);
        let kept = kept(elapsed, half_life_ms);
        for amount in self.consumed.values_mut() {
            *amount = part(*amount, kept);
        }
        if half_life_ms > 0 {
            for (resource, amount) in &self.using {
                add(&mut self.consumed, resource, part(*amount, ONE - kept));
            }
        }
        for (resource, amount) in std::mem::take(&mut self.settled) {
            add(&mut self.consumed, &resource, amount);
        }
        self.using.clone_from(&self.uses);
        self.at_ms = self.at_ms.max(now_ms);
    }

    /// Whether time changes nothing about it: nothing is used, and nothing is left of what was.
    fn is_idle(&self) -> bool {
        [&self.using, &self.uses, &self.settled].iter().all(|amounts| amounts.is_empty())
            && self.consumed.values().all(|amount| *amount == 0)
    }

    fn penalty(&self) -> Amounts {
        let mut sum = self.settled.clone();
        for (resource, amount) in self.owed.values().flatten() {
            add(&mut sum, resource, *amount);
        }
        sum
    }

    fn consumption(&self, rules: &AdmissionFairSharing, weight: Weight) -> Consumption {
        if weight.nanos() == 0 {
            return Consumption(u128::MAX);
        }
        let penalty = self.penalty();
        let weighted = self.consumed.iter().chain(&penalty).fold(0u128, |sum, (resource, amount)| {
            let weight = rules.weights.get(resource).copied().unwrap_or_default();
            let amount = u128::try_from(*amount).unwrap_or(0);
            sum.saturating_add(scaled(amount, weight.nanos()))
        });
        let by_weight = weighted.saturating_mul(NANO.unsigned_abs()) / u128::from(weight.nanos());
        Consumption(by_weight.min(u128::MAX - 1))
    }
}

fn add(amounts: &mut Amounts, resource: &ResourceName, amount: i128) {
    let sum = amounts.entry(resource.clone()).or_default();
    *sum = sum.saturating_add(amount);
}

/// `amount` times `nanos` billionths.
fn scaled(amount: u128, nanos: u64) -> u128 {
    amount.saturating_mul(u128::from(nanos)) / NANO.unsigned_abs()
}

/// The number 1 among the fractions below.
const ONE: u128 = 1 << 64;

/// The square root of a half, the root of that, and so on: halving over a half, a quarter, … of the half-life.
const ROOTS: [u128; 32] = {
    let mut roots = [0; 32];
    let mut last = ONE / 2;
    let mut index = 0;
    while index < roots.len() {
        last = (last << 64).isqrt();
        roots[index] = last;
        index += 1;
    }
    roots
};

/// How much of an amount is left after a time, as a fraction of [`ONE`]: a half to the power of elapsed / half-life.
fn kept(elapsed_ms: u64, half_life_ms: u64) -> u128 {
    if half_life_ms == 0 {
        return 0;
    }
    let halvings = elapsed_ms / half_life_ms;
    let rest = (u128::from(elapsed_ms % half_life_ms) << ROOTS.len()) / u128::from(half_life_ms);
    let mut left = if halvings < 64 { ONE >> halvings } else { 0 };
    for (index, root) in ROOTS.iter().enumerate() {
        if rest >> (ROOTS.len() - 1 - index) & 1 == 1 {
            left = (left * root) >> 64;
        }
    }
    left
}

/// That fraction of an amount.
fn part(amount: i128, of_one: u128) -> i128 {
    let amount = amount.max(0).unsigned_abs();
    let (whole, rest) = (amount >> 64, amount & (ONE - 1));
    // A fraction of one is at most 2^64, and amounts stay below 2^127.
    let part =
        whole.saturating_mul(of_one).saturating_add(if of_one == ONE { rest } else { (rest * of_one) >> 64 });
    i128::try_from(part).unwrap_or(i128::MAX)
}

impl Engine {
    /// What a LocalQueue has used; `None` where no account is kept of it.
    pub fn history(&self, key: &LocalQueueKey) -> Option<History> {
        let record = &self.local_queues[self.local_queues.id(key)?];
        let account = record.account.as_ref()?;
        let rules = self.settings.admission_fair_sharing.as_ref()?;
        let mut consumed = account.consumed.clone();
        if rules.half_life_ms == 0 {
            // What forgets everything at once has used nothing of anything.
            consumed.retain(|_, amount| *amount != 0);
        } else {
            let spec = self.queues[account.queue].spec.as_ref();
            let flavors = spec.into_iter().flat_map(|spec| &spec.groups).flat_map(|group| &group.flavors);
            for resource in flavors.flat_map(|flavor| flavor.resources.keys()) {
                consumed.entry(resource.clone()).or_default();
            }
        }
        Some(History {
            consumed,
            at_ms: account.at_ms,
            penalty: account.penalty(),
            consumption: account.consumption(rules, record.weight()),
        })
    }

    /// When [`Engine::decide`] is to be called though nothing happens, in milliseconds since the epoch: what was used has
    /// become less.
    pub fn next_sample_ms(&self) -> Option<i64> {
        let rules = self.settings.admission_fair_sharing.as_ref()?;
        let moving = self.accounts().filter(|(_, account)| !account.is_idle());
        let oldest = moving.map(|(_, account)| account.at_ms).min()?;
        Some(oldest.saturating_add_unsigned(rules.sampling_ms.max(1)))
    }

    /// Whether workloads of different LocalQueues may have their turns by what these have used.
    pub(crate) fn takes_turns_by_use(&self) -> bool {
        self.settings.admission_fair_sharing.is_some()
    }

    pub(crate) fn order_of(&self, who: WorkloadId, record: &Record) -> Order {
        Order::of(who, &record.workload, record.local_queue.filter(|_| self.takes_turns_by_use()))
    }

    /// What a workload's LocalQueue has used, where that orders the workloads of a ClusterQueue.
    pub(crate) fn consumption_of(&self, queue: NodeId, record: &Record) -> Option<Consumption> {
        self.queues[queue].consumptions.get(&record.local_queue?).copied()
    }

    fn accounts(&self) -> impl Iterator<Item = (LocalQueueId, &Account)> {
        self.local_queues.iter().filter_map(|(id, record)| Some((id, record.account.as_ref()?)))
    }

    /// Whether LocalQueues of this ClusterQueue take turns by what they have used.
    pub(crate) fn shares_by_use(&self, queue: NodeId) -> bool {
        let spec = self.queues[queue].spec.as_ref();
        self.takes_turns_by_use()
            && spec.is_some_and(|spec| spec.admission_mode == AdmissionMode::UsageBasedFairSharing)
    }

    /// Opens and closes accounts as ClusterQueues change.
    pub(crate) fn reopen_accounts(&mut self) {
        if self.takes_turns_by_use() {
            self.local_queues.ids().into_iter().for_each(|id| self.reopen_account(id));
        }
    }

    /// Opens or closes the account of a LocalQueue that came, went or changed.
    pub(crate) fn reopen_account(&mut self, id: LocalQueueId) {
        let object = self.local_queues[id].object.as_ref();
        let leads_to = object.and_then(|queue| self.known_queue(&queue.cluster_queue));
        let leads_to = leads_to.filter(|queue| self.takes_turns_by_use() && queue.spec.is_some());
        let leads_to = leads_to.map(|queue| queue.node);
        let record = &mut self.local_queues[id];
        if record.object.is_none() {
            record.written = None;
        }
        let account = self.close_account(id);
        if let Some(queue) = leads_to {
            let mut account = account.unwrap_or_else(|| self.opened(id, queue));
            account.queue = queue;
            self.local_queues[id].account = Some(account);
            self.renew_consumption(id);
        }
    }

    /// From now on nobody's turn goes by it.
    fn close_account(&mut self, id: LocalQueueId) -> Option<Account> {
        let account = self.local_queues[id].account.take()?;
        self.queues[account.queue].consumptions.remove(&id);
        Some(account)
    }

    /// The account of a LocalQueue of which nothing is known but who has quota now.
    fn opened(&self, id: LocalQueueId, queue: NodeId) -> Account {
        let record = &self.local_queues[id];
        let mut uses = Amounts::new();
        for who in &record.members {
            if let Some(holding) = self.holding(*who).filter(|holding| holding.is_admitted()) {
                change(&mut uses, holding, 1);
            }
        }
        Account {
            queue,
            consumed: record.written.clone().unwrap_or_default(),
            at_ms: self.alarms.now_ms(),
            using: uses.clone(),
            uses,
            owed: BTreeMap::new(),
            settled: Amounts::new(),
            own: false,
        }
    }

    fn renew_consumption(&mut self, id: LocalQueueId) {
        let Some(rules) = &self.settings.admission_fair_sharing else { return };
        let record = &self.local_queues[id];
        let Some(account) = &record.account else { return };
        if self.shares_by_use(account.queue) {
            let consumption = account.consumption(rules, record.weight());
            self.queues[account.queue].consumptions.insert(id, consumption);
        }
        self.local_queues.touch(id);
    }

    /// Takes in what a LocalQueue's status says. What this engine has worked out itself since is newer.
    pub(crate) fn remember_history(&mut self, key: LocalQueueKey, consumed: Amounts) {
        if !self.takes_turns_by_use() {
            return;
        }
        let id = self.local_queues.id_of(key);
        let record = &mut self.local_queues[id];
        if let Some(account) = record.account.as_mut().filter(|account| !account.own) {
            account.consumed.clone_from(&consumed);
        }
        record.written = Some(consumed);
        self.renew_consumption(id);
    }

    /// Begins with what is written: somebody else has decided since.
    pub(crate) fn forget_own_history(&mut self) {
        let had: Vec<LocalQueueId> = self.accounts().map(|(id, _)| id).collect();
        for id in had {
            self.close_account(id);
            self.reopen_account(id);
        }
    }

    /// The clock was set back: nothing is used before its time, and what is used from now on counts.
    pub(crate) fn date_back_accounts(&mut self) {
        let now_ms = self.alarms.now_ms();
        for account in self.local_queues.iter_mut().filter_map(|(_, record)| record.account.as_mut()) {
            account.at_ms = account.at_ms.min(now_ms);
        }
    }

    /// Brings up to date what has changed, and everything when a sample is due.
    pub(crate) fn advance_accounts(&mut self) {
        let now_ms = self.alarms.now_ms();
        let Some(rules) = &self.settings.admission_fair_sharing else { return };
        let (half_life_ms, due) = (rules.half_life_ms, self.next_sample_ms().is_some_and(|at| at <= now_ms));
        let mut changed = Vec::new();
        for (id, record) in self.local_queues.iter_mut() {
            let Some(account) = &mut record.account else { continue };
            if !account.own {
                (account.own, account.at_ms) = (true, now_ms);
            }
            if (due && !account.is_idle()) || account.using != account.uses || !account.settled.is_empty() {
                account.advance(now_ms, half_life_ms);
                changed.push(id);
            }
        }
        changed.into_iter().for_each(|id| self.renew_consumption(id));
    }

    /// A workload gets quota: what it asks for counts before it is seen to use it. That is all of it, be it admitted in part, and
    /// not the number of its pods where a queue counts them.
    pub(crate) fn impose_penalty(&mut self, who: WorkloadId, admission: &Admission) {
        let Some(rules) = &self.settings.admission_fair_sharing else { return };
        let Some(record) = self.workloads.get(who) else { return };
        let Some(id) = record.local_queue else { return };
        let added =
            if rules.half_life_ms == 0 { 0 } else { ONE - kept(rules.sampling_ms, rules.half_life_ms) };
        let queue = self.local_queues[id].account.as_ref().map(|account| account.queue);
        if queue.is_none_or(|queue| !self.shares_by_use(queue)) {
            return;
        }
        let Some(account) = &mut self.local_queues[id].account else { return };
        let mut penalty = Amounts::new();
        for set in record.workload.pod_sets.iter() {
            for (resource, amount) in &set.requests {
                if admission.pod_sets.iter().any(|given| given.usage.get(resource).is_some()) {
                    let amount = resource.quantity(amount.saturating_mul(set.count)).nanos();
                    add(&mut penalty, resource, part(amount, added));
                }
            }
        }
        account.owed.insert(who, penalty);
        self.renew_consumption(id);
    }

    /// Its admission was not written, or it will never be complete. One that is evicted before that goes on owing: it asks again,
    /// and owes anew for what it gets then.
    pub(crate) fn lift_penalty(&mut self, who: WorkloadId) {
        let Some(id) = self.workloads.get(who).and_then(|record| record.local_queue) else { return };
        let account = self.local_queues[id].account.as_mut();
        if account.is_some_and(|account| account.owed.remove(&who).is_some()) {
            self.renew_consumption(id);
        }
    }

    /// Its admission is complete.
    pub(crate) fn settle_penalty(&mut self, who: WorkloadId) {
        let Some(account) = self.account_of(who) else { return };
        for (resource, amount) in account.owed.remove(&who).unwrap_or_default() {
            add(&mut account.settled, &resource, amount);
        }
    }

    /// Notes that an admitted workload begins (1) or ceases (-1) to use what it holds.
    pub(crate) fn note_use(&mut self, who: WorkloadId, holding: &Holding, sign: i128) {
        if let Some(account) = self.account_of(who) {
            change(&mut account.uses, holding, sign);
        }
    }

    fn account_of(&mut self, who: WorkloadId) -> Option<&mut Account> {
        let id = self.workloads.get(who)?.local_queue?;
        self.local_queues[id].account.as_mut()
    }

    /// Compares what LocalQueues are taken to use with a count from scratch.
    pub(crate) fn audit_accounts(&self) -> Result<(), String> {
        for (id, account) in self.accounts() {
            let (key, counted) = (&self.local_queues[id].key, self.opened(id, account.queue).uses);
            if account.uses != counted {
                return Err(format!("{key}: kept {:?}, counted {counted:?} from workloads", account.uses));
            }
        }
        Ok(())
    }
}

/// Adds or takes away what a workload uses.
fn change(uses: &mut Amounts, holding: &Holding, sign: i128) {
    for (resource, amount) in holding.admission.pod_sets.iter().flat_map(|one| &one.usage) {
        add(uses, resource, sign * resource.quantity(*amount).nanos());
    }
    uses.retain(|_, amount| *amount != 0);
}
