//! The domains of a topology, level by level.

use std::ops::Range;
use std::sync::Arc;

/// Domains of one level, ordered by all their values from the top level down.
#[derive(Default)]
pub(super) struct Level {
    /// Index into the level above; 0 at the top.
    pub(super) parent: Vec<u32>,
    /// Indices into the level below; empty at the lowest.
    pub(super) children: Vec<Range<u32>>,
    /// This level's value.
    pub(super) value: Vec<Arc<str>>,
}

impl Level {
    pub(super) fn len(&self) -> usize {
        self.parent.len()
    }
}

/// The domains. Rebuilt when nodes come or go; everything else changes numbers only.
#[derive(Default)]
pub(super) struct Tree {
    /// From the top down; the last one holds the leaves.
    pub(super) levels: Vec<Level>,
}

impl Tree {
    /// From the leaves' values, one for each level, sorted and distinct.
    pub(super) fn new(depth: usize, leaves: &[Vec<Arc<str>>]) -> Self {
        let mut levels: Vec<Level> = (0..depth).map(|_| Level::default()).collect();
        for (at, path) in leaves.iter().enumerate() {
            let shared = match at.checked_sub(1).map(|before| &leaves[before]) {
                Some(before) => path.iter().zip(before).take_while(|(a, b)| a == b).count(),
                None => 0,
            };
            for depth in shared..depth {
                let index = levels[depth].len() as u32;
                let parent = match depth.checked_sub(1) {
                    Some(above) => {
                        let parent = levels[above].len() as u32 - 1;
                        levels[above].children[parent as usize].end = index + 1;
                        parent
                    }
                    None => 0,
                };
                let first_child = levels.get(depth + 1).map_or(0, |below| below.len() as u32);
                let level = &mut levels[depth];
                level.parent.push(parent);
                level.children.push(first_child..first_child);
                level.value.push(Arc::clone(&path[depth]));
            }
        }
        Self { levels }
    }

    /// Index of the lowest level.
    pub(super) fn lowest(&self) -> usize {
        self.levels.len() - 1
    }

    pub(super) fn children(&self, level: usize, domain: u32) -> Range<u32> {
        self.levels[level].children[domain as usize].clone()
    }

    /// The domain of a level that a leaf is in.
    pub(super) fn ancestor(&self, leaf: u32, level: usize) -> u32 {
        (level + 1..self.levels.len()).rev().fold(leaf, |domain, at| self.levels[at].parent[domain as usize])
    }

    /// The domains of level `below` that are in a domain of level `level`.
    pub(super) fn within(&self, level: usize, domain: u32, below: usize) -> Range<u32> {
        (level..below).fold(domain..domain + 1, |range, at| {
            let children = &self.levels[at].children;
            children[range.start as usize].start..children[range.end as usize - 1].end
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn children_and_leaves_are_ranges() {
        let leaves: Vec<Vec<Arc<str>>> = ["a/x/1", "a/x/2", "a/y/1", "b/x/1", "b/x/3"]
            .map(|path| path.split('/').map(Arc::from).collect())
            .into();
        let tree = Tree::new(3, &leaves);
        assert_eq!(tree.levels.iter().map(Level::len).collect::<Vec<_>>(), [2, 3, 5]);
        assert_eq!([tree.children(0, 0), tree.children(0, 1), tree.children(1, 1)], [0..2, 2..3, 2..3]);
        assert_eq!([tree.within(0, 0, 2), tree.within(0, 1, 2), tree.within(2, 4, 2)], [0..3, 3..5, 4..5]);
        assert_eq!([tree.ancestor(2, 0), tree.ancestor(2, 1), tree.ancestor(4, 1)], [0, 1, 2]);
    }
}
