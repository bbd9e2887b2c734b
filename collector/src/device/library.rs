//! The driver's management library, opened when a rank's GPU is first to be read, and never closed: closing it can block too.

use std::sync::{Arc, Mutex};

use nvml_wrapper::Nvml;

use super::lock;

static LIBRARY: Mutex<Library> = Mutex::new(Library::Unopened);

enum Library {
    Unopened,
    Missing,
    Open(Arc<Nvml>),
}

/// `None` where there is none; said once in the log. Opening can block: only from a thread that may.
pub(super) fn open() -> Option<Arc<Nvml>> {
    let mut library = lock(&LIBRARY);
    if let Library::Open(nvml) = &*library {
        return Some(Arc::clone(nvml));
    }
    match Nvml::init() {
        Ok(nvml) => {
            let version = nvml.sys_driver_version().unwrap_or_default();
            tracing::info!("GPU health comes from NVML, driver {version}");
            let nvml = Arc::new(nvml);
            *library = Library::Open(Arc::clone(&nvml));
            Some(nvml)
        }
        Err(error) => {
            if matches!(*library, Library::Unopened) {
                tracing::info!("GPU health is unknown: NVML cannot be opened ({error})");
                *library = Library::Missing;
            }
            None
        }
    }
}
