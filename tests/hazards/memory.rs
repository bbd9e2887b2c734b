//! The program keeps its own allocator and its own memory.

use std::path::Path;

use crate::{hazard::Hazard, stand_in};

/// Where Debian and others install allocators, and the packages that contain them.
const ALLOCATORS: &str = "/usr/lib/x86_64-linux-gnu";
const REMEDY: &str = "make test-programs";

/// A program with this allocator linked in.
fn with_allocator(library: &str) -> Hazard {
    let flag = format!("-l:{library}");
    if !Path::new(ALLOCATORS).join(library).exists() {
        return Hazard::without(&format!("there is no {library}: {REMEDY}"));
    }
    Hazard::linked_with("other_allocator.cpp", &["-Wl,--no-as-needed", &flag], 0)
}

/// A program with a driver that creates memory.
fn creates_memory() -> Hazard {
    let hazard = Hazard::bare_and_uncompiled(0);
    stand_in::all(&hazard.place);
    let flags = ["-shared", "-fPIC", "-Wl,-soname,libcuda.so.1"];
    hazard.compile("libcreates.c", "lib/libcuda.so.1", &flags);
    hazard.compile("many_chunks.c", "program", &[&stand_in::LINKED[..], &["-l:libcuda.so.1"]].concat());
    hazard
}

harmless! {
    the_programs_operator_new_is_not_used_by_the_hook: Hazard::linked("own_new.cpp", 0);
    jemalloc_is_not_affected: with_allocator("libjemalloc.so.2");
    tcmalloc_is_not_affected: with_allocator("libtcmalloc.so.4");
    a_single_threaded_malloc_is_called_by_one_thread: Hazard::linked("own_malloc.c", 0);
    locked_memory_grows_little: Hazard::linked("locked_memory.c", 0).allows("locked KiB", 8 << 10);
    little_address_space_is_taken: Hazard::linked("little_address_space.c", 0).allows("KiB taken", 16 << 10);
    training_continues_without_memory: Hazard::new("few_memory", 0);
    chunks_of_memory_beyond_the_address_space_are_created: creates_memory();
}
