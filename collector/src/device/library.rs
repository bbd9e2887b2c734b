//! The driver's management library, opened for the first rank's GPU, and never closed: closing it can block
//! too.

use std::sync::{Arc, Mutex};

use nvml_wrapper::Nvml;

use super::lock;

static LIBRARY: Mutex<Library> = Mutex::new(Library::Unopened);

enum Library {
    Unopened,
    Missing,
    Open(Arc<Nvml>),
}

/// `None` if there is none; logged once. Opening can block: only for threads that may block.
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
