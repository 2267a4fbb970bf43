//! The C ABI of fake-nvml: what `libnvidia-ml.so.1` exports, over a world of fake GPUs, so that a program linked against
//! the real library (through the unmodified `nvml-wrapper`) can be tested on a machine without one.
//!
//! | variable | meaning |
//! |---|---|
//! | `FAKE_NVML_CONFIG` | a profile (`8xA100`, `8xH100`, `4xL40S`) or the path of a world's YAML; default `8xA100` |
//! | `FAKE_NVML_NODE` | the node's name, of which UUIDs are made; default `NODE_NAME`, then `node` |
//! | `FAKE_NVML_FAULTS` | a file of faults (`fake_nvml::FaultScript`) that other processes append to, read again when it changes |
//!
//! Names, argument orders and structures are those of `nvml.h`. Every export may be called from any thread. This is one
//! of the two files of the workspace with `unsafe` in it: callers of a C library pass raw pointers.

#![expect(
    unsafe_code,
    reason = "a C ABI: raw pointers come in and symbols go out (ARCHITECTURE.md, invariant 10)"
)]

#[deny(unsafe_code)]
mod info;
#[deny(unsafe_code)]
mod library;

use std::ffi::{CStr, c_char, c_int, c_uint, c_ulonglong};
use std::mem::size_of;
use std::ptr::without_provenance_mut;
use std::time::Duration;

use fake_nvml::{EventKind, Gpu, LinkEnd, Status};
use info::{pci_info, remote_end, switch_pci_info};
use library::{Library, ask, handle_of, index_of, library};
use nvml_wrapper_sys::bindings as nvml;
use nvml_wrapper_sys::bindings::{
    nvmlDevice_t, nvmlEventData_t, nvmlEventSet_t, nvmlFieldValue_t, nvmlMemory_v2_t, nvmlPciInfo_t,
    nvmlProcessInfo_t, nvmlReturn_t, nvmlUtilization_t,
};

type Answer = Result<(), Status>;

/// How often a waiting call looks at the faults file: short beside the 5 s that callers wait, cheap beside a stat.
const WAIT_STEP: Duration = Duration::from_millis(20);

/// What an idle GPU of this class draws.
const IDLE_WATTS: u32 = 60;

fn code(answer: Answer) -> nvmlReturn_t {
    match answer {
        Ok(()) => nvml::nvmlReturn_enum_NVML_SUCCESS,
        Err(status) => status.code(),
    }
}

/// Writes a result to where the caller wants it.
///
/// # Safety
/// `out` is null or valid for writing a `T`.
unsafe fn put<T>(out: *mut T, value: T) -> Answer {
    if out.is_null() {
        return Err(Status::InvalidArgument);
    }
    // SAFETY: not null, and by this function's contract valid for a write.
    unsafe { out.write(value) };
    Ok(())
}

/// Writes a text with its terminating zero.
///
/// # Safety
/// `out` is null or valid for writing `length` bytes.
unsafe fn put_text(out: *mut c_char, length: c_uint, text: &str) -> Answer {
    if out.is_null() {
        return Err(Status::InvalidArgument);
    }
    if text.len() >= length as usize {
        return Err(Status::InsufficientSize);
    }
    // SAFETY: the text and its zero fit into the `length` bytes that the caller promises; source and target cannot
    // overlap, the source being ours.
    unsafe {
        out.cast::<u8>().copy_from_nonoverlapping(text.as_ptr(), text.len());
        out.add(text.len()).write(0);
    }
    Ok(())
}

/// Reads a text.
///
/// # Safety
/// `text` is null or points to a zero-terminated string.
unsafe fn text_at<'a>(text: *const c_char) -> Result<&'a str, Status> {
    if text.is_null() {
        return Err(Status::InvalidArgument);
    }
    // SAFETY: not null, and by this function's contract zero-terminated.
    unsafe { CStr::from_ptr(text) }.to_str().map_err(|_| Status::InvalidArgument)
}

/// Exports NVML functions: each body is an expression of type [`Answer`], and its status is what C sees.
macro_rules! exports {
    ($($(#[$doc:meta])* fn $name:ident($($argument:ident: $kind:ty),* $(,)?) $body:block)*) => {$(
        $(#[$doc])*
        ///
        /// # Safety
        /// As `nvml.h` has it: pointers are null or valid for what the function reads and writes through them.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($argument: $kind),*) -> nvmlReturn_t {
            // SAFETY: pointers go from the caller straight to `put`, `put_text` and `text_at`, whose contracts are what
            // `nvml.h` makes the caller promise.
            #[allow(unused_unsafe, reason = "a body without pointers needs none")]
            let answer = unsafe {
                let body = || -> Answer { $body };
                body()
            };
            code(answer)
        }
    )*};
}

exports! {
    /// Starts the library; counted.
    fn nvmlInit_v2() {
        let mut guard = library();
        let opened = match guard.take() {
            Some(opened) => opened,
            None => Library::open()?,
        };
        let library = guard.insert(opened);
        library.read_faults();
        if library.world.driver().is_err() {
            if library.users == 0 {
                *guard = None;
            }
            return Err(Status::DriverNotLoaded);
        }
        library.users += 1;
        Ok(())
    }

    /// Starts the library; every flag behaves as none.
    fn nvmlInitWithFlags(_flags: c_uint) {
        match nvmlInit_v2() {
            nvml::nvmlReturn_enum_NVML_SUCCESS => Ok(()),
            status if status == Status::DriverNotLoaded.code() => Err(Status::DriverNotLoaded),
            _ => Err(Status::Unknown),
        }
    }

    /// Ends what one init began.
    fn nvmlShutdown() {
        let mut guard = library();
        let library = guard.as_mut().ok_or(Status::Uninitialized)?;
        library.users -= 1;
        if library.users == 0 {
            *guard = None;
        }
        Ok(())
    }

    /// Kernel driver version.
    fn nvmlSystemGetDriverVersion(version: *mut c_char, length: c_uint) {
        ask(|library| put_text(version, length, &library.world.driver()?.driver_version))
    }

    /// Library version.
    fn nvmlSystemGetNVMLVersion(version: *mut c_char, length: c_uint) {
        ask(|library| {
            let spec = library.world.driver()?;
            put_text(version, length, &format!("{}.{}", spec.cuda_version.major, spec.driver_version))
        })
    }

    /// CUDA version as major * 1000 + minor * 10.
    fn nvmlSystemGetCudaDriverVersion_v2(version: *mut c_int) {
        ask(|library| {
            let cuda = library.world.driver()?.cuda_version;
            let number = cuda.major * 1000 + cuda.minor * 10;
            put(version, c_int::try_from(number).map_err(|_| Status::Unknown)?)
        })
    }

    /// Number of GPUs.
    fn nvmlDeviceGetCount_v2(count: *mut c_uint) {
        ask(|library| put(count, library.world.count()?))
    }

    /// A GPU by index.
    fn nvmlDeviceGetHandleByIndex_v2(index: c_uint, device: *mut nvmlDevice_t) {
        ask(|library| put(device, handle_of(library.world.gpu(index)?.index)))
    }

    /// A GPU by UUID.
    fn nvmlDeviceGetHandleByUUID(uuid: *const c_char, device: *mut nvmlDevice_t) {
        let uuid = text_at(uuid)?;
        ask(|library| put(device, handle_of(library.world.gpu_by_uuid(uuid)?.index)))
    }

    /// A GPU by bus id.
    fn nvmlDeviceGetHandleByPciBusId_v2(bus_id: *const c_char, device: *mut nvmlDevice_t) {
        let bus_id = text_at(bus_id)?;
        ask(|library| {
            let named = |gpu: &&Gpu| gpu.pci_bus_id().to_lowercase().ends_with(&bus_id.to_lowercase());
            let gpu = library.world.all_gpus().iter().find(named).ok_or(Status::NotFound)?;
            put(device, handle_of(library.world.gpu(gpu.index)?.index))
        })
    }

    /// Product name.
    fn nvmlDeviceGetName(device: nvmlDevice_t, name: *mut c_char, length: c_uint) {
        ask(|library| {
            library.gpu(device)?;
            put_text(name, length, &library.world.spec().product)
        })
    }

    /// UUID.
    fn nvmlDeviceGetUUID(device: nvmlDevice_t, uuid: *mut c_char, length: c_uint) {
        ask(|library| put_text(uuid, length, &library.gpu(device)?.uuid))
    }

    /// Index.
    fn nvmlDeviceGetIndex(device: nvmlDevice_t, index: *mut c_uint) {
        ask(|library| put(index, library.gpu(device)?.index))
    }

    /// Minor number.
    fn nvmlDeviceGetMinorNumber(device: nvmlDevice_t, minor: *mut c_uint) {
        ask(|library| put(minor, library.gpu(device)?.minor))
    }

    /// Serial number: as stable as the UUID.
    fn nvmlDeviceGetSerial(device: nvmlDevice_t, serial: *mut c_char, length: c_uint) {
        ask(|library| {
            let gpu = library.gpu(device)?;
            put_text(serial, length, &gpu.uuid[gpu.uuid.len().saturating_sub(12)..])
        })
    }

    /// PCI identity.
    fn nvmlDeviceGetPciInfo_v3(device: nvmlDevice_t, pci: *mut nvmlPciInfo_t) {
        ask(|library| put(pci, pci_info(&library.world, library.gpu(device)?)))
    }

    /// Brand: all data-centre products are plain NVIDIA.
    fn nvmlDeviceGetBrand(device: nvmlDevice_t, brand: *mut c_uint) {
        ask(|library| {
            library.gpu(device)?;
            put(brand, nvml::nvmlBrandType_enum_NVML_BRAND_NVIDIA)
        })
    }

    /// Generation.
    fn nvmlDeviceGetArchitecture(device: nvmlDevice_t, architecture: *mut c_uint) {
        ask(|library| {
            library.gpu(device)?;
            put(architecture, library.world.spec().architecture as u32)
        })
    }

    /// CUDA compute capability.
    fn nvmlDeviceGetCudaComputeCapability(device: nvmlDevice_t, major: *mut c_int, minor: *mut c_int) {
        ask(|library| {
            library.gpu(device)?;
            let capability = library.world.spec().compute_capability;
            put(major, capability.major.cast_signed())?;
            put(minor, capability.minor.cast_signed())
        })
    }

    /// Frame buffer in bytes; the version comes in with the structure.
    fn nvmlDeviceGetMemoryInfo_v2(device: nvmlDevice_t, memory: *mut nvmlMemory_v2_t) {
        if memory.is_null() {
            return Err(Status::InvalidArgument);
        }
        // SAFETY of the read: not null, and a caller of a versioned NVML function sets `version` first.
        let version = (*memory).version;
        if version != 0 && version != size_of::<nvmlMemory_v2_t>() as u32 | 2 << 24 {
            return Err(Status::ArgumentVersionMismatch);
        }
        ask(|library| {
            library.gpu(device)?;
            let total = library.world.spec().memory_mib << 20;
            put(memory, nvmlMemory_v2_t { version, total, reserved: 0, free: total, used: 0 })
        })
    }

    /// MIG mode: disabled where the product has MIG.
    fn nvmlDeviceGetMigMode(device: nvmlDevice_t, current: *mut c_uint, pending: *mut c_uint) {
        ask(|library| {
            library.gpu(device)?;
            if !library.world.spec().mig_capable {
                return Err(Status::NotSupported);
            }
            put(current, 0)?;
            put(pending, 0)
        })
    }

    /// MIG instances that a GPU may have.
    fn nvmlDeviceGetMaxMigDeviceCount(device: nvmlDevice_t, count: *mut c_uint) {
        ask(|library| {
            library.gpu(device)?;
            put(count, if library.world.spec().mig_capable { 7 } else { 0 })
        })
    }

    /// No handle of this library is a MIG instance.
    fn nvmlDeviceIsMigDeviceHandle(device: nvmlDevice_t, is_mig: *mut c_uint) {
        ask(|library| {
            library.gpu(device)?;
            put(is_mig, 0)
        })
    }

    /// NUMA node.
    fn nvmlDeviceGetNumaNodeId(device: nvmlDevice_t, node: *mut c_uint) {
        ask(|library| put(node, library.gpu(device)?.numa_node.ok_or(Status::NotSupported)?))
    }

    /// Where two GPUs' PCIe paths meet.
    fn nvmlDeviceGetTopologyCommonAncestor(a: nvmlDevice_t, b: nvmlDevice_t, level: *mut c_uint) {
        ask(|library| put(level, library.world.common_ancestor(index_of(a)?, index_of(b)?)? as u32))
    }

    /// Whether two GPUs can reach each other's memory: over NVLink or below one host bridge.
    fn nvmlDeviceGetP2PStatus(a: nvmlDevice_t, b: nvmlDevice_t, _capability: c_uint, status: *mut c_uint) {
        ask(|library| {
            let level = library.world.common_ancestor(index_of(a)?, index_of(b)?)?;
            let linked = !library.gpu(a)?.nvlinks.is_empty() && !library.gpu(b)?.nvlinks.is_empty();
            put(status, if linked || level <= fake_nvml::Ancestor::HostBridge {
                nvml::nvmlGpuP2PStatus_enum_NVML_P2P_STATUS_OK
            } else {
                nvml::nvmlGpuP2PStatus_enum_NVML_P2P_STATUS_CHIPSET_NOT_SUPPORTED
            })
        })
    }

    /// Whether a link is up.
    fn nvmlDeviceGetNvLinkState(device: nvmlDevice_t, link: c_uint, active: *mut c_uint) {
        ask(|library| {
            let gpu = library.gpu(device)?;
            if gpu.nvlinks.is_empty() {
                return Err(Status::NotSupported);
            }
            gpu.nvlinks.get(link as usize).ok_or(Status::InvalidArgument)?;
            put(active, 1)
        })
    }

    /// NVLink generation.
    fn nvmlDeviceGetNvLinkVersion(device: nvmlDevice_t, link: c_uint, version: *mut c_uint) {
        ask(|library| {
            let gpu = library.gpu(device)?;
            put(version, gpu.nvlinks.get(link as usize).ok_or(Status::InvalidArgument)?.version)
        })
    }

    /// Who is at the far end of a link.
    fn nvmlDeviceGetNvLinkRemotePciInfo_v2(device: nvmlDevice_t, link: c_uint, pci: *mut nvmlPciInfo_t) {
        ask(|library| {
            let info = match remote_end(library, device, link)? {
                LinkEnd::Switch(number) => switch_pci_info(number),
                LinkEnd::Gpu(index) => pci_info(&library.world, library.world.gpu(index)?),
            };
            put(pci, info)
        })
    }

    /// What is at the far end of a link.
    fn nvmlDeviceGetNvLinkRemoteDeviceType(device: nvmlDevice_t, link: c_uint, kind: *mut c_uint) {
        ask(|library| {
            put(kind, match remote_end(library, device, link)? {
                LinkEnd::Gpu(_) => nvml::nvmlIntNvLinkDeviceType_enum_NVML_NVLINK_DEVICE_TYPE_GPU,
                LinkEnd::Switch(_) => nvml::nvmlIntNvLinkDeviceType_enum_NVML_NVLINK_DEVICE_TYPE_SWITCH,
            })
        })
    }

    /// Events that can be had: XIDs and double-bit ECC errors.
    fn nvmlDeviceGetSupportedEventTypes(device: nvmlDevice_t, types: *mut c_ulonglong) {
        ask(|library| {
            library.gpu(device)?;
            put(types, EventKind::Xid(0).mask() | EventKind::DoubleBitEcc.mask())
        })
    }

    /// Adds a GPU's events to a set.
    fn nvmlDeviceRegisterEvents(device: nvmlDevice_t, types: c_ulonglong, set: nvmlEventSet_t) {
        ask(|library| {
            let index = library.gpu(device)?.index;
            library.want(set, index, types)
        })
    }

    /// A set that hears what happens from now on.
    fn nvmlEventSetCreate(set: *mut nvmlEventSet_t) {
        ask(|library| {
            put(set, without_provenance_mut(library.next_set()))?;
            library.add_set();
            Ok(())
        })
    }

    /// Waits for an event. Other calls go on meanwhile.
    fn nvmlEventSetWait_v2(set: nvmlEventSet_t, data: *mut nvmlEventData_t, timeout_ms: c_uint) {
        let mut left = Duration::from_millis(u64::from(timeout_ms));
        loop {
            if let Some(event) = ask(|library| library.next_event(set))? {
                return put(data, event);
            }
            if left.is_zero() {
                return Err(Status::Timeout);
            }
            let step = left.min(WAIT_STEP);
            std::thread::sleep(step);
            left -= step;
        }
    }

    /// Forgets a set.
    fn nvmlEventSetFree(set: nvmlEventSet_t) {
        ask(|library| library.remove_set(set))
    }

    /// Degrees Celsius: an idle GPU.
    fn nvmlDeviceGetTemperature(device: nvmlDevice_t, _sensor: c_uint, degrees: *mut c_uint) {
        ask(|library| put(degrees, 30 + library.gpu(device)?.index % 8))
    }

    /// Milliwatts: an idle GPU.
    fn nvmlDeviceGetPowerUsage(device: nvmlDevice_t, milliwatts: *mut c_uint) {
        ask(|library| {
            library.gpu(device)?;
            put(milliwatts, IDLE_WATTS * 1000)
        })
    }

    /// Milliwatts at most.
    fn nvmlDeviceGetEnforcedPowerLimit(device: nvmlDevice_t, milliwatts: *mut c_uint) {
        ask(|library| {
            library.gpu(device)?;
            put(milliwatts, library.world.spec().power_limit_watts.saturating_mul(1000))
        })
    }

    /// Percent busy: an idle GPU.
    fn nvmlDeviceGetUtilizationRates(device: nvmlDevice_t, rates: *mut nvmlUtilization_t) {
        ask(|library| {
            library.gpu(device)?;
            put(rates, nvmlUtilization_t { gpu: 0, memory: 0 })
        })
    }

    /// Row remapping.
    fn nvmlDeviceGetRemappedRows(
        device: nvmlDevice_t,
        correctable: *mut c_uint,
        uncorrectable: *mut c_uint,
        pending: *mut c_uint,
        failure: *mut c_uint,
    ) {
        ask(|library| {
            let rows = library.gpu(device)?.remapped;
            put(correctable, 0)?;
            put(uncorrectable, rows.uncorrectable)?;
            put(pending, c_uint::from(rows.pending))?;
            put(failure, c_uint::from(rows.failure))
        })
    }

    /// Pages waiting to be retired: products with row remapping have none.
    fn nvmlDeviceGetRetiredPagesPendingStatus(device: nvmlDevice_t, pending: *mut c_uint) {
        ask(|library| {
            library.gpu(device)?;
            put(pending, 0)
        })
    }

    /// Field values: the recovery action; every other field is not supported.
    fn nvmlDeviceGetFieldValues(device: nvmlDevice_t, count: c_int, values: *mut nvmlFieldValue_t) {
        let count = usize::try_from(count).map_err(|_| Status::InvalidArgument)?;
        if values.is_null() {
            return Err(Status::InvalidArgument);
        }
        ask(|library| {
            let action = library.gpu(device)?.recovery as u32;
            // SAFETY of the slice: `count` values by the caller's promise, and nobody else has them during the call.
            for value in std::slice::from_raw_parts_mut(values, count) {
                if value.fieldId == nvml::field_id::NVML_FI_DEV_GET_GPU_RECOVERY_ACTION {
                    value.valueType = nvml::nvmlValueType_enum_NVML_VALUE_TYPE_UNSIGNED_INT;
                    value.value.uiVal = action;
                    value.nvmlReturn = nvml::nvmlReturn_enum_NVML_SUCCESS;
                } else {
                    value.nvmlReturn = Status::NotSupported.code();
                }
            }
            Ok(())
        })
    }

    /// Processes with a CUDA context: none.
    fn nvmlDeviceGetComputeRunningProcesses_v3(
        device: nvmlDevice_t,
        count: *mut c_uint,
        _processes: *mut nvmlProcessInfo_t,
    ) {
        ask(|library| {
            library.gpu(device)?;
            put(count, 0)
        })
    }

    /// Persistence mode: on.
    fn nvmlDeviceGetPersistenceMode(device: nvmlDevice_t, mode: *mut c_uint) {
        ask(|library| {
            library.gpu(device)?;
            put(mode, 1)
        })
    }
}

/// Words for a status. The only export that returns something else than a status.
#[unsafe(no_mangle)]
pub extern "C" fn nvmlErrorString(result: nvmlReturn_t) -> *const c_char {
    let text: &'static CStr = match result {
        0 => c"success",
        1 => c"not initialised",
        2 => c"invalid argument",
        3 => c"not supported by this device",
        6 => c"no such device",
        7 => c"buffer too small",
        9 => c"driver not loaded",
        10 => c"timed out",
        15 => c"GPU is lost",
        25 => c"unknown structure version",
        _ => c"unknown error",
    };
    text.as_ptr()
}
