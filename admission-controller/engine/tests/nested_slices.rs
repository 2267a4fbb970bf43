//! Slices within slices on random clusters of up to twelve nodes, judged by trying every number of pods on every node.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use std::collections::BTreeSet;

use quota_engine::topology::*;
use support::hosts::{Cluster, Host, LEVELS, request};

const CLUSTERS: u64 = 4_000;

/// Sizes of slices by level: block, rack, host. 1: none there.
type Sizes = [i64; 3];

/// How many pods a domain can have, no slice being cut: of every number on every node.
fn sums(cluster: &Cluster, domain: &[String], gpu: i64, sizes: &Sizes) -> BTreeSet<i64> {
    let inside = |host: &&Host| host.path.starts_with(domain);
    let level = domain.len();
    let all: BTreeSet<i64> = if level == LEVELS.len() {
        cluster.hosts.iter().filter(inside).flat_map(|host| 0..=cluster.fits(host, gpu)).collect()
    } else {
        let children: BTreeSet<&[String]> =
            cluster.hosts.iter().filter(inside).map(|host| &host.path[..=level]).collect();
        children.into_iter().fold([0].into(), |sums_so_far, child| {
            let more = sums(cluster, child, gpu, sizes);
            sums_so_far.iter().flat_map(|sum| more.iter().map(move |more| sum + more)).collect()
        })
    };
    let size = level.checked_sub(1).map_or(1, |level| sizes[level]);
    all.into_iter().filter(|pods| pods % size == 0).collect()
}

/// Slices at two or three levels, each of whole slices of the next.
fn random_sizes(rng: &mut fastrand::Rng) -> Sizes {
    let host = rng.i64(1..=2);
    let rack = host * rng.i64(1..=3);
    let block = rack * rng.i64(1..=2);
    match rng.u8(0..4) {
        0 => [1, rack, host],
        1 => [block, 1, host],
        2 => [block, rack, 1],
        _ => [block, rack, host],
    }
}

#[test]
fn slices_within_slices_are_found_if_there_are_any_and_none_is_cut() {
    let (mut refused, mut placed) = (0, 0);
    for seed in 0..CLUSTERS {
        let mut rng = fastrand::Rng::with_seed(seed);
        let cluster = Cluster::random(&mut rng);
        let mut index = cluster.index(&mut rng);
        let sizes = random_sizes(&mut rng);
        let layers: Vec<SliceLayer> = LEVELS
            .iter()
            .zip(sizes)
            .filter(|(_, size)| *size > 1)
            .map(|(level, size)| SliceLayer { level: (*level).into(), size })
            .collect();
        if layers.len() < 2 {
            continue;
        }
        let outermost = LEVELS.iter().position(|level| **level == *layers[0].level).unwrap();
        let level = rng.usize(..=outermost);
        let spread = match rng.u8(0..4) {
            0 | 1 => Spread::Required(LEVELS[level].into()),
            2 => Spread::Preferred(LEVELS[level].into()),
            _ => Spread::SlicesOnly,
        };
        let gpu = rng.i64(0..=3);
        let count = layers[0].size * rng.i64(1..=3);
        let request = PodSetRequest { layers, ..request(count, gpu, spread) };
        let rules = Rules { balanced: rng.bool(), ..Rules::default() };

        let domains = |level: usize| -> BTreeSet<&[String]> {
            cluster.hosts.iter().map(|host| &host.path[..=level]).collect()
        };
        let holds = |domain: &[String]| sums(&cluster, domain, gpu, &sizes).contains(&count);
        let possible = match request.spread {
            Spread::Required(_) => domains(level).into_iter().any(holds),
            _ => holds(&[]),
        };
        let given = index.place(std::slice::from_ref(&request), rules, View::Now).into_assignments();
        let what = || format!("seed {seed}: {cluster:?} {request:?} {rules:?} {given:?}");
        assert_eq!(given.is_ok(), possible, "{}", what());
        let Ok([given]) = given.as_deref() else {
            refused += 1;
            continue;
        };
        placed += 1;
        for (slice_level, size) in sizes.into_iter().enumerate() {
            cluster.check(given, &request, slice_level, size);
        }
        match request.spread {
            Spread::Required(_) => assert_eq!(cluster.used(given, level), 1, "{}", what()),
            Spread::Preferred(_) => {
                let nearest = (0..=level).rev().find(|level| domains(*level).into_iter().any(holds));
                if let Some(nearest) = nearest.filter(|_| !rules.balanced) {
                    assert_eq!(cluster.used(given, nearest), 1, "{}", what());
                }
            }
            _ => {}
        }
    }
    assert!(
        refused > 500 && placed > 500,
        "too few clusters say anything: {refused} refused, {placed} placed"
    );
}
