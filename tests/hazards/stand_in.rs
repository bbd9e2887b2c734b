//! Compiles CUDA's libraries in C (`standins/`) as a test needs them: under any soname, as one of several
//! copies, with or without symbol versions.

use std::{fs, path::Path};

use xpu_tests::{built, place::Place};

/// Links a program against the libraries of [`all`].
pub(crate) const LINKED: [&str; 3] = ["-l:libcudart.so.13", "-l:libcublas.so.13", "-l:libnccl.so.2"];

/// A library of `standins/`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StandIn<'a> {
    /// `cudart`, `cublas` or `nccl`.
    pub(crate) library: &'a str,
    pub(crate) soname: &'a str,
    /// The number of the copy, which it returns.
    pub(crate) copy: u32,
    /// The version of its symbols is the soname with this number, as for NVIDIA's libraries.
    pub(crate) version: Option<u32>,
    /// Whether it prints when it is loaded and unloaded.
    pub(crate) prints: bool,
}

impl<'a> StandIn<'a> {
    pub(crate) fn cudart(soname: &'a str, copy: u32) -> Self {
        Self { library: "cudart", soname, copy, version: None, prints: false }
    }

    pub(crate) fn versioned(self) -> Self {
        self.versioned_as(self.copy)
    }

    /// Sets another version: auditwheel renames a library, but not its symbol versions.
    pub(crate) fn versioned_as(self, number: u32) -> Self {
        Self { version: Some(number), ..self }
    }

    pub(crate) fn printing(self) -> Self {
        Self { prints: true, ..self }
    }

    /// Compiles the library into this folder, under its soname.
    #[track_caller]
    pub(crate) fn put_into(self, folder: &Path) {
        let to = folder.join(self.soname);
        let script = folder.join(format!("{}.versions", self.soname));
        let copy = format!("-DCOPY={}", self.copy);
        let soname = format!("-Wl,-soname,{}", self.soname);
        let versions = format!("-Wl,--version-script={}", script.display());
        let mut flags = vec!["-shared", "-fPIC", "-fexceptions", &copy, &soname];
        if let Some(number) = self.version {
            let text = format!("libcudart.so.{number} {{ global: *; }};\n");
            fs::write(&script, text).expect("a file in a fresh folder");
            flags.push(&versions);
        }
        if self.prints {
            flags.push("-DPRINTS");
        }
        built::compile(&format!("hazards/standins/{}.c", self.library), &to, &flags);
    }
}

/// Compiles each library once.
#[track_caller]
pub(crate) fn all(place: &Place) {
    let lib = place.path("lib");
    StandIn::cudart("libcudart.so.13", 13).put_into(&lib);
    for (library, soname) in [("cublas", "libcublas.so.13"), ("nccl", "libnccl.so.2")] {
        StandIn { library, ..StandIn::cudart(soname, 13) }.put_into(&lib);
    }
}
