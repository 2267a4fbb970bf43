//! The binaries a run may use, and where they are.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

/// The library with NVML's C ABI over eight fake GPUs: node-agent loads it as it would load NVIDIA's.
pub const FAKE_NVML: &str = "libnvidia_ml.so";

/// Binaries, and definitions of foreign kinds, by name. What is missing makes tests skip, never fail.
#[derive(Clone, Debug, Default)]
pub struct Tools(BTreeMap<String, PathBuf>);

impl Tools {
    /// Reads the lines of e2e/real/build, then looks in `folder` and along PATH for the rest.
    pub fn read(list: &Path, folder: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(list).with_context(|| format!("reading {}", list.display()))?;
        let mut tools: BTreeMap<String, PathBuf> = text
            .lines()
            .filter_map(|line| line.split_once(' '))
            .map(|(name, path)| (name.to_owned(), PathBuf::from(path.trim())))
            .collect();
        for program in ["admission-controller", "gang-scheduler", "node-agent", "trireme", FAKE_NVML] {
            let path = folder.join(program);
            if path.is_file() {
                tools.insert(program.to_owned(), path);
            }
        }
        let path = std::env::var_os("PATH").unwrap_or_default();
        for name in ["containerd", "ctr", "runc", "tar", "ip", "unshare", "nsenter"] {
            // Debian keeps runc in /usr/sbin, which a user's PATH may lack.
            let mut places =
                std::env::split_paths(&path).chain([PathBuf::from("/usr/sbin"), PathBuf::from("/sbin")]);
            if let Some(found) = places.by_ref().map(|place| place.join(name)).find(|file| file.is_file()) {
                tools.insert(name.to_owned(), found);
            }
        }
        Ok(Self(tools))
    }

    /// Definitions of kinds that are not ours, from the modules that e2e/real/build knows.
    pub fn definitions(&self) -> Vec<PathBuf> {
        let found = self.0.iter().filter(|(name, _)| name.starts_with("definitions/"));
        found.map(|(_, path)| path.clone()).collect()
    }

    /// The same without one of them, as on a machine that lacks it.
    #[must_use]
    pub fn without(mut self, name: &str) -> Self {
        self.0.remove(name);
        self
    }

    /// Where a binary is, or why tests that need it are skipped.
    pub fn get(&self, name: &str) -> Result<&Path> {
        self.0.get(name).map(PathBuf::as_path).with_context(|| format!("{name} is not there"))
    }
}
