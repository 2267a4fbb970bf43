use std::fmt;

/// What an NVML call can answer, with NVML's own numbers (`nvmlReturn_t` of the NVML header).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u32)]
pub enum Status {
    /// NVML was not initialised.
    Uninitialized = 1,
    /// An argument is null, out of range or of no known kind.
    InvalidArgument = 2,
    /// The device does not have what was asked for.
    NotSupported = 3,
    /// There is no such device.
    NotFound = 6,
    /// The caller's buffer is too small.
    InsufficientSize = 7,
    /// The kernel driver is not running.
    DriverNotLoaded = 9,
    /// Nothing happened within the time given.
    Timeout = 10,
    /// The GPU fell off the bus.
    GpuIsLost = 15,
    /// The caller's structure has a version this library does not know.
    ArgumentVersionMismatch = 25,
    /// Anything else.
    Unknown = 999,
}

impl Status {
    /// The number that NVML returns.
    pub fn code(self) -> u32 {
        self as u32
    }

    /// Words for it.
    pub fn text(self) -> &'static str {
        match self {
            Self::Uninitialized => "not initialised",
            Self::InvalidArgument => "invalid argument",
            Self::NotSupported => "not supported by this device",
            Self::NotFound => "no such device",
            Self::InsufficientSize => "buffer too small",
            Self::DriverNotLoaded => "driver not loaded",
            Self::Timeout => "timed out",
            Self::GpuIsLost => "GPU is lost",
            Self::ArgumentVersionMismatch => "unknown structure version",
            Self::Unknown => "unknown error",
        }
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

impl std::error::Error for Status {}
