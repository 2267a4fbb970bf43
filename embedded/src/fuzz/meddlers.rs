//! Users who meddle with Workloads, which others made for their jobs.

use std::time::Duration;

use fastrand::Rng;

use super::scenario::{Act, CALM_AFTER, Queue, Sideline, instant};

/// What such users do.
pub(super) const MEDDLERS: Sideline = Sideline { salt: 0x6d65_6464, one_in: 3, one: meddles };

/// What may be done to a Workload by hand.
#[derive(Clone, Copy, Debug)]
pub enum Meddling {
    /// It is deactivated (`spec.active`), whatever it does.
    Deactivate,
    /// Whoever is deactivated is made active again.
    Reactivate,
    /// It is deleted, whatever it holds.
    Delete,
}

/// One Workload after another, and in the end nobody stays deactivated but by chance.
fn meddles(rng: &mut Rng, _: usize, _: &Queue) -> Vec<(Duration, Act)> {
    let mut story = Vec::new();
    for _ in 0..rng.usize(1..=3) {
        let (at, index) = (instant(rng, CALM_AFTER.mul_f64(0.8)), rng.usize(..1000));
        if rng.u8(..3) == 0 {
            story.push((at, Act::Meddle { index, how: Meddling::Delete }));
            continue;
        }
        story.push((at, Act::Meddle { index, how: Meddling::Deactivate }));
        if rng.u8(..4) != 0 {
            let later = at + instant(rng, Duration::from_secs(120));
            story.push((later, Act::Meddle { index, how: Meddling::Reactivate }));
        }
    }
    story
}
