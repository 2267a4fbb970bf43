//! Whether a GPU may be given out: a pure function of what was, what happened, and the policy.
//!
//! A new rule is an arm of [`after_signal`] or [`after_probe`], a token in [`Reason`], a row of the table tests below and a line in
//! `docs/node-agent.md`.

mod xid;

use std::collections::BTreeSet;

use crate::driver::{DriverError, Probe};

pub use xid::{Action, Xid, xid};

/// XIDs that a program causes and the GPU survives (NVIDIA's device plugin ignores the same six).
pub const APPLICATION_XIDS: [u32; 6] = [13, 31, 43, 45, 68, 109];

/// Which XIDs count.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct XidPolicy {
    /// Whether any does.
    pub enabled: bool,
    /// Those that do not.
    pub ignored: BTreeSet<u32>,
}

impl Default for XidPolicy {
    fn default() -> Self {
        Self { enabled: true, ignored: APPLICATION_XIDS.into() }
    }
}

/// A health-check variable that cannot be understood.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{variable}: `{entry}` is neither an XID nor `all` nor `xids`: give numbers separated by commas")]
pub struct PolicyError {
    /// The environment variable.
    pub variable: &'static str,
    /// The entry that is wrong.
    pub entry: String,
}

impl XidPolicy {
    /// The policy of the device plugin's two variables: `DP_DISABLE_HEALTHCHECKS` (`all` and `xids` switch all off,
    /// numbers are ignored besides the six) and `DP_ENABLE_HEALTHCHECKS` (numbers that count after all, or `all`).
    /// Enabling wins.
    ///
    /// # Errors
    /// Names the variable and the entry that is none of these.
    pub fn from_variables(disable: Option<&str>, enable: Option<&str>) -> Result<Self, PolicyError> {
        let mut policy = Self::default();
        for entry in entries("DP_DISABLE_HEALTHCHECKS", disable) {
            match entry? {
                Entry::All => policy.enabled = false,
                Entry::Xid(code) => {
                    policy.ignored.insert(code);
                }
            }
        }
        for entry in entries("DP_ENABLE_HEALTHCHECKS", enable) {
            match entry? {
                Entry::All => policy = Self { enabled: true, ignored: BTreeSet::new() },
                Entry::Xid(code) => {
                    policy.ignored.remove(&code);
                }
            }
        }
        Ok(policy)
    }

    /// Whether this XID makes a GPU unhealthy.
    pub fn counts(&self, code: u32) -> bool {
        self.enabled && !self.ignored.contains(&code)
    }
}

enum Entry {
    All,
    Xid(u32),
}

fn entries(variable: &'static str, value: Option<&str>) -> impl Iterator<Item = Result<Entry, PolicyError>> {
    let list = value.unwrap_or_default().to_lowercase();
    let entries: Vec<_> =
        list.split(',').map(str::trim).filter(|entry| !entry.is_empty()).map(str::to_owned).collect();
    entries.into_iter().map(move |entry| match entry.as_str() {
        "all" | "xids" => Ok(Entry::All),
        number => number.parse().map(Entry::Xid).map_err(|_| PolicyError { variable, entry: entry.clone() }),
    })
}

/// Why a GPU may not be given out. The tokens appear in conditions, events and metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reason {
    /// A critical XID, and no good probe since.
    Xid,
    /// An uncorrectable memory error, and no good probe since.
    DoubleBitEcc,
    /// It fell off the bus, or is not there any more.
    GpuLost,
    /// The driver as a whole does not answer.
    DriverUnavailable,
    /// The driver wants it reset first.
    ResetPending,
    /// A row remapping failed: to be replaced.
    RowRemapFailure,
}

impl Reason {
    /// The token.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Xid => "Xid",
            Self::DoubleBitEcc => "DoubleBitEcc",
            Self::GpuLost => "GpuLost",
            Self::DriverUnavailable => "DriverUnavailable",
            Self::ResetPending => "ResetPending",
            Self::RowRemapFailure => "RowRemapFailure",
        }
    }

    /// The reason with this token.
    pub fn from_token(token: &str) -> Option<Self> {
        const ALL: [Reason; 6] = [
            Reason::Xid,
            Reason::DoubleBitEcc,
            Reason::GpuLost,
            Reason::DriverUnavailable,
            Reason::ResetPending,
            Reason::RowRemapFailure,
        ];
        ALL.into_iter().find(|reason| reason.as_str() == token)
    }
}

/// What is wrong with a GPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ailment {
    /// The newest reason.
    pub reason: Reason,
    /// The XID that began it, if one did.
    pub xid: Option<u32>,
    /// Good probes in a row since.
    pub good_probes: u32,
}

/// Whether a GPU may be given out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Health {
    /// It may.
    Healthy,
    /// It may not.
    Unhealthy(Ailment),
}

impl Health {
    /// Whether it may.
    pub fn is_healthy(&self) -> bool {
        *self == Self::Healthy
    }

    /// What is wrong, if anything.
    pub fn ailment(&self) -> Option<&Ailment> {
        match self {
            Self::Healthy => None,
            Self::Unhealthy(ailment) => Some(ailment),
        }
    }

    fn ill(&self, reason: Reason, xid: Option<u32>) -> Self {
        let earlier = self.ailment().and_then(|ailment| ailment.xid);
        Self::Unhealthy(Ailment { reason, xid: xid.or(earlier), good_probes: 0 })
    }
}

/// Something the driver reported about one GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// An XID.
    Xid(u32),
    /// An uncorrectable memory error.
    DoubleBitEcc,
}

/// The health after a signal.
pub fn after_signal(health: &Health, signal: Signal, policy: &XidPolicy) -> Health {
    match signal {
        Signal::Xid(code) if !policy.counts(code) => health.clone(),
        Signal::Xid(code) => health.ill(Reason::Xid, Some(code)),
        Signal::DoubleBitEcc if !policy.enabled => health.clone(),
        Signal::DoubleBitEcc => health.ill(Reason::DoubleBitEcc, None),
    }
}

/// The health after a probe; `needed` good ones in a row make an unhealthy GPU healthy again.
pub fn after_probe(health: &Health, answer: &Result<Probe, DriverError>, needed: u32) -> Health {
    match (health, answer) {
        (_, Err(DriverError::GpuLost | DriverError::NotFound)) => health.ill(Reason::GpuLost, None),
        (_, Err(_)) => health.ill(Reason::DriverUnavailable, None),
        (_, Ok(probe)) if probe.remap_failure => health.ill(Reason::RowRemapFailure, None),
        (_, Ok(probe)) if probe.reset_pending => health.ill(Reason::ResetPending, None),
        (Health::Healthy, Ok(_)) => Health::Healthy,
        // A remapping that waits for a reset is no reason to stop a healthy GPU's work (NVIDIA: reset at the next
        // opportunity), but an ill one has that opportunity now.
        (Health::Unhealthy(_), Ok(probe)) if probe.remap_pending => health.ill(Reason::ResetPending, None),
        (Health::Unhealthy(ailment), Ok(_)) if ailment.good_probes + 1 < needed => {
            Health::Unhealthy(Ailment { good_probes: ailment.good_probes + 1, ..ailment.clone() })
        }
        (Health::Unhealthy(_), Ok(_)) => Health::Healthy,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ill(reason: Reason, xid: Option<u32>, good_probes: u32) -> Health {
        Health::Unhealthy(Ailment { reason, xid, good_probes })
    }

    #[test]
    fn signals() {
        let policy = XidPolicy::default();
        let off = XidPolicy { enabled: false, ..XidPolicy::default() };
        let earlier = ill(Reason::Xid, Some(48), 2);
        let cases = [
            ("an application's XID", Health::Healthy, Signal::Xid(31), &policy, Health::Healthy),
            ("an application's XID later", earlier.clone(), Signal::Xid(13), &policy, earlier.clone()),
            ("a critical XID", Health::Healthy, Signal::Xid(48), &policy, ill(Reason::Xid, Some(48), 0)),
            (
                "an XID nobody knows",
                Health::Healthy,
                Signal::Xid(999),
                &policy,
                ill(Reason::Xid, Some(999), 0),
            ),
            (
                "the newest XID counts",
                earlier.clone(),
                Signal::Xid(79),
                &policy,
                ill(Reason::Xid, Some(79), 0),
            ),
            ("checks are off", Health::Healthy, Signal::Xid(79), &off, Health::Healthy),
            (
                "a memory error",
                Health::Healthy,
                Signal::DoubleBitEcc,
                &policy,
                ill(Reason::DoubleBitEcc, None, 0),
            ),
            ("a memory error, off", Health::Healthy, Signal::DoubleBitEcc, &off, Health::Healthy),
            (
                "its XID is kept",
                earlier,
                Signal::DoubleBitEcc,
                &policy,
                ill(Reason::DoubleBitEcc, Some(48), 0),
            ),
        ];
        for (name, before, signal, policy, after) in cases {
            assert_eq!(after_signal(&before, signal, policy), after, "{name}");
        }
    }

    #[test]
    fn probes() {
        let fine = Ok(Probe::default());
        let reset = Ok(Probe { reset_pending: true, ..Probe::default() });
        let remap = Ok(Probe { remap_pending: true, ..Probe::default() });
        let failed = Ok(Probe { remap_failure: true, reset_pending: true, ..Probe::default() });
        let xid = |good| ill(Reason::Xid, Some(95), good);
        let cases = [
            ("lost", Health::Healthy, Err(DriverError::GpuLost), ill(Reason::GpuLost, None, 0)),
            ("gone", xid(2), Err(DriverError::NotFound), ill(Reason::GpuLost, Some(95), 0)),
            (
                "driver away",
                xid(0),
                Err(DriverError::DriverNotLoaded),
                ill(Reason::DriverUnavailable, Some(95), 0),
            ),
            ("remap failure first", Health::Healthy, failed, ill(Reason::RowRemapFailure, None, 0)),
            ("reset pending", xid(1), reset, ill(Reason::ResetPending, Some(95), 0)),
            ("healthy stays", Health::Healthy, fine.clone(), Health::Healthy),
            ("healthy works on with a remap", Health::Healthy, remap.clone(), Health::Healthy),
            ("ill waits for the remap", xid(2), remap, ill(Reason::ResetPending, Some(95), 0)),
            ("first good one", xid(0), fine.clone(), xid(1)),
            ("second good one", xid(1), fine.clone(), xid(2)),
            ("third good one", xid(2), fine, Health::Healthy),
        ];
        for (name, before, answer, after) in cases {
            assert_eq!(after_probe(&before, &answer, 3), after, "{name}");
        }
    }

    #[test]
    fn variables_of_the_device_plugin() {
        let counts = |disable, enable, code| {
            XidPolicy::from_variables(disable, enable).map(|policy| policy.counts(code)).unwrap()
        };
        assert!(!counts(None, None, 13));
        assert!(counts(None, None, 79));
        assert!(!counts(Some("79, 48"), None, 79));
        assert!(!counts(Some("xids"), None, 79));
        assert!(!counts(Some("ALL"), None, 79));
        assert!(counts(Some("79"), Some("79,13"), 79));
        assert!(counts(None, Some("13"), 13));
        assert!(counts(Some("all"), Some("all"), 13));
        let error = XidPolicy::from_variables(Some("79,seven"), None).unwrap_err();
        assert_eq!((error.variable, error.entry.as_str()), ("DP_DISABLE_HEALTHCHECKS", "seven"));
    }

    #[test]
    fn every_ignored_xid_is_an_applications() {
        for code in APPLICATION_XIDS {
            assert_eq!(xid(code).unwrap().action, Action::RestartApplication, "{code}");
        }
    }
}
