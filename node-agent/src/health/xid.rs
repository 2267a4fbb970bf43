//! The XIDs that matter to an operator, from NVIDIA's XID catalogue.

/// What somebody should do about an XID.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Nothing: the driver dealt with it, or it is a notice.
    Nothing,
    /// Look at the program that ran; the GPU is fine.
    RestartApplication,
    /// Drain and reset the GPU.
    ResetGpu,
    /// Reboot the node, or power it off and on.
    RebootNode,
    /// Look at NVLink cables, NVSwitches and the fabric manager.
    CheckFabric,
    /// Run field diagnostics; the GPU may have to be replaced.
    ReplaceGpu,
    /// Update driver or firmware.
    UpdateSoftware,
}

impl Action {
    /// What an operator reads.
    pub fn advice(self) -> &'static str {
        match self {
            Self::Nothing => "nothing to do",
            Self::RestartApplication => "look at the application; the GPU is fine",
            Self::ResetGpu => "drain and reset the GPU",
            Self::RebootNode => "reboot the node",
            Self::CheckFabric => "check NVLink, NVSwitches and the fabric manager",
            Self::ReplaceGpu => "run field diagnostics; the GPU may have to be replaced",
            Self::UpdateSoftware => "update the driver or the firmware",
        }
    }
}

/// One XID.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Xid {
    /// Its number.
    pub code: u32,
    /// What happened.
    pub meaning: &'static str,
    /// What to do.
    pub action: Action,
}

/// What is known about an XID.
pub fn xid(code: u32) -> Option<&'static Xid> {
    TABLE.binary_search_by_key(&code, |entry| entry.code).ok().map(|at| &TABLE[at])
}

const fn entry(code: u32, meaning: &'static str, action: Action) -> Xid {
    Xid { code, meaning, action }
}

/// Sorted by code.
const TABLE: &[Xid] = &[
    entry(8, "GPU stopped processing", Action::RestartApplication),
    entry(13, "graphics engine exception", Action::RestartApplication),
    entry(31, "memory page fault of an application", Action::RestartApplication),
    entry(32, "invalid or corrupted push buffer", Action::ResetGpu),
    entry(38, "driver firmware error", Action::UpdateSoftware),
    entry(43, "an application made its channel stop", Action::RestartApplication),
    entry(45, "preemptive cleanup after an earlier error", Action::RestartApplication),
    entry(46, "GPU stopped processing", Action::ResetGpu),
    entry(48, "double-bit ECC error", Action::ResetGpu),
    entry(61, "internal micro-controller breakpoint", Action::ResetGpu),
    entry(62, "internal micro-controller halt", Action::ResetGpu),
    entry(63, "row remapping or page retirement recorded", Action::ResetGpu),
    entry(64, "row remapping or page retirement failed", Action::ReplaceGpu),
    entry(68, "video processor exception", Action::RestartApplication),
    entry(69, "graphics engine class error", Action::RestartApplication),
    entry(74, "NVLink error", Action::CheckFabric),
    entry(79, "GPU has fallen off the bus", Action::RebootNode),
    entry(92, "high rate of single-bit ECC errors", Action::ReplaceGpu),
    entry(94, "contained uncorrectable ECC error", Action::RestartApplication),
    entry(95, "uncontained uncorrectable ECC error", Action::ResetGpu),
    entry(109, "context switch time-out", Action::RestartApplication),
    entry(110, "security fault", Action::RebootNode),
    entry(119, "GSP firmware did not answer in time", Action::ResetGpu),
    entry(120, "GSP firmware error", Action::ResetGpu),
    entry(121, "corrected C2C link error", Action::Nothing),
    entry(122, "SPI firmware access failed", Action::UpdateSoftware),
    entry(123, "power management unit access failed", Action::ResetGpu),
    entry(136, "link training failed", Action::CheckFabric),
    entry(137, "NVLink fabric manager reported a fault", Action::CheckFabric),
    entry(140, "unrecovered ECC error", Action::ResetGpu),
    entry(143, "GPU initialisation failed", Action::ResetGpu),
    entry(144, "NVLink link control error", Action::CheckFabric),
    entry(145, "NVLink remote link control error", Action::CheckFabric),
    entry(149, "NVLink error of the link layer", Action::CheckFabric),
    entry(154, "the recommended recovery action changed", Action::Nothing),
    entry(155, "NVLink software-defined error", Action::CheckFabric),
    entry(156, "a resource was retired", Action::Nothing),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_sorted_so_that_every_entry_is_found() {
        assert!(TABLE.is_sorted_by(|a, b| a.code < b.code));
        for entry in TABLE {
            assert_eq!(xid(entry.code), Some(entry));
        }
        assert_eq!(xid(7), None);
    }
}
