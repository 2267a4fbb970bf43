//! What a process has used, as Linux counts it.

use serde::Serialize;

/// The unit of the times in `/proc/PID/stat`: USER_HZ, 100 on every Linux.
const TICKS_PER_SECOND: f64 = 100.0;

/// Processor time and memory.
#[derive(Clone, Copy, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Usage {
    /// User and system time.
    pub(crate) cpu_seconds: f64,
    /// The most memory that was ever resident.
    pub(crate) peak_mb: f64,
    /// What is resident now.
    pub(crate) resident_mb: f64,
}

impl Usage {
    /// Of a process that runs; `None` when it has ended.
    pub(crate) fn of(pid: u32) -> Option<Self> {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The name in brackets may hold anything.
        let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
        let ticks = |index: usize| fields.get(index)?.parse::<f64>().ok();
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        let mb = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name))?;
            line.split_whitespace().next()?.parse::<f64>().ok().map(|kib| kib / 1024.0)
        };
        Some(Self {
            cpu_seconds: (ticks(11)? + ticks(12)?) / TICKS_PER_SECOND,
            peak_mb: mb("VmHWM:")?,
            resident_mb: mb("VmRSS:")?,
        })
    }

    /// What was used since then; memory as it is now.
    pub(crate) fn since(self, before: Self) -> Self {
        Self { cpu_seconds: self.cpu_seconds - before.cpu_seconds, ..self }
    }

    /// Of two processes together.
    pub(crate) fn plus(self, other: Self) -> Self {
        Self {
            cpu_seconds: self.cpu_seconds + other.cpu_seconds,
            peak_mb: self.peak_mb + other.peak_mb,
            resident_mb: self.resident_mb + other.resident_mb,
        }
    }
}
