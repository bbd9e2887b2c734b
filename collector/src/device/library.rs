//! The driver's management library, opened for the first rank's GPU. It is never closed, because closing can
//! block, too.

use std::sync::{Arc, Mutex};

use nvml_wrapper::Nvml;

use super::lock;

static LIBRARY: Mutex<Library> = Mutex::new(Library::Unopened);

enum Library {
    Unopened,
    Missing,
    Open(Arc<Nvml>),
}

/// The library; `None` if there is none, which is logged once. Opening can block, so only threads that may
/// block call this.
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
