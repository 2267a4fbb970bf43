//! What the exports work on: one world for the process, its faults file, its event sets.

use std::collections::BTreeMap;
use std::ffi::c_uint;
use std::path::PathBuf;
use std::ptr::without_provenance_mut;
use std::sync::{Mutex, MutexGuard, PoisonError};

use fake_nvml::{EventKind, FaultScript, Gpu, Status, World, WorldSpec};
use nvml_wrapper_sys::bindings::{nvmlDevice_t, nvmlEventData_t, nvmlEventSet_t};

/// GPU and compute instance ids of an event that belongs to the whole GPU (NVML: all ones).
const NO_INSTANCE: c_uint = c_uint::MAX;

static LIBRARY: Mutex<Option<Library>> = Mutex::new(None);

/// What is there between the first `nvmlInit` and the last `nvmlShutdown`.
pub(super) struct Library {
    pub(super) users: u32,
    pub(super) world: World,
    faults: Option<FaultFile>,
    sets: BTreeMap<usize, EventSet>,
    next_set: usize,
}

/// One `nvmlEventSet_t`: which events of which GPUs it wants, and how far it has read.
#[derive(Default)]
struct EventSet {
    wanted: BTreeMap<u32, u64>,
    read_to: u64,
}

struct FaultFile {
    path: PathBuf,
    script: FaultScript,
    seen: Option<String>,
}

impl Library {
    pub(super) fn open() -> Result<Self, Status> {
        let config = std::env::var("FAKE_NVML_CONFIG").unwrap_or_else(|_| "8xA100".to_owned());
        let node = std::env::var("FAKE_NVML_NODE")
            .or_else(|_| std::env::var("NODE_NAME"))
            .unwrap_or_else(|_| "node".to_owned());
        let spec = WorldSpec::load(&config).map_err(|error| {
            eprintln!("fake-nvml: {error}");
            Status::Unknown
        })?;
        let faults = std::env::var_os("FAKE_NVML_FAULTS").map(|path| FaultFile {
            path: path.into(),
            script: FaultScript::default(),
            seen: None,
        });
        let world = World::new(spec, &node);
        let mut library = Self { users: 0, world, faults, sets: BTreeMap::new(), next_set: 1 };
        library.read_faults();
        Ok(library)
    }

    /// Applies what was appended to the faults file. A file that does not parse is left for its writer to finish;
    /// after one that was removed, the next is read from its start.
    pub(super) fn read_faults(&mut self) {
        let Some(file) = &mut self.faults else { return };
        let Ok(text) = std::fs::read_to_string(&file.path) else {
            (file.script, file.seen) = (FaultScript::default(), None);
            return;
        };
        if file.seen.as_deref() == Some(&text) {
            return;
        }
        match file.script.new_entries(&text) {
            Ok(faults) => faults.into_iter().for_each(|fault| self.world.inject(fault)),
            Err(error) => eprintln!("fake-nvml: {}: {error}", file.path.display()),
        }
        file.seen = Some(text);
    }

    pub(super) fn gpu(&self, device: nvmlDevice_t) -> Result<&Gpu, Status> {
        self.world.gpu(index_of(device)?)
    }

    /// The number of the next set, which is what its handle says.
    pub(super) fn next_set(&self) -> usize {
        self.next_set
    }

    /// Adds that set: it hears what happens from now on.
    pub(super) fn add_set(&mut self) {
        let read_to = self.world.last_sequence();
        self.sets.insert(self.next_set, EventSet { wanted: BTreeMap::new(), read_to });
        self.next_set += 1;
    }

    /// Adds a GPU's events to a set.
    pub(super) fn want(&mut self, set: nvmlEventSet_t, gpu: u32, types: u64) -> Result<(), Status> {
        let set = self.sets.get_mut(&set.addr()).ok_or(Status::InvalidArgument)?;
        *set.wanted.entry(gpu).or_default() |= types;
        Ok(())
    }

    /// Forgets a set.
    pub(super) fn remove_set(&mut self, set: nvmlEventSet_t) -> Result<(), Status> {
        self.sets.remove(&set.addr()).map(drop).ok_or(Status::InvalidArgument)
    }

    /// The next event that a set wants.
    pub(super) fn next_event(&mut self, set: nvmlEventSet_t) -> Result<Option<nvmlEventData_t>, Status> {
        self.read_faults();
        self.world.driver()?;
        let wanted = self.sets.get_mut(&set.addr()).ok_or(Status::InvalidArgument)?;
        let event = self.world.event_after(wanted.read_to, |event| {
            wanted.wanted.get(&event.gpu).is_some_and(|mask| mask & event.kind.mask() != 0)
        });
        let Some(event) = event else { return Ok(None) };
        wanted.read_to = event.sequence;
        Ok(Some(nvmlEventData_t {
            device: handle_of(event.gpu),
            eventType: event.kind.mask(),
            eventData: match event.kind {
                EventKind::Xid(code) => u64::from(code),
                EventKind::DoubleBitEcc => 0,
            },
            gpuInstanceId: NO_INSTANCE,
            computeInstanceId: NO_INSTANCE,
        }))
    }
}

pub(super) fn library() -> MutexGuard<'static, Option<Library>> {
    LIBRARY.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs a question against the library, with the newest faults applied.
pub(super) fn ask<T>(question: impl FnOnce(&mut Library) -> Result<T, Status>) -> Result<T, Status> {
    let mut guard = library();
    let library = guard.as_mut().ok_or(Status::Uninitialized)?;
    library.read_faults();
    question(library)
}

/// Device handles are opaque to callers; ours are index + 1, so that none is null.
pub(super) fn handle_of(index: u32) -> nvmlDevice_t {
    without_provenance_mut(index as usize + 1)
}

pub(super) fn index_of(device: nvmlDevice_t) -> Result<u32, Status> {
    let index = device.addr().checked_sub(1).ok_or(Status::InvalidArgument)?;
    u32::try_from(index).map_err(|_| Status::InvalidArgument)
}
