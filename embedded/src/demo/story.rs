//! The story: four PyTorchJobs of two teams that share 24 GPUs.

use super::seen::Standing;

/// One step: what is submitted, and what must come of it.
pub(super) struct Step {
    /// What the reader is told beforehand.
    pub(super) headline: &'static str,
    /// A file of `examples/three-layers`, and its text.
    pub(super) manifest: Option<(&'static str, &'static str)>,
    /// What must come true, all of it.
    pub(super) until: &'static [Expectation],
}

/// Something that must come true about a job.
pub(super) struct Expectation {
    /// The job's namespace and name.
    pub(super) job: (&'static str, &'static str),
    /// The state it must reach.
    pub(super) reaches: Reaches,
}

/// A state of a job.
#[derive(Clone, Copy, Debug)]
pub(super) enum Reaches {
    /// Admitted, every one of so many pods bound by a plan that is carried out, and running.
    Running(usize),
    /// Not admitted, for this reason, with numbers in the message.
    Waiting(&'static str),
    /// Evicted by preemption for this reason, and without pods.
    Preempted(&'static str),
    /// Ended, with this reason.
    Finished(&'static str),
}

impl Reaches {
    /// Whether the job is there.
    pub(super) fn is_reached_by(self, standing: &Standing) -> bool {
        match self {
            Self::Running(pods) => {
                standing.admitted
                    && standing.pods == (pods, pods, pods)
                    && standing.plan.as_deref() == Some("Bound")
            }
            Self::Waiting(reason) => {
                let with_numbers = |message: &str| message.contains(|letter: char| letter.is_ascii_digit());
                let told = standing.quota.as_ref();
                told.is_some_and(|(reserved, why, message)| {
                    !reserved && why == reason && with_numbers(message)
                }) && standing.pods.1 == 0
            }
            Self::Preempted(reason) => {
                standing.preempted.as_ref().is_some_and(|(why, _)| why == reason)
                    && !standing.admitted
                    && standing.pods.0 == 0
            }
            Self::Finished(reason) => standing.finished.as_deref() == Some(reason),
        }
    }
}

const fn expect(namespace: &'static str, name: &'static str, reaches: Reaches) -> Expectation {
    Expectation { job: (namespace, name), reaches }
}

/// How many nodes the story needs.
pub(super) const NODES: usize = 3;

/// The GPUs of each node: its queues name this product.
pub(super) const PROFILE: &str = "8xA100";

/// All of them together.
pub(super) const GPUS: i64 = 24;

/// The queues of the story.
pub(super) const QUEUES: (&str, &str) =
    ("queues.yaml", include_str!("../../../examples/three-layers/queues.yaml"));

/// The jobs of the story, for the narrator to follow.
pub(super) const JOBS: [(&str, &str); 4] =
    [("team-a", "llama"), ("team-a", "bert"), ("team-a", "whisper"), ("team-b", "mixtral")];

/// The story.
pub(super) const STEPS: &[Step] = &[
    Step {
        headline: "team-a submits llama: 4 workers of 2 GPUs, all that team-a owns. One plan, then all four are bound.",
        manifest: Some(("1-llama.yaml", include_str!("../../../examples/three-layers/1-llama.yaml"))),
        until: &[expect("team-a", "llama", Reaches::Running(4))],
    },
    Step {
        headline: "team-a submits bert: 6 more GPUs, but it may borrow 4 at most. It waits, and says why.",
        manifest: Some(("2-bert.yaml", include_str!("../../../examples/three-layers/2-bert.yaml"))),
        until: &[expect("team-a", "bert", Reaches::Waiting("WaitingForQuota"))],
    },
    Step {
        headline: "team-a submits whisper: 4 GPUs fit into what it may borrow from team-b, so it passes bert.",
        manifest: Some(("3-whisper.yaml", include_str!("../../../examples/three-layers/3-whisper.yaml"))),
        until: &[expect("team-a", "whisper", Reaches::Running(2))],
    },
    Step {
        headline: "team-b submits mixtral: all 16 GPUs that team-b owns. What whisper borrowed is reclaimed.",
        manifest: Some(("4-mixtral.yaml", include_str!("../../../examples/three-layers/4-mixtral.yaml"))),
        until: &[
            expect("team-a", "whisper", Reaches::Preempted("InCohortReclamation")),
            expect("team-b", "mixtral", Reaches::Running(4)),
        ],
    },
    Step {
        headline: "llama ends: its 8 GPUs are team-a's again, and bert gets its turn.",
        manifest: None,
        until: &[
            expect("team-a", "llama", Reaches::Finished("Succeeded")),
            expect("team-a", "bert", Reaches::Running(3)),
        ],
    },
    Step {
        headline: "bert and mixtral end, and whisper runs again.",
        manifest: None,
        until: &[
            expect("team-a", "bert", Reaches::Finished("Succeeded")),
            expect("team-b", "mixtral", Reaches::Finished("Succeeded")),
            expect("team-a", "whisper", Reaches::Running(2)),
        ],
    },
];
