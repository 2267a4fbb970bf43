//! Workloads, with what the engine made of them.

use std::sync::Arc;

use model::rare::{Plain, Rare};

use crate::assign::Progress;
use crate::decision::{DecisionId, PreemptionReason};
use crate::input::{Admission, Standing, Workload};
use crate::line::Shape;
use crate::local_queues::LocalQueueId;
use crate::places::Places;
use crate::reason::PendingReason;
use crate::tree::{NodeId, Usage};
use crate::uid::Uid;
use crate::workloads::WorkloadId;

/// A workload with what the engine made of it.
#[derive(Debug)]
pub(crate) struct Record {
    pub(crate) workload: Workload,
    pub(crate) shape: Shape,
    /// The one that it names.
    pub(crate) local_queue: Option<LocalQueueId>,
    pub(crate) phase: Phase,
    /// The reason last given for waiting.
    pub(crate) said: Option<Arc<PendingReason>>,
    /// How far its search of flavors came.
    pub(crate) progress: Option<Box<Progress>>,
    /// What few have behind them.
    pub(crate) past: Rare<Past>,
}

/// What happened to a workload.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Past {
    /// Its admission was refused; forgotten when its spec changes.
    pub(crate) refused: Option<Refusal>,
    /// Why it is evicted rather than given other places.
    pub(crate) unplaced: Option<PendingReason>,
    /// Its eviction was refused.
    pub(crate) eviction_refused: Option<Refusal>,
    /// It has quota, and its places were refused.
    pub(crate) places_refused: Option<Refusal>,
    /// It was told to make way when it had quota last.
    pub(crate) makes_way: bool,
    /// Who left so that it could have what it was promised last, each with its priority then.
    pub(crate) displaced: Vec<(WorkloadId, i32)>,
}

/// What the API server refused is tried again after so long: whoever mends a policy or a right looks whether it has helped.
/// The same as for other writes of the controller.
const REFUSED_FOR_MS: i64 = 60_000;

/// With every refusal more it is twice as long, so often: an hour in the end. Others may have left for it in vain.
const REFUSED_DOUBLED: u32 = 6;

/// A write that was refused, and is not tried again for a while: a policy, a quota or a right may be another by then.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Refusal {
    /// What the API server said.
    pub(crate) words: Box<str>,
    /// How often in a row.
    pub(crate) times: u32,
    /// In milliseconds since the epoch; `None` as long as the workload is what it is.
    pub(crate) until_ms: Option<i64>,
}

impl Refusal {
    /// How long it is waited after so many refusals.
    pub(crate) fn wait_ms(times: u32) -> i64 {
        REFUSED_FOR_MS << times.saturating_sub(1).min(REFUSED_DOUBLED)
    }

    /// Whether it is too early to try again. What was refused in the future was so before a clock was set back.
    pub(crate) fn stands(&self, now_ms: i64) -> bool {
        let waits =
            |until_ms: i64| (1..=Self::wait_ms(self.times)).contains(&until_ms.saturating_sub(now_ms));
        self.until_ms.is_none_or(waits)
    }
}

impl Past {
    /// When something that was refused may be tried again, of what is not over at `now_ms`.
    pub(crate) fn next_try_ms(&self, now_ms: i64) -> Option<i64> {
        let refusals = [&self.refused, &self.eviction_refused, &self.places_refused];
        refusals.into_iter().flatten().filter(|one| one.stands(now_ms)).filter_map(|one| one.until_ms).min()
    }
}

impl Plain for Past {
    fn plain() -> &'static Self {
        static PLAIN: Past = Past {
            refused: None,
            unplaced: None,
            eviction_refused: None,
            places_refused: None,
            makes_way: false,
            displaced: Vec::new(),
        };
        &PLAIN
    }
}

impl Record {
    /// One of which nothing but itself is known yet.
    pub(crate) fn new(workload: Workload, shape: Shape, local_queue: Option<LocalQueueId>) -> Self {
        Self {
            workload,
            shape,
            local_queue,
            phase: Phase::Aside(None),
            said: None,
            progress: None,
            past: Rare::default(),
        }
    }

    /// Takes over what was known of the workload as it was before, as far as that still holds.
    pub(crate) fn inherit(&mut self, before: &mut Self) {
        let (now, then) = (&self.workload, &before.workload);
        let same_worth = now.priority == then.priority;
        let same_spec = same_worth && now.pod_sets == then.pod_sets && now.queue == then.queue;
        self.said = before.said.take();
        self.progress = before.progress.take();
        let mut past = std::mem::take(&mut before.past).into_inner();
        let holds = matches!(now.standing, Standing::Reserved { evicted: false, .. });
        past.unplaced = None;
        past.places_refused = None;
        past.refused = past.refused.filter(|_| same_spec && !holds);
        past.eviction_refused = past.eviction_refused.filter(|one| holds && one.until_ms.is_some());
        if !same_worth {
            past.displaced.clear();
        }
        self.past = past.into();
    }

    /// Whether its admission may become complete yet, be it with the quota that it has or with that of another time.
    pub(crate) fn may_be_admitted(&self) -> bool {
        match self.workload.standing {
            Standing::Finished => false,
            Standing::Reserved { .. } => true,
            Standing::Pending | Standing::OnHold => self.workload.active,
        }
    }

    /// That it leaves, or loses its quota, is written: no refusal of before counts any more.
    pub(crate) fn eviction_is_written(&mut self) {
        if self.past.eviction_refused.is_some() {
            self.past.eviction_refused = None;
        }
    }

    /// Whether what it holds it has because this one left for it.
    pub(crate) fn has_displaced(&self, who: WorkloadId, priority: i32) -> bool {
        self.past.displaced.contains(&(who, priority))
    }
}

#[derive(Debug)]
pub(crate) enum Phase {
    /// Nothing can be decided about it; `said` tells why. It counts as pending in the queue it would wait in.
    Aside(Option<NodeId>),
    /// In `active` of this queue.
    Queued(NodeId),
    /// In `parked` of this queue.
    Parked(NodeId),
    /// Promised room that others have still to leave: charged to the plan only.
    Claiming(Box<Claim>),
    /// Charged to what is held.
    Holding(Box<Holding>),
    Finished,
}

impl Phase {
    /// Whether it waits, and needs a change before it is looked at again.
    pub(crate) fn is_put_back(&self) -> bool {
        matches!(self, Self::Aside(_) | Self::Parked(_))
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Claim {
    pub(crate) queue: NodeId,
    pub(crate) admission: Arc<Admission>,
    pub(crate) usage: Arc<Usage>,
    pub(crate) places: Places,
}

#[derive(Clone, Debug)]
pub(crate) struct Holding {
    pub(crate) queue: NodeId,
    pub(crate) admission: Arc<Admission>,
    pub(crate) usage: Arc<Usage>,
    pub(crate) places: Places,
    /// Places that it was promised instead, when others have left.
    pub(crate) promised: Option<Places>,
    /// Places that it gives up when its new ones are written.
    pub(crate) vacating: Option<Places>,
    pub(crate) admitted: bool,
    pub(crate) since_ms: i64,
    pub(crate) state: HoldState,
}

impl Holding {
    /// Whether it was told to leave.
    pub(crate) fn is_leaving(&self) -> bool {
        matches!(self.state, HoldState::Leaving { .. })
    }

    /// Whether its own status says that its admission is complete.
    pub(crate) fn is_admitted(&self) -> bool {
        self.admitted && !matches!(self.state, HoldState::Assumed(_))
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum HoldState {
    /// Its admission is on its way to the API server.
    Assumed(DecisionId),
    /// Its own status says so.
    Confirmed,
    /// It was told to leave, and is out of the plan.
    Leaving {
        /// The eviction that is not confirmed yet.
        decision: Option<DecisionId>,
        /// For whom, and by which right.
        preemptor: Option<(Uid, PreemptionReason)>,
        /// Its quota is free as soon as that is written: it was not admitted yet.
        withdrawn: bool,
    },
}
