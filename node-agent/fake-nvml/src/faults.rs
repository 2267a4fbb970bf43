use serde::{Deserialize, Serialize};

use crate::spec::SpecError;

/// Something that happens to a world.
///
/// In YAML: `{xid: {gpu: 0, code: 79}}`, `{lost: {gpu: 0}}`, `{recover: {gpu: 0}}`, `driverUnloaded`, `driverLoaded`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub enum Fault {
    /// The driver reports an XID for this GPU. 79 also loses it; codes after which the driver asks for a reset (48, 64,
    /// 74, 95, 119, 120, 140, 143) leave one pending; 64 also fails row remapping.
    Xid {
        /// Index of the GPU.
        gpu: u32,
        /// The XID.
        code: u32,
    },
    /// The GPU stops answering without a word.
    Lost {
        /// Index of the GPU.
        gpu: u32,
    },
    /// A double-bit ECC error event.
    DoubleBitEcc {
        /// Index of the GPU.
        gpu: u32,
    },
    /// The GPU was reset or replaced: it answers, nothing is pending.
    Recover {
        /// Index of the GPU.
        gpu: u32,
    },
    /// The kernel driver goes away: every call fails.
    DriverUnloaded,
    /// The kernel driver is back.
    DriverLoaded,
}

/// A fault and when it happens, in milliseconds of the world's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScheduledFault {
    /// When.
    pub at_ms: u64,
    /// What.
    pub fault: Fault,
}

/// A file of faults that another process appends to; each reader applies every entry once.
///
/// ```yaml
/// faults:
/// - xid: {gpu: 0, code: 79}
/// - recover: {gpu: 0}
/// ```
#[derive(Clone, Debug, Default)]
pub struct FaultScript {
    applied: usize,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FaultFile {
    #[serde(default)]
    faults: Vec<Fault>,
}

impl FaultScript {
    /// The entries that were not seen before.
    ///
    /// A list that became shorter says nothing new: it is one that its writer, who emptied the file first, has not
    /// written to its end. To begin anew, remove the file and start with a new script.
    pub fn new_entries(&mut self, text: &str) -> Result<Vec<Fault>, SpecError> {
        if text.trim().is_empty() {
            return Ok(Vec::new());
        }
        let file: FaultFile =
            serde_saphyr::from_str(text).map_err(|error| SpecError::Yaml(error.to_string()))?;
        let new = file.faults.get(self.applied..).unwrap_or_default().to_vec();
        self.applied += new.len();
        Ok(new)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_entry_is_applied_once_even_if_the_file_is_read_while_it_is_written() {
        let mut script = FaultScript::default();
        let one = "faults:\n- xid: {gpu: 0, code: 79}\n";
        let two = format!("{one}- recover: {{gpu: 0}}\n- driverUnloaded\n");
        assert_eq!(script.new_entries(one).unwrap(), [Fault::Xid { gpu: 0, code: 79 }]);
        assert_eq!(script.new_entries(one).unwrap(), []);
        assert_eq!(script.new_entries(&two).unwrap(), [Fault::Recover { gpu: 0 }, Fault::DriverUnloaded]);
        for cut in 0..two.len() {
            assert_eq!(script.new_entries(&two[..cut]).unwrap_or_default(), [], "{}", &two[..cut]);
        }
        let three = format!("{two}- recover: {{gpu: 1}}\n");
        assert_eq!(script.new_entries(&three).unwrap(), [Fault::Recover { gpu: 1 }]);
        assert!(script.new_entries("faults: [{burn: {gpu: 0}}]").is_err());
    }
}
