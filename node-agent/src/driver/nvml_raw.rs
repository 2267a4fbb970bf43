//! The NVML calls that `nvml-wrapper` 0.13 lacks or gets wrong: events of GPUs that cannot be asked for their name any
//! more (the wrapper's have a device only), an event set that survives one device's refusal (the wrapper frees it), the kind of an NVLink's far end (the wrapper
//! answers `Unknown` always), and remapped rows (not wrapped).
//!
//! One of the two files of the workspace with `unsafe` in it.

#![expect(unsafe_code, reason = "raw NVML calls (ARCHITECTURE.md, invariant 10)")]

use std::collections::BTreeMap;
use std::sync::Arc;

use nvml_wrapper::error::{NvmlError, nvml_sym, nvml_try};
use nvml_wrapper::{Device, Nvml};
use nvml_wrapper_sys::bindings::{
    nvmlEventData_t, nvmlEventSet_t, nvmlEventTypeDoubleBitEccError, nvmlEventTypeXidCriticalError,
    nvmlIntNvLinkDeviceType_enum_NVML_NVLINK_DEVICE_TYPE_GPU,
    nvmlIntNvLinkDeviceType_enum_NVML_NVLINK_DEVICE_TYPE_SWITCH,
};

/// The far end of an NVLink.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FarEnd {
    Gpu,
    Switch,
    Other,
}

/// An event of an [`EventSet`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RawEvent {
    /// The GPU's UUID, unless the driver named a GPU that is not in the set, or none.
    pub(super) uuid: Option<String>,
    pub(super) kind: RawEventKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RawEventKind {
    Xid(u32),
    DoubleBitEcc,
    Other,
}

/// Events of chosen GPUs. Keeps NVML open as long as it lives.
pub(super) struct EventSet {
    nvml: Arc<Nvml>,
    set: nvmlEventSet_t,
    /// UUIDs by the address of the handle, which stays the same while NVML is open: a GPU that has fallen off the bus
    /// does not tell its UUID any more, and that is when its event matters most.
    uuids: BTreeMap<usize, String>,
}

// SAFETY: an event set is a handle into NVML, which is thread-safe as a library; what must not happen is two calls on one
// set at a time, and every method that passes the set on takes `&mut self`.
unsafe impl Send for EventSet {}

impl EventSet {
    pub(super) fn new(nvml: Arc<Nvml>) -> Result<Self, NvmlError> {
        let create = nvml_sym(nvml.lib().nvmlEventSetCreate.as_ref())?;
        let mut set: nvmlEventSet_t = std::ptr::null_mut();
        // SAFETY: NVML is initialised as long as `nvml` lives, and `set` is valid for the write.
        nvml_try(unsafe { create(&raw mut set) })?;
        Ok(Self { nvml, set, uuids: BTreeMap::new() })
    }

    /// Adds the critical events of a GPU. A refusal leaves the set as it was.
    pub(super) fn add(&mut self, device: &Device<'_>) -> Result<(), NvmlError> {
        let lib = self.nvml.lib();
        let supported = nvml_sym(lib.nvmlDeviceGetSupportedEventTypes.as_ref())?;
        let register = nvml_sym(lib.nvmlDeviceRegisterEvents.as_ref())?;
        let mut types = 0;
        // SAFETY: the handle belongs to a live `Device` of this library, `types` is valid for the write, and the set was
        // made by this library and not yet freed.
        unsafe {
            nvml_try(supported(device.handle(), &raw mut types))?;
            let wanted = types & u64::from(nvmlEventTypeXidCriticalError | nvmlEventTypeDoubleBitEccError);
            nvml_try(register(device.handle(), wanted, self.set))?;
        }
        // SAFETY: the handle is only compared, never followed.
        let handle = unsafe { device.handle() };
        self.uuids.insert(handle.addr(), device.uuid()?);
        Ok(())
    }

    /// Waits at most `timeout_ms` for an event.
    pub(super) fn wait(&mut self, timeout_ms: u32) -> Result<RawEvent, NvmlError> {
        let wait = nvml_sym(self.nvml.lib().nvmlEventSetWait_v2.as_ref())?;
        let mut data = nvmlEventData_t {
            device: std::ptr::null_mut(),
            eventType: 0,
            eventData: 0,
            gpuInstanceId: u32::MAX,
            computeInstanceId: u32::MAX,
        };
        // SAFETY: the set is live, and `data` is valid for the write.
        nvml_try(unsafe { wait(self.set, &raw mut data, timeout_ms) })?;
        let kind = match u32::try_from(data.eventType) {
            Ok(bit) if bit == nvmlEventTypeXidCriticalError => {
                RawEventKind::Xid(u32::try_from(data.eventData).unwrap_or(u32::MAX))
            }
            Ok(bit) if bit == nvmlEventTypeDoubleBitEccError => RawEventKind::DoubleBitEcc,
            _ => RawEventKind::Other,
        };
        Ok(RawEvent { uuid: self.uuids.get(&data.device.addr()).cloned(), kind })
    }
}

impl Drop for EventSet {
    fn drop(&mut self) {
        if let Ok(free) = self.nvml.lib().nvmlEventSetFree.as_ref() {
            // SAFETY: the set is live and nobody can use it after this. A refusal leaks a handle, nothing else.
            unsafe { free(self.set) };
        }
    }
}

/// What is at the far end of an NVLink.
pub(super) fn nvlink_far_end(nvml: &Nvml, device: &Device<'_>, link: u32) -> Result<FarEnd, NvmlError> {
    let ask = nvml_sym(nvml.lib().nvmlDeviceGetNvLinkRemoteDeviceType.as_ref())?;
    let mut kind = 0;
    // SAFETY: the handle belongs to a live `Device`, and `kind` is valid for the write.
    nvml_try(unsafe { ask(device.handle(), link, &raw mut kind) })?;
    Ok(match kind {
        kind if kind == nvmlIntNvLinkDeviceType_enum_NVML_NVLINK_DEVICE_TYPE_GPU => FarEnd::Gpu,
        kind if kind == nvmlIntNvLinkDeviceType_enum_NVML_NVLINK_DEVICE_TYPE_SWITCH => FarEnd::Switch,
        _ => FarEnd::Other,
    })
}

/// Whether a row remapping is pending, and whether one failed.
pub(super) fn remapped_rows(nvml: &Nvml, device: &Device<'_>) -> Result<(bool, bool), NvmlError> {
    let ask = nvml_sym(nvml.lib().nvmlDeviceGetRemappedRows.as_ref())?;
    let [mut correctable, mut uncorrectable, mut pending, mut failure] = [0; 4];
    // SAFETY: the handle belongs to a live `Device`, and all four are valid for the writes.
    nvml_try(unsafe {
        ask(device.handle(), &raw mut correctable, &raw mut uncorrectable, &raw mut pending, &raw mut failure)
    })?;
    Ok((pending != 0, failure != 0))
}
