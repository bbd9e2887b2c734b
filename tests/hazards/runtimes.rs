//! A process with several CUDA runtimes, and libraries that are opened and closed: each call reaches the
//! runtime that its caller is bound to.

use xpu_tests::{
    host::Host,
    program::{Program, until},
};

use crate::{hazard::Hazard, stand_in::StandIn};

/// A name as auditwheel gives to a library inside a wheel.
const OF_A_WHEEL: &str = "libcudart-d0da41ae.so.12.4.127";

/// The program that opens libraries (`opens.c`), with the number of rounds and the libraries to open.
fn opens(rounds: &str, users: &[User]) -> Hazard {
    let mut hazard = Hazard::bare("opens.c", 0).with(rounds);
    for user in users {
        let path = user.make(&hazard);
        hazard = hazard.with(format!("{}:{path}", user.how));
    }
    hazard
}

/// A library that uses a runtime (`libuser.c`).
struct User<'a> {
    /// The flags of `opens.c`.
    how: &'a str,
    runtime: StandIn<'a>,
    flags: &'a [&'a str],
}

impl<'a> User<'a> {
    fn of(how: &'a str, runtime: StandIn<'a>) -> Self {
        Self { how, runtime, flags: &[] }
    }

    fn with(self, flags: &'a [&'a str]) -> Self {
        Self { flags, ..self }
    }

    /// Compiles the library, and returns its path.
    fn make(&self, hazard: &Hazard) -> String {
        self.runtime.put_into(&hazard.place.path("lib"));
        let linked = format!("-l:{}", self.runtime.soname);
        // The name contains the runtime's copy, so several libraries can use the same source.
        let name = format!("lib{}-{}.so", self.runtime.copy, self.how);
        // Linked to the runtime even if the library looks up every function by name.
        let linker = "-Wl,-z,now,--no-as-needed";
        let flags = [&["-shared", "-fPIC", "-DRUN=user_run", linker, &linked], self.flags].concat();
        hazard.compile("libuser.c", &name, &flags).display().to_string()
    }
}

const TWELVE: &str = "libcudart.so.12";
const THIRTEEN: &str = "libcudart.so.13";

fn twelve() -> StandIn<'static> {
    StandIn::cudart(TWELVE, 12)
}

fn thirteen() -> StandIn<'static> {
    StandIn::cudart(THIRTEEN, 13)
}

/// A plugin (`libplugin.c`) and its library, each linked to a runtime. The plugin is opened with the flags of
/// `opens.c`.
fn plugin(how: &str, outer: StandIn<'_>, inner: StandIn<'_>, flags: &[&str]) -> Hazard {
    let hazard = Hazard::bare("opens.c", 0).with("3");
    let lib = hazard.place.path("lib");
    for runtime in [outer, inner] {
        runtime.put_into(&lib);
    }
    let (outer, inner) = (format!("-l:{}", outer.soname), format!("-l:{}", inner.soname));
    let shared = ["-shared", "-fPIC", "-Wl,--no-as-needed"];
    let user = [&shared, &["-DRUN=inner_run", &*inner][..], flags].concat();
    hazard.compile("libuser.c", "lib/libinner.so", &user);
    let plugin = [&shared, &["-DINNER=inner_run", &*outer, "-linner"][..], flags].concat();
    let plugin = hazard.compile("libplugin.c", "libplugin.so", &plugin);
    hazard.with(format!("{how}:{}", plugin.display()))
}

/// A library whose calls return to a program without a runtime (`tail_calls.c`), beside another runtime.
fn tail_calls(own: StandIn<'_>, other: StandIn<'_>) -> Hazard {
    let hazard = Hazard::bare("tail_calls.c", 0);
    let lib = hazard.place.path("lib");
    for runtime in [own, other] {
        runtime.put_into(&lib);
    }
    let linked = format!("-l:{}", own.soname);
    let library = hazard.compile("libtail.c", "libtail.so", &["-O2", "-shared", "-fPIC", &linked]);
    hazard.with(lib.join(other.soname)).with(library)
}

/// A program linked to two libraries, each with its own runtime.
fn linked(twelve: StandIn<'_>, thirteen: StandIn<'_>) -> Hazard {
    let hazard = Hazard::bare_and_uncompiled(0);
    let lib = hazard.place.path("lib");
    for runtime in [twelve, thirteen] {
        runtime.put_into(&lib);
        let run = format!("-DRUN=user{}_run", runtime.copy);
        let flags = ["-shared", "-fPIC", &run, &format!("-l:{}", runtime.soname)];
        hazard.compile("libuser.c", &format!("lib/libuser{}.so", runtime.copy), &flags);
    }
    hazard.compile("two_runtimes.c", "program", &["-luser12", "-luser13"]);
    hazard
}

/// Another preload, behind the hook or before it. Its functions have no symbol versions.
fn with_another_preload(mut hazard: Hazard, is_first: bool) -> Hazard {
    let counter = hazard.compile("libcounter.c", "libcounter.so", &["-shared", "-fPIC", "-DPRINTS"]);
    hazard.others = if is_first { (Some(counter), None) } else { (None, Some(counter)) };
    hazard
}

harmless! {
    a_preload_behind_the_hook_sees_calls_of_a_version:
        with_another_preload(opens("3", &[User::of("g", thirteen().versioned())]), false);
    a_preload_before_the_hook_sees_calls_of_a_version:
        with_another_preload(opens("3", &[User::of("g", thirteen().versioned())]), true);
    a_runtime_of_a_wheel_is_found: opens("3", &[User::of("l", StandIn::cudart(OF_A_WHEEL, 12).versioned())]);
    two_runtimes_linked: linked(twelve(), thirteen());
    two_runtimes_linked_with_versions: linked(twelve().versioned(), thirteen().versioned());
    two_runtimes_opened_locally: opens("3", &[User::of("l", twelve()), User::of("l", thirteen())]);
    two_runtimes_opened_locally_with_versions:
        opens("3", &[User::of("l", twelve().versioned()), User::of("l", thirteen().versioned())]);
    two_runtimes_one_global_one_local: opens("3", &[User::of("g", thirteen()), User::of("l", twelve())]);
    two_runtimes_one_global_one_local_with_versions:
        opens("3", &[User::of("g", thirteen().versioned()), User::of("l", twelve().versioned())]);
    two_runtimes_in_threads:
        opens("4", &[User::of("lt", twelve().versioned()), User::of("lt", StandIn::cudart(OF_A_WHEEL, 11))]);
    two_runtimes_called_by_pointers: opens(
        "3",
        &[User::of("l", twelve()).with(&["-DBY_POINTER"]), User::of("l", thirteen()).with(&["-DBY_POINTER"])],
    );
    two_runtimes_looked_up_by_their_handles: opens(
        "3",
        &[User::of("l", twelve()).with(&["-DBY_HANDLE"]), User::of("l", thirteen()).with(&["-DBY_HANDLE"])],
    );
    a_runtime_is_asked_for_by_its_handle_with_versions:
        opens("3", &[User::of("g", thirteen().versioned()).with(&["-DBY_HANDLE"])]);
    a_library_that_binds_deeply_asks_by_a_handle:
        opens("3", &[User::of("g", thirteen()), User::of("ld", twelve()).with(&["-DBY_HANDLE"])]);
    another_namespace_asks_by_a_handle:
        opens("3", &[User::of("n", twelve()).with(&["-DBY_HANDLE"]), User::of("l", thirteen()).with(&["-DBY_HANDLE"])]);
    a_runtime_asked_for_by_its_handle_is_opened_again_elsewhere:
        opens("4", &[User::of("lcm", twelve()).with(&["-DBY_HANDLE"])]);
    another_runtime_is_looked_up_at_the_address_of_a_closed_one: opens(
        "4",
        &[User::of("lc", twelve()).with(&["-DBY_HANDLE"]), User::of("lct", thirteen()).with(&["-DBY_HANDLE"])],
    );
    a_constructor_asks_by_a_handle:
        opens("2", &[User::of("l", twelve()).with(&["-DBY_HANDLE", "-DIN_CONSTRUCTOR", "-DIN_DESTRUCTOR"])]);
    a_library_that_binds_deeply_is_bound_so:
        opens("3", &[User::of("g", thirteen()), User::of("ld", twelve())]);
    a_tail_call_reaches_the_runtime_of_its_library: tail_calls(twelve(), thirteen());
    a_tail_call_reaches_the_runtime_of_its_library_with_versions:
        tail_calls(twelve().versioned(), thirteen().versioned());
    a_dependency_of_a_plugin_is_bound_as_the_plugin_is: plugin("l", twelve(), thirteen(), &[]);
    a_dependency_of_a_plugin_is_bound_at_its_first_calls:
        plugin("lz", twelve(), thirteen(), &["-Wl,-z,lazy"]);
    a_dependency_of_a_plugin_is_bound_by_its_versions: plugin("l", twelve().versioned(), thirteen().versioned(), &[]);
    a_dependency_of_a_plugin_is_bound_to_the_first_of_equal_versions:
        plugin("l", twelve().versioned(), StandIn::cudart(OF_A_WHEEL, 11).versioned_as(12), &[]);
    a_dependency_of_a_plugin_is_bound_to_the_first_of_equal_versions_of_a_wheel:
        plugin("l", StandIn::cudart(OF_A_WHEEL, 11).versioned_as(12), twelve().versioned(), &[]);
    another_namespace_is_another: opens("3", &[User::of("n", twelve()), User::of("l", thirteen())]);
    a_global_library_is_closed_and_opened_again: opens("4", &[User::of("gc", twelve())]);
    a_global_library_is_opened_again_elsewhere: opens("4", &[User::of("gcm", twelve())]);
    a_local_library_is_opened_again_elsewhere: opens("4", &[User::of("lcm", twelve())]);
    a_library_that_is_closed_is_unloaded: opens("3", &[User::of("gc", twelve().printing())]);
    another_library_comes_in_the_place_of_a_closed_one:
        opens("4", &[User::of("lc", twelve()), User::of("lct", thirteen())]);
    another_global_library_comes_in_the_place_of_a_closed_one:
        opens("4", &[User::of("gc", twelve()), User::of("gct", thirteen())]);
    another_global_library_comes_elsewhere:
        opens("4", &[User::of("gcm", twelve()), User::of("gcmt", thirteen())]);
    a_constructor_makes_the_first_call: opens("2", &[User::of("l", twelve()).with(&["-DIN_CONSTRUCTOR"])]);
    a_constructor_waits_for_a_thread_that_makes_the_first_call:
        opens("2", &[User::of("l", twelve()).with(&["-DIN_CONSTRUCTOR", "-DIN_THREAD"])]);
    a_destructor_makes_the_last_call:
        opens("2", &[User::of("lc", twelve()).with(&["-DIN_DESTRUCTOR", "-DIN_CONSTRUCTOR"])]);
}

#[test]
fn a_second_copy_is_named_as_not_watched() {
    for hazard in [
        linked(twelve().versioned(), thirteen().versioned()),
        opens("3", &[User::of("l", twelve()), User::of("l", thirteen())]),
    ] {
        let received = hazard.is_harmless_and_observed();
        let blind = &received[0].summaries.last().unwrap().hook.blind;
        let copies = "calls not watched: the process has several copies of the CUDA runtime";
        assert!(blind.iter().any(|said| said.contains(copies)), "{blind:?}");
    }
}

/// A library that looks up all its functions has no references by which its runtime could be known.
#[test]
fn an_unknown_copy_is_named_as_not_watched() {
    let pointers = &["-DBY_POINTER"];
    let hazard =
        opens("3", &[User::of("l", twelve()).with(pointers), User::of("l", thirteen()).with(pointers)]);
    let received = hazard.is_harmless_and_observed();
    let blind = &received[0].summaries.last().unwrap().hook.blind;
    let unsure = "the process has several copies of the CUDA runtime, and for some callers it is unknown which copy they use";
    assert!(blind.iter().any(|said| said.contains(unsure)), "{blind:?}");
}

#[test]
fn status_names_a_second_copy() {
    let host = Host::new();
    // The third library is opened and closed in each round, which takes time.
    let third = StandIn::cudart(OF_A_WHEEL, 11);
    let hazard = opens("1000", &[User::of("l", twelve()), User::of("l", thirteen()), User::of("lc", third)]);
    let mut command = hazard.place.watched(&hazard.program);
    let _program = Program::start(command.args(&hazard.arguments).env("XPU_TOP_SOCKET", host.socket()));
    let copies = "calls not watched: the process has several copies of the CUDA runtime";
    until("status to say it", || {
        host.status()["coverage"]["blind"].to_string().contains(copies).then_some(())
    });
}

/// The hazards that run under valgrind.
pub(crate) fn checked() -> [(&'static str, Hazard); 4] {
    [
        ("two runtimes", opens("3", &[User::of("l", twelve()), User::of("l", thirteen())])),
        ("a plugin", plugin("l", twelve(), thirteen(), &[])),
        ("closed and opened again", opens("4", &[User::of("gc", twelve())])),
        ("another in its place", opens("4", &[User::of("lc", twelve()), User::of("lct", thirteen())])),
    ]
}
