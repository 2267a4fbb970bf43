//! How the GPUs of a node are joined, and what a set of them is worth.

use std::collections::BTreeMap;
use std::fmt;

/// Where the PCIe paths of two GPUs meet, from near to far, in the words of `nvidia-smi topo -m`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PciePath {
    /// On one board.
    SameBoard,
    /// One PCIe switch.
    Pix,
    /// Several PCIe switches below one root port.
    Pxb,
    /// One host bridge.
    Phb,
    /// One NUMA node.
    Node,
    /// Across sockets.
    Sys,
}

impl PciePath {
    /// The word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::SameBoard => "BOARD",
            Self::Pix => "PIX",
            Self::Pxb => "PXB",
            Self::Phb => "PHB",
            Self::Node => "NODE",
            Self::Sys => "SYS",
        }
    }

    /// Points of the path alone, as NVIDIA's go-gpuallocator gives them.
    fn score(self) -> u64 {
        match self {
            Self::Sys => 10,
            Self::Node => 20,
            Self::Phb => 30,
            Self::Pxb => 40,
            Self::Pix => 50,
            Self::SameBoard => 60,
        }
    }
}

impl fmt::Display for PciePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What joins two GPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Link {
    /// Their PCIe path.
    pub path: PciePath,
    /// NVLinks between them: direct ones, else as many as both have to the NVSwitches.
    pub nvlinks: u32,
}

impl Link {
    /// 100 points an NVLink and up to 60 for the path, so that any NVLink beats any path (go-gpuallocator's rule). Links
    /// through NVSwitches count too, which that library leaves out.
    pub fn score(self) -> u64 {
        u64::from(self.nvlinks) * 100 + self.path.score()
    }
}

/// The links between all GPUs of a node, by index.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Links(BTreeMap<(u32, u32), Link>);

impl Links {
    /// Sets what joins two different GPUs.
    pub fn insert(&mut self, a: u32, b: u32, link: Link) {
        if a != b {
            self.0.insert((a.min(b), a.max(b)), link);
        }
    }

    /// What joins two GPUs, if it is known.
    pub fn between(&self, a: u32, b: u32) -> Option<Link> {
        self.0.get(&(a.min(b), a.max(b))).copied()
    }

    /// Points of a pair; an unknown pair has none.
    pub fn score(&self, a: u32, b: u32) -> u64 {
        self.between(a, b).map_or(0, Link::score)
    }

    /// Points of all pairs of a set.
    pub fn total(&self, set: &[u32]) -> u64 {
        set.iter()
            .enumerate()
            .flat_map(|(at, a)| set[at + 1..].iter().map(move |b| (*a, *b)))
            .map(|(a, b)| self.score(a, b))
            .sum()
    }

    /// The links of one GPU, by the other's index.
    pub fn of(&self, gpu: u32) -> impl Iterator<Item = (u32, Link)> {
        self.0.iter().filter_map(move |((a, b), link)| match (*a == gpu, *b == gpu) {
            (true, _) => Some((*b, *link)),
            (_, true) => Some((*a, *link)),
            _ => None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pair_is_the_same_from_both_sides_and_nvlink_beats_every_path() {
        let mut links = Links::default();
        links.insert(3, 1, Link { path: PciePath::Sys, nvlinks: 1 });
        links.insert(1, 2, Link { path: PciePath::SameBoard, nvlinks: 0 });
        links.insert(2, 2, Link { path: PciePath::Pix, nvlinks: 9 });
        assert_eq!(links.score(1, 3), 110);
        assert!(links.score(1, 3) > links.score(2, 1));
        assert_eq!(links.total(&[1, 2, 3]), 170);
        assert_eq!(links.of(1).map(|(other, _)| other).collect::<Vec<_>>(), [2, 3]);
    }
}
