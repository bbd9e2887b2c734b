//! Checks the layouts against NCCL's public headers: against what a program printed of them (`offsets.txt`), and
//! against a checkout, if `XPU_TEST_NCCL_HEADERS` names its folder with `profiler.h`
//! (`plugins/profiler/example/nccl`).

use std::{env, fs, path::Path, process::Command};

use super::{CollApi, Layout, PARENT, VERSIONS, layout};

/// Fields and their offsets in this file.
fn fields(version: usize) -> Vec<(&'static str, usize)> {
    let Layout { coll, p2p, .. } = *layout(version);
    let mut fields = vec![
        ("parentObj", PARENT),
        ("coll.func", coll.func),
        ("coll.count", coll.count),
        ("coll.root", coll.root),
        ("coll.datatype", coll.datatype),
        ("coll.algo", coll.algo),
        ("coll.proto", coll.proto),
        (if version < 4 { "coll.nMaxChannels" } else { "coll.nChannels" }, coll.channels),
        ("p2p.func", p2p.func),
        ("p2p.datatype", p2p.datatype),
        ("p2p.count", p2p.count),
        ("p2p.peer", p2p.peer),
    ];
    fields.extend(coll.hash.map(|hash| ("coll.commHash", hash)));
    if version >= super::WITH_CALLS {
        fields.extend([
            ("collApi.func", CollApi::FUNC),
            ("collApi.count", CollApi::COUNT),
            ("collApi.datatype", CollApi::DATATYPE),
            ("collApi.root", CollApi::ROOT),
            ("collApi.stream", CollApi::STREAM),
        ]);
    }
    fields
}

/// `version field bytes`, for each size and offset of a version.
fn ours(version: usize) -> Vec<String> {
    let Layout { size, narrow_type, numbers, .. } = *layout(version);
    let (narrow, number) = (if narrow_type { 1 } else { 8 }, if numbers { 1 } else { 8 });
    let sizes = [("size", size), ("type", narrow), ("func", number), ("plugin", 48)];
    let all = sizes.into_iter().chain(fields(version));
    all.map(|(name, bytes)| format!("{version} {name} {bytes}")).collect()
}

#[test]
fn fields_are_where_the_public_headers_had_them() {
    let known: Vec<_> = include_str!("offsets.txt").lines().filter(|line| !line.starts_with('#')).collect();
    let last: usize = known.last().and_then(|line| line.split(' ').next()?.parse().ok()).unwrap();
    let ours: Vec<_> = (1..=last).flat_map(ours).collect();
    assert_eq!(ours, known);
}

/// A program that prints the same lines for the headers.
fn program(versions: &[usize]) -> String {
    let mut lines = String::new();
    for &version in versions {
        let of = format!("ncclProfilerEventDescr_v{version}_t");
        let one =
            |name: &str, what: &str| format!("  printf(\"{version} {name} %zu\\n\", (size_t){what});\n");
        lines += &one("size", &format!("sizeof({of})"));
        lines += &one("type", &format!("sizeof((({of}*)0)->type)"));
        lines += &one("func", &format!("sizeof((({of}*)0)->coll.func)"));
        lines += &one("plugin", &format!("sizeof(ncclProfiler_v{version}_t)"));
        for (field, _) in fields(version) {
            lines += &one(field, &format!("offsetof({of}, {field})"));
        }
    }
    format!(
        "#include <stddef.h>\n#include <stdio.h>\n#include \"err.h\"\n#include \"profiler.h\"\nint main() {{\n{lines}}}\n"
    )
}

#[test]
fn fields_are_where_the_headers_of_a_checkout_have_them() {
    let Some(folder) = env::var_os("XPU_TEST_NCCL_HEADERS") else { return };
    let folder = Path::new(&folder);
    let versions: Vec<_> =
        (1..=VERSIONS).filter(|version| folder.join(format!("profiler_v{version}.h")).exists()).collect();
    assert!(!versions.is_empty(), "no profiler_v1.h in {}", folder.display());
    let place = env::temp_dir().join(format!("xpu-top-layouts-{}", std::process::id()));
    fs::create_dir_all(&place).unwrap();
    let (source, binary) = (place.join("layouts.cc"), place.join("layouts"));
    fs::write(&source, program(&versions)).unwrap();
    let compiled = Command::new("c++")
        .args(["-Wno-invalid-offsetof", "-I"])
        .args([folder, &source])
        .arg("-o")
        .arg(&binary)
        .output()
        .unwrap();
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
    let said = String::from_utf8(Command::new(&binary).output().unwrap().stdout).unwrap();
    fs::remove_dir_all(&place).unwrap();
    let ours: Vec<_> = versions.iter().flat_map(|&version| ours(version)).collect();
    assert_eq!(ours, said.lines().collect::<Vec<_>>());
}
