//! The one task that owns the engine: watches in, decisions out.
//!
//! The way of one change: `feeds` tells of it, a `store` keeps it, `world` passes it on to the engine, `decided` takes what that
//! decides, `pump` works out what each unit (a job with its Workloads, or a group of pods) needs next, `backlog` lets units wait for
//! room among the writes, `send` makes the request, and `answers` or `refused` take what became of it. What nobody waits for goes
//! through `late` and `announce`. The other modules are steps of one kind of unit each.

mod announce;
mod answers;
mod backlog;
mod decided;
pub(crate) mod feeds;
mod finalizers;
mod gates;
mod late;
mod parts;
mod phases;
mod pods;
mod provision;
mod pump;
mod queues;
mod refused;
mod send;
mod slices;
mod steps;
mod store;
mod strays;
mod unread;
mod without_workload;
pub(crate) mod world;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use crds::reasons::workload as tokens;
use crds::view::workload::Workload;
use futures::FutureExt;
use futures::stream::StreamExt;
use jiff::Timestamp;
use kit::Context;
use kit::admin::Requirement;
use kit::events::Events;
use kit::lease::Leadership;
use kit::watch::{Change, Reports};
use kit::writes::{Done, Limits, WriteMetrics, Writes, always};
use kube::api::{Api, ListParams};
use model::planted::Bug;
use quota_engine::{Decision, Engine, Evict, Outcome, PendingReason, Reserve, Uid, Withdraw};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::Instant;

use crate::adopted::Compared;
use crate::config::Config;
use crate::explain;
use crate::metrics::QueueMetrics;
use crate::surroundings::Surroundings;
use crate::visibility::{self, Board, Question};
use backlog::Backlog;
use feeds::{Feeds, Seen, feeds};
use late::Late;
use pump::{Answer, Op};
use refused::Aim;
use world::{Unit, World};

/// So many events are taken in before the next decision: a list of thousands is decided on a few times, not thousands.
const BATCH: usize = 512;
/// So long a replica that starts waits for a lease that is free.
const HEAD_START: Duration = Duration::from_secs(1);
/// A page of the list that a new leader makes. Kubernetes' own page size of kubectl.
const PAGE: u32 = 500;
/// A reason to wait is written this long after it arose, if it still holds: most workloads are admitted sooner.
const PENDING_DELAY: Duration = Duration::from_millis(200);
/// The same where its status gives a reason of this kind already: only numbers differ, and they go on changing.
const REFRESH_DELAY: Duration = Duration::from_secs(5);
/// What the API server refused is tried again after this long even if the object stays as it is: a ResourceQuota or a
/// policy may have been in the way.
const REFUSED_DELAY: Duration = Duration::from_secs(60);
/// After a conflict the watch, or the read that follows, brings what is new; if nothing is, it is tried again after this long.
/// What is made for a job is not made again sooner either.
const CONFLICT_DELAY: Duration = Duration::from_secs(1);
/// What a job lacks is said again after this long: events are not written twice when the API server is away, and it forgets
/// them after an hour.
const TELL_AGAIN: Duration = Duration::from_secs(600);
/// What is due later than this is looked at then, and waits anew: the wall clock may have been set meanwhile, and what was to be looked
/// at may be gone.
const LONGEST_WAIT_MS: u64 = 3600 * 1000;
/// A queue's counts are written at most once in this time.
const STATUS_DELAY: Duration = Duration::from_secs(1);

/// Of so many workloads of one name a close look is taken.
const MOST_LOOKED_AT: usize = 16;

/// A question to the task that owns the engine.
pub(crate) enum Ask {
    /// For its state, as JSON.
    State(oneshot::Sender<serde_json::Value>),
    /// For the Workloads of a namespace that have this name, or whose job has, looked at closely, as JSON; `None` as long as not
    /// everything was seen.
    Closely(String, String, oneshot::Sender<Option<serde_json::Value>>),
    /// Who waits in a queue.
    Pending(Question, oneshot::Sender<visibility::Answer>),
}

pub(crate) struct Controller {
    ctx: Context,
    config: Arc<Config>,
    engine: Engine,
    world: World,
    writes: Writes<Unit, Answer>,
    events: Events,
    leadership: Leadership,
    /// Whether this replica leads and has seen everything that earlier leaders wrote.
    leads: bool,
    /// What is to be looked at when there is room for more writes.
    backlog: Backlog,
    /// The write under way, by unit.
    busy: BTreeMap<Unit, Op>,
    /// Decisions that wait for their unit.
    reserves: BTreeMap<Uid, Reserve>,
    evictions: BTreeMap<Uid, Evict>,
    withdrawals: BTreeMap<Uid, Withdraw>,
    /// Workloads of which something was refused because nothing would start, as long as that is so.
    unfollowed: BTreeSet<Uid>,
    /// Units that are to be looked at at a time, and these times.
    alarms: BTreeMap<Unit, BTreeSet<Timestamp>>,
    /// Writes that led nowhere, by unit, what they were aimed at and the versions they were worked out from, and until when they are
    /// not tried again.
    refused: BTreeMap<Unit, BTreeMap<(Aim, String), Instant>>,
    /// What was said last of jobs that wait or cannot go on, by unit and reason, and until when it is not said again.
    told: BTreeMap<Unit, BTreeMap<&'static str, (String, Instant)>>,
    /// Whether jobs run what Workloads describe that somebody else made for them.
    compared: BTreeMap<Unit, Compared>,
    /// Writes of decisions of which nobody knows whether they happened: read again after a pause, or settled when the next term
    /// begins.
    unsettled: BTreeMap<Unit, Vec<Op>>,
    /// Units with quota from before this term whose jobs and pods were not read since.
    unread: BTreeSet<Unit>,
    /// Units that are looked at again though nothing happens, by when.
    due: BTreeSet<(Instant, Unit)>,
    /// Reasons and counts.
    late: Late,
    ready: Requirement,
    /// Whether all lists were there when that was last looked at.
    is_synced: bool,
    counted: Counted,
    /// Lists for those who ask who waits.
    board: Board,
}

/// What is counted and told.
pub(crate) struct Counted {
    /// Events.
    pub(crate) events: Events,
    /// Watches.
    pub(crate) watches: Reports,
    /// Writes.
    pub(crate) writes: WriteMetrics,
    /// Queues and workloads.
    pub(crate) queues: QueueMetrics,
}

/// What the loop woke up for.
enum Wake {
    Stop,
    Led(bool),
    Done(Box<Done<Unit, Answer>>),
    Due,
    Seen(Box<Seen>),
    Asked(Ask),
}

impl Controller {
    pub(crate) fn new(
        ctx: Context,
        config: Arc<Config>,
        leadership: Leadership,
        ready: Requirement,
        counted: Counted,
        surroundings: watch::Sender<Surroundings>,
    ) -> Self {
        let lease_is_ignored = config.planted.is(Bug::WriteWithoutLease);
        let gate = if lease_is_ignored { always() } else { leadership.gate() };
        let writes = Writes::start_counted(&ctx, Limits::default(), gate, &counted.writes);
        Self {
            events: counted.events.clone(),
            engine: Engine::new(config.file.settings()).with_planted(config.planted),
            world: World::new(&config.file).telling(surroundings),
            writes,
            leadership,
            leads: false,
            backlog: Backlog::default(),
            busy: BTreeMap::new(),
            reserves: BTreeMap::new(),
            evictions: BTreeMap::new(),
            withdrawals: BTreeMap::new(),
            unfollowed: BTreeSet::new(),
            alarms: BTreeMap::new(),
            refused: BTreeMap::new(),
            told: BTreeMap::new(),
            compared: BTreeMap::new(),
            unsettled: BTreeMap::new(),
            unread: BTreeSet::new(),
            due: BTreeSet::new(),
            late: Late::new(),
            ready,
            is_synced: false,
            counted,
            board: Board::default(),
            ctx,
            config,
        }
    }

    /// Runs until the context's tasks stop.
    pub(crate) async fn run(mut self, mut asked: mpsc::Receiver<Ask>) {
        self.leads = self.leads_at_once().await;
        let (wants_places, wanted) = watch::channel(false);
        let (wants_slices, slices_wanted) = watch::channel(false);
        let file = &self.config.file;
        let mut feeds = feeds(&self.ctx, file, Some(&self.counted.watches), &wanted, Some(&slices_wanted));
        loop {
            let wake = self.wake(&mut feeds, &mut asked).await;
            self.engine.tell_time(self.ctx.clock.unix_millis());
            match wake {
                Wake::Stop => break,
                Wake::Led(leads) => self.lead(leads).await,
                Wake::Done(done) => self.done(*done),
                Wake::Due => {}
                Wake::Seen(seen) => self.see(*seen),
                Wake::Asked(ask) => self.answer_ask(ask),
            }
            self.take_answers();
            self.take_what_is_there(&mut feeds);
            let wanted = self.world.ground.wanted;
            wants_places.send_if_modified(|told| std::mem::replace(told, wanted) != wanted);
            let wanted = self.world.slice_pods.wanted;
            wants_slices.send_if_modified(|told| std::mem::replace(told, wanted) != wanted);
            self.note_sync();
            if self.acts() {
                self.decide();
                self.announce_cohorts();
                self.pump();
            } else if !self.leads {
                self.stand_by();
            }
        }
        self.writes.drain().await;
    }

    /// Whoever leads later looks at everything.
    fn stand_by(&mut self) {
        self.world.dirty.clear();
        if self.is_synced {
            self.engine.stand_by(self.ctx.clock.unix_millis());
        }
    }

    /// What was decided before all lists were there rests on a part of them: a LocalQueue that is listed after its Workloads was
    /// missing to them.
    fn note_sync(&mut self) {
        let is_synced = self.world.is_synced();
        if is_synced && !self.is_synced {
            self.engine.take_back_untold();
            self.ready.met();
        }
        self.is_synced = is_synced;
    }

    /// Waits a moment for leadership before anything is watched: who has it by then need not list everything a second time.
    async fn leads_at_once(&mut self) -> bool {
        let (clock, tasks) = (self.ctx.clock.clone(), self.ctx.tasks.clone());
        let leads = tokio::select! {
            biased;
            () = tasks.stopping() => false,
            leads = self.leadership.changed() => leads,
            () = clock.sleep(HEAD_START) => false,
        };
        if leads {
            self.writes.begin_term().await;
            tracing::info!("this replica leads");
        }
        leads
    }

    async fn wake(&mut self, feeds: &mut Feeds, asked: &mut mpsc::Receiver<Ask>) -> Wake {
        let has_reasons = || self.engine.has_reasons() && self.late.room_for_reasons() > 0;
        if self.acts() && (self.engine.has_more() || has_reasons()) {
            tokio::task::yield_now().await;
            return Wake::Due;
        }
        // Nothing is done when it is due by a replica that may not act: it must not wake up for it either.
        let due = self.due.first().map(|(at, _)| *at).into_iter().chain(self.late.due());
        let engine = [self.engine.next_alarm_ms(), self.engine.next_sample_ms()].into_iter().flatten();
        let due = due.chain(engine.map(|at_ms| self.instant(at_ms))).min().filter(|_| self.acts());
        let (clock, tasks) = (self.ctx.clock.clone(), self.ctx.tasks.clone());
        tokio::select! {
            biased;
            () = tasks.stopping() => Wake::Stop,
            leads = self.leadership.changed() => Wake::Led(leads),
            done = self.writes.next() => Wake::Done(Box::new(done)),
            () = async { clock.sleep_until(due.unwrap_or_else(|| clock.monotonic())).await }, if due.is_some() => Wake::Due,
            Some(ask) = asked.recv() => Wake::Asked(ask),
            Some(seen) = feeds.next() => Wake::Seen(Box::new(seen)),
        }
    }

    fn answer_ask(&mut self, ask: Ask) {
        match ask {
            Ask::State(asker) => {
                let _asker_gone = asker.send(self.explained());
            }
            Ask::Closely(namespace, name, asker) => {
                let _asker_gone = asker.send(self.explained_closely(&namespace, &name));
            }
            Ask::Pending(question, asker) => {
                let answer = if self.world.is_synced() {
                    let (now, workloads) = (self.ctx.clock.monotonic(), &self.world.workloads);
                    self.board.answer(&question, &self.engine, now, |uid| workloads.origin(uid))
                } else {
                    visibility::Answer::TooEarly
                };
                let _asker_gone = asker.send(answer);
            }
        }
    }

    fn explained(&self) -> serde_json::Value {
        self.knowing(|known| explain::state(known, self.leads))
    }

    fn explained_closely(&mut self, namespace: &str, name: &str) -> Option<serde_json::Value> {
        if !self.world.is_synced() {
            return None;
        }
        let called = self.world.workloads.called(namespace, name).into_iter().take(MOST_LOOKED_AT);
        let found: Vec<_> = called.map(|uid| (uid.clone(), self.engine.outlook(&uid))).collect();
        let queues = self.world.local_queues_of(namespace);
        let told = self.knowing(|known| explain::closely(known, &found, &queues));
        let jobs = if told.is_empty() { self.without_workload(namespace, name) } else { Vec::new() };
        Some(serde_json::json!({ "leader": self.leads, "workloads": told, "jobs": jobs }))
    }

    /// What is told of workloads by what is known of them here.
    fn knowing<T>(&self, tell: impl FnOnce(&explain::Known<'_>) -> T) -> T {
        tell(&explain::Known {
            engine: &self.engine,
            object: &|uid| self.world.workloads.get(uid),
            pods_ready: self.world.rules.pods_ready(),
            others: &|uid| self.world.other_schedulers(uid),
        })
    }

    /// Whether this replica leads and has seen everything.
    fn acts(&self) -> bool {
        self.leads && self.world.is_synced()
    }

    /// Takes the answers that are there: what each of them has looked at again, all pods of a workload say, is looked at once.
    fn take_answers(&mut self) {
        for _ in 0..BATCH {
            match self.writes.next().now_or_never() {
                Some(done) => self.done(done),
                None => return,
            }
        }
    }

    fn take_what_is_there(&mut self, feeds: &mut Feeds) {
        for _ in 0..BATCH {
            match feeds.next().now_or_never() {
                Some(Some(seen)) => self.see(seen),
                _ => return,
            }
        }
    }

    fn see(&mut self, seen: Seen) {
        if let Seen::Workload(Change::Applied(view)) = &seen {
            self.count_end(view);
        }
        let gone = match &seen {
            Seen::Workload(Change::Deleted(view)) => Some(crate::input::uid(&view.metadata)),
            _ => None,
        };
        self.world.take(&mut self.engine, seen);
        for unit in std::mem::take(&mut self.world.gone_queues) {
            self.uncount(unit);
        }
        // Nothing of it is to be carried out any more.
        if let Some(uid) = gone.filter(|uid| !self.world.workloads.exists(uid)) {
            self.reserves.remove(&uid);
            self.evictions.remove(&uid);
            self.withdrawals.remove(&uid);
            self.unfollowed.remove(&uid);
        }
    }

    /// A new leader first sees everything that earlier ones wrote: the API server has no fencing tokens, and a watch may lag.
    async fn lead(&mut self, leads: bool) {
        if !leads && self.config.planted.is(Bug::WriteWithoutLease) {
            return;
        }
        self.leads = false;
        for id in std::mem::take(&mut self.reserves).into_values().map(|one| one.id) {
            self.engine.written(id, Outcome::NotWritten);
        }
        for id in std::mem::take(&mut self.evictions).into_values().map(|one| one.id) {
            self.engine.written(id, Outcome::NotWritten);
        }
        for id in std::mem::take(&mut self.withdrawals).into_values().map(|one| one.id) {
            self.engine.written(id, Outcome::NotWritten);
        }
        if !leads {
            self.counted.queues.no_longer_leads();
            tracing::info!("this replica no longer leads");
            return;
        }
        self.writes.begin_term().await.into_iter().for_each(|done| self.done(done));
        while self.leadership.may_write() && !self.ctx.tasks.is_stopping() {
            match self.list_workloads().await {
                Ok(left_out) => {
                    self.engine.take_back_untold();
                    self.leads = true;
                    self.refused.clear();
                    self.unread = self.world.units_in_use();
                    self.world.all_dirty();
                    let workloads = &self.world.workloads;
                    self.unfollowed.retain(|uid| workloads.exists(uid));
                    for (unit, ops) in std::mem::take(&mut self.unsettled) {
                        for op in ops {
                            match op.decision.filter(|_| left_out == 0) {
                                Some(id) => self.engine.written(id, Outcome::NotWritten),
                                // It may be about what could not be read.
                                None => self.wait_for_news(unit.clone(), op),
                            }
                        }
                    }
                    self.engine.forget_what_was_said();
                    self.counted.watches.repeat();
                    tracing::info!(left_out, "this replica leads");
                    return;
                }
                Err(error) => {
                    tracing::warn!(%error, "the Workloads cannot be listed; trying again");
                    let wait = self.ctx.rng.jitter(Duration::from_secs(1), 0.5);
                    self.ctx.clock.sleep(wait).await;
                }
            }
        }
    }

    /// Takes in what the API server has now, page by page, and tells how many objects could not be read. Where all could, what is not
    /// among them is gone, though the watch may not have said so yet.
    async fn list_workloads(&mut self) -> Result<usize, kube::Error> {
        let api = Api::<Workload>::all(self.ctx.clients.write.clone());
        let mut params = ListParams::default().limit(PAGE);
        let (mut left_out, mut named) = (0, BTreeSet::new());
        loop {
            let page = kit::watch::list_page(&api, &params).await?;
            left_out += page.left_out;
            for view in page.items {
                named.insert(crate::input::uid(&view.metadata));
                self.world.take_workload(&mut self.engine, view);
            }
            params.continue_token = page.next;
            if params.continue_token.is_none() {
                if let Some(as_of) = page.as_of.filter(|_| left_out == 0) {
                    self.world.drop_unnamed(&mut self.engine, &named, as_of);
                }
                return Ok(left_out);
            }
        }
    }

    fn decide(&mut self) {
        let begun = self.ctx.clock.monotonic();
        let decisions = self.engine.decide(self.ctx.clock.unix_millis());
        let took = self.ctx.clock.monotonic().saturating_duration_since(begun);
        for decision in decisions {
            match decision {
                Decision::Reserve(reserve) => {
                    self.mark(&reserve.workload);
                    if let Some(old) = self.reserves.insert(reserve.workload.clone(), reserve) {
                        self.engine.written(old.id, Outcome::Unsettled);
                    }
                }
                Decision::Evict(evict) => {
                    self.mark(&evict.victim);
                    if let Some(old) = self.evictions.insert(evict.victim.clone(), evict) {
                        self.engine.written(old.id, Outcome::Unsettled);
                    }
                }
                Decision::Replace(slice) => self.mark(&slice),
                Decision::SetUnplaced(unplaced) => {
                    if self.leads {
                        self.announce_unplaced(&unplaced);
                    }
                }
                Decision::Withdraw(withdraw) => {
                    self.mark(&withdraw.workload);
                    if let Some(old) = self.withdrawals.insert(withdraw.workload.clone(), withdraw) {
                        self.engine.written(old.id, Outcome::Unsettled);
                    }
                }
            }
        }
        for new in self.engine.take_reasons(self.late.room_for_reasons()) {
            let like_before = self.says_the_like(&new.workload, &new.reason);
            let delay = if like_before { REFRESH_DELAY } else { PENDING_DELAY };
            if let Some(unit) = self.world.unit_of_workload(&new.workload) {
                self.late.schedule(unit, begun + delay);
            }
        }
        self.counted.queues.cycles(&self.engine.take_cycle_counts(), took);
        for cohort in self.engine.take_changed_cohorts() {
            self.schedule(Unit::Cohort(cohort), STATUS_DELAY);
        }
        let (queues, mut local_queues) = self.engine.take_touched();
        local_queues.extend(self.world.tally.take_touched());
        for name in queues {
            for cohort in self.engine.cohorts_above(&name) {
                self.schedule(Unit::Cohort(cohort), STATUS_DELAY);
            }
            if !self.config.planted.is(Bug::ForgetQueueCounts) {
                self.schedule(Unit::ClusterQueue(name), STATUS_DELAY);
            }
        }
        let forgets = self.config.planted.is(Bug::ForgetToCount);
        for key in local_queues.into_iter().filter(|_| !forgets) {
            self.schedule(Unit::LocalQueue(key.into()), STATUS_DELAY);
        }
    }

    /// Whether a workload's status gives this kind of reason already, with other numbers perhaps.
    pub(super) fn says_the_like(&self, workload: &Uid, reason: &PendingReason) -> bool {
        self.world.workloads.says(workload, tokens::QUOTA_RESERVED, "False", reason.token())
    }

    fn mark(&mut self, workload: &Uid) {
        if let Some(unit) = self.world.unit_of_workload(workload) {
            self.world.dirty.insert(unit);
        }
    }

    /// Forgets what was tried and said in a unit of which nothing is left.
    fn forget(&mut self, unit: &Unit) {
        self.refused.remove(unit);
        self.told.remove(unit);
        self.compared.remove(unit);
        self.alarms.remove(unit);
    }

    fn schedule(&mut self, unit: Unit, delay: Duration) {
        self.late.schedule(unit, self.ctx.clock.monotonic() + delay);
    }
}
