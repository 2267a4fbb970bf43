//! What goes wrong in an episode, drawn from its seed.

use std::time::Duration;

use cluster_sim::faults::WebhookFault;
use fastrand::Rng;

use super::scenario::{CALM_AFTER, Node, Swarm, instant};
use crate::stack::Program;

/// Something that goes wrong.
#[derive(Clone, Debug)]
pub enum Trouble {
    /// Requests fail, are slow, or are carried out although the answer is lost; until the given time has passed.
    Api {
        /// For how long.
        lasts: Duration,
        /// Which kind of failure, and how often in a thousand requests.
        kind: ApiTrouble,
        /// Out of a thousand requests, how many are hit.
        permille: u32,
    },
    /// The watches of the programs are disturbed.
    Watches(WatchTrouble),
    /// Lists have many pages, as in a large cluster; all watches have to list anew at once, and what their first pages showed is
    /// forgotten by the server before the last is read.
    LongLists {
        /// For how long.
        lasts: Duration,
        /// Objects of a page.
        page: usize,
    },
    /// A program is killed right before or right after one of its next writes, and started again later.
    Crash {
        /// Which.
        program: Program,
        /// After how many of its further writes.
        after_writes: u32,
        /// Whether that write still reaches the server.
        applied: bool,
        /// How long it stays away.
        away: Duration,
    },
    /// The leading replica of a program stands still, then goes on as if nothing had been.
    Pause {
        /// Which.
        program: Program,
        /// For how long.
        lasts: Duration,
    },
    /// The leading replica of a program is asked to stop, as by SIGTERM; another is started later.
    AskedToStop {
        /// Which.
        program: Program,
        /// For how long none takes its place.
        away: Duration,
    },
    /// The wall clock of a leader's machine is set ahead or back, and right again later.
    ClockSet {
        /// Whose.
        program: Program,
        /// How far ahead, in seconds; back, if negative.
        ahead: i64,
        /// For how long.
        lasts: Duration,
    },
    /// admission-controller's webhooks cannot be reached, or answer late, some beyond the time that the API server gives them.
    Webhooks {
        /// For how long.
        lasts: Duration,
        /// Which of the two.
        fault: WebhookFault,
    },
    /// Nobody makes the pods of jobs, nor tells how they end.
    JobControllersAway {
        /// For how long.
        lasts: Duration,
    },
    /// A node's kubelet restarts.
    KubeletRestart {
        /// Index into [`Scenario::nodes`](super::scenario::Scenario::nodes).
        node: usize,
    },
    /// A GPU reports a critical error, and recovers later.
    GpuLoss {
        /// Index into [`Scenario::nodes`](super::scenario::Scenario::nodes).
        node: usize,
        /// Index of the GPU.
        gpu: usize,
        /// How long it is gone.
        lasts: Duration,
    },
    /// A node is not ready for a while.
    NodeNotReady {
        /// Index into [`Scenario::nodes`](super::scenario::Scenario::nodes).
        node: usize,
        /// For how long.
        lasts: Duration,
    },
    /// A node is switched off and its object deleted; it comes back later.
    NodeGone {
        /// Index into [`Scenario::nodes`](super::scenario::Scenario::nodes).
        node: usize,
        /// For how long.
        lasts: Duration,
    },
    /// A node has a taint for a while.
    Taint {
        /// Index into [`Scenario::nodes`](super::scenario::Scenario::nodes).
        node: usize,
        /// For how long.
        lasts: Duration,
    },
}

/// How requests fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ApiTrouble {
    /// The write is refused with this status.
    Refused(u16),
    /// The answer to a write comes late.
    Slow,
    /// What is written of Workloads that are there arrives late.
    SlowAdmissions,
    /// The write does not arrive.
    Lost,
    /// The write is carried out, the answer is lost.
    LostAnswer,
    /// The write is carried out, the answer is 504.
    TimedOut,
    /// 409, whatever the resourceVersion.
    Conflict,
    /// Reads and lists are refused with 503, watches are not opened.
    Unreadable,
    /// Lists that may be old are.
    StaleLists,
}

/// How watches are disturbed. But for those that say nothing any more, none is late by more than programs may be mistaken
/// ([`GRACE`](super::world::GRACE)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WatchTrouble {
    /// They are closed, and may be resumed.
    Closed,
    /// They are closed, and the history is gone as well: resuming answers 410.
    Expired,
    /// What they tell comes so much later.
    Late(Duration),
    /// What they tell of Workloads does, while everything else is seen at once.
    LateWorkloads(Duration),
    /// Events come twice.
    Twice,
    /// Those of jobs, pods and Workloads say nothing any more, though they seem to be open, until whoever reads them gives them up.
    Silent,
}

/// What goes wrong, in no order of time.
pub(super) fn draw(rng: &mut Rng, swarm: &Swarm, nodes: &[Node]) -> Vec<(Duration, Trouble)> {
    let mut trouble = Vec::new();
    let any_program = |rng: &mut Rng| match rng.u8(..3) {
        0 => Program::AdmissionController,
        1 => Program::GangScheduler,
        _ => Program::NodeAgent(rng.usize(..nodes.len())),
    };
    let mut often =
        |rng: &mut Rng, on: bool, most: usize, mut draw: Box<dyn FnMut(&mut Rng) -> Trouble + '_>| {
            for _ in 0..if on { rng.usize(1..=most) } else { 0 } {
                let at = instant(rng, CALM_AFTER.mul_f64(0.9));
                let what = draw(rng);
                trouble.push((at, what));
            }
        };
    often(rng, swarm.api_trouble, 6, Box::new(api_trouble));
    often(rng, swarm.api_trouble, 3, Box::new(|rng| Trouble::Watches(watch_trouble(rng))));
    often(
        rng,
        swarm.crashes,
        5,
        Box::new(|rng| Trouble::Crash {
            program: any_program(rng),
            after_writes: rng.u32(..12),
            applied: rng.bool(),
            away: Duration::from_secs(rng.u64(1..=60)),
        }),
    );
    often(
        rng,
        swarm.pauses,
        3,
        Box::new(|rng| Trouble::Pause {
            program: if rng.bool() { Program::AdmissionController } else { Program::GangScheduler },
            lasts: Duration::from_secs(rng.u64(1..=60)),
        }),
    );
    often(
        rng,
        swarm.hardware,
        4,
        Box::new(|rng| {
            let node = rng.usize(..nodes.len());
            let lasts = Duration::from_secs(rng.u64(5..=120));
            match rng.u8(..5) {
                0 => Trouble::KubeletRestart { node },
                4 => Trouble::NodeGone { node, lasts: lasts * 2 },
                1 => Trouble::Taint { node, lasts },
                2 => Trouble::GpuLoss {
                    node,
                    gpu: rng.usize(..usize::try_from(nodes[node].gpus).unwrap_or(1)),
                    // Nobody resets a broken GPU at once.
                    lasts: lasts * 5,
                },
                _ => Trouble::NodeNotReady { node, lasts },
            }
        }),
    );
    trouble
}

fn api_trouble(rng: &mut Rng) -> Trouble {
    let kinds = [
        ApiTrouble::Refused([429, 500, 503, 504][rng.usize(..4)]),
        ApiTrouble::Slow,
        ApiTrouble::Lost,
        ApiTrouble::LostAnswer,
        ApiTrouble::TimedOut,
        ApiTrouble::Conflict,
        ApiTrouble::Unreadable,
        ApiTrouble::StaleLists,
    ];
    Trouble::Api {
        lasts: Duration::from_secs(rng.u64(1..=60)),
        kind: kinds[rng.usize(..kinds.len())],
        permille: [20, 100, 500][rng.usize(..3)],
    }
}

fn watch_trouble(rng: &mut Rng) -> WatchTrouble {
    let late = Duration::from_millis(rng.u64(1..=5_000));
    match rng.u8(..6) {
        0 => WatchTrouble::Closed,
        1 => WatchTrouble::Expired,
        2 => WatchTrouble::Late(late),
        3 | 4 => WatchTrouble::LateWorkloads(late),
        _ => WatchTrouble::Twice,
    }
}
