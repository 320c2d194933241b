//! The import rule and the places of effects (src/lib.rs, docs/architecture.md), checked on the text of src/.
//!
//! Reads every file of `src/` as tokens, without comments and strings, and compares what it names with the tables
//! below. It knows no types: an effect behind a macro or a re-export under another name passes. A new module needs a
//! row in `MODULES`; a new exception needs a reason.

// Cargo leaves out the other tests without a word if they have not this feature (Cargo.toml).
#[cfg(not(feature = "testing"))]
compile_error!(
    "the tests need a feature: `cargo test --features testing`; unit tests alone do not: `cargo test --lib`"
);

mod cycles;
mod methods;
mod names;
mod types;
mod walks;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use names::{Named, Names};

/// Each module of the crate, and what it may import from the crate besides itself.
const MODULES: [(&str, &[&str]); 15] = [
    ("host", &[]),
    ("device", &["host"]),
    ("claim", &["host", "device"]),
    // Turns what users write into `claim`'s rules, and does not know pools and volumes.
    ("api", &["host", "device", "claim"]),
    ("pool", &["host", "device", "claim"]),
    ("health", &["host", "device", "pool"]),
    ("volume", &["host", "device", "pool", "health"]),
    ("show", &["host", "device", "pool", "health", "volume"]),
    ("agent", &["host", "device", "claim", "pool", "health", "show"]),
    // The edges. They meet in the wiring, and do not import each other.
    ("rpc", &["host", "device", "claim", "pool", "health", "volume", "show", "agent"]),
    ("operator", &["host", "device", "claim", "api", "pool", "health", "volume", "show", "agent"]),
    // The wiring: each role joins the parts, and the command line starts the roles.
    ("role", &["host", "device", "claim", "api", "pool", "health", "volume", "show", "agent", "rpc", "operator"]),
    ("demo", &["host", "device", "api", "pool", "health", "volume", "rpc", "role"]),
    (
        "cli",
        &[
            "host", "device", "claim", "api", "pool", "health", "volume", "show", "agent", "rpc", "operator", "role",
            "demo",
        ],
    ),
    ("main", &["cli"]),
];

/// The files of `pool` with effects; all others are values, and know none of these.
const SHELL_OF_POOL: [&str; 14] = [
    "pool/background",
    "pool/change",
    "pool/create",
    "pool/device_pool",
    "pool/disk",
    "pool/disk_config",
    "pool/erase",
    "pool/filesystem",
    "pool/journal_store",
    "pool/labelled",
    "pool/bare",
    "pool/member",
    "pool/settle",
    "pool/whereabouts",
];

/// A name that only some files may use. A place is a path below `src/` without `.rs`, and all that is below it.
struct Seam {
    what: &'static str,
    /// As tokens: `dyn Disk` matches the two words, `std::fs` matches the path.
    names: &'static [&'static str],
    /// Where it belongs, and the exceptions, each with its reason.
    places: &'static [(&'static str, &'static str)],
    /// Whether code under `#[cfg(test)]` may name it anywhere.
    tests: Tests,
}

#[derive(Clone, Copy, PartialEq)]
enum Tests {
    Too,
    Exempt,
}

const SHELLS: &[(&str, &str)] = &[
    ("host", "declares and implements it"),
    ("device/discovery", "looks at the machine"),
    ("pool/device_pool", "holds the journal of this machine"),
    ("pool/disk", "performs plans"),
    ("pool/disk_config", "reads and begins the configuration file of a filesystem"),
    ("pool/erase", "erases and cleans"),
    ("pool/journal_store", "reads and writes the journal"),
    ("pool/labelled", "holds an open disk"),
    ("pool/bare", "holds an open device"),
    ("pool/filesystem", "makes and mounts a filesystem, and holds its root"),
    ("agent", "opens, claims and wipes what a pass decides"),
    ("volume/node", "mounts volumes"),
    ("volume/local", "the port `Volumes` on this node's pool"),
    ("role", "wiring: makes the real host"),
    ("demo", "wiring"),
    ("cli", "wiring: makes the real host"),
];

const SEAMS: [Seam; 9] = [
    Seam { what: "the machine", names: &["Host", "RealHost", "FakeHost"], places: SHELLS, tests: Tests::Exempt },
    Seam {
        what: "an open disk or filesystem",
        names: &[
            "dyn Disk",
            "PartitionMap",
            "dyn Mounts",
            "dyn Filesystems",
            "dyn FilesystemRoot",
            "dyn StateStore",
            "dyn Arrays",
        ],
        places: SHELLS,
        tests: Tests::Exempt,
    },
    Seam {
        what: "the bytes of a disk",
        names: &["BlockDevice"],
        places: &[
            ("host", "declares and implements it"),
            ("device/discovery", "hands a disk to the reader of its record"),
            ("device/record", "the codec of labels: bytes in, bytes out"),
            ("pool/disk", "performs plans"),
            ("pool/erase", "erases and cleans"),
            ("pool/bare", "looks at what a bare device holds"),
            ("agent", "reads the record of a device"),
        ],
        tests: Tests::Exempt,
    },
    Seam {
        what: "files, processes and mounts",
        names: &["std::fs", "std::process::Command", "nix::mount", "tokio::fs", "tokio::process"],
        places: &[
            ("host", "the only effects"),
            ("rpc/server", "a socket is a file: bound aside, renamed into its place"),
            ("role/sets", "reads the file of sets that a person named"),
            ("role/sidecar", "keeps the identity of the sidecars in the folder that they mount"),
            ("demo", "makes and removes the image files of its own disks"),
        ],
        tests: Tests::Exempt,
    },
    Seam {
        what: "gRPC",
        names: &["tonic", "prost", "prost_types", "hyper_util", "tower"],
        places: &[
            ("rpc", "the gRPC edge"),
            ("role", "wiring: joins the services to their sockets"),
            ("cli", "wiring: a client of the agent's socket"),
            ("demo", "a client of the CSI socket"),
            (
                "operator/reaction/lease_annotation/tests",
                "an API server that takes an annotation out, below kube's client",
            ),
        ],
        tests: Tests::Too,
    },
    Seam {
        what: "gRPC codes",
        names: &["tonic::Code", "tonic::Status"],
        places: &[
            ("rpc", "the one table of codes"),
            ("cli/ask", "a client: prints the words of the status that it got"),
            ("demo", "a client: shows the status that it got"),
        ],
        tests: Tests::Too,
    },
    Seam {
        what: "the async runtime",
        names: &["tokio", "tokio_stream", "tokio_util", "async"],
        places: &[
            ("volume/mod", "the port is async: one implementation waits for objects of a cluster"),
            ("volume/local", "moves work to blocking threads"),
            ("volume/node", "moves work to blocking threads"),
            ("rpc", "the async edge"),
            ("operator", "watches and answers of the API server"),
            ("role", "wiring"),
            ("demo", "wiring"),
            ("cli", "wiring"),
        ],
        tests: Tests::Too,
    },
    Seam {
        what: "Kubernetes' own type of a PersistentVolume",
        names: &["k8s_openapi::api::core::v1::PersistentVolume"],
        places: &[
            ("operator/kube_volume", "the one conversion: what all others read is a value of localpool's"),
            ("operator/volume/manifest", "writes one, which a person applies"),
        ],
        tests: Tests::Exempt,
    },
    Seam {
        what: "unsafe code",
        names: &["unsafe", "unsafe_code"],
        places: &[("host/ioctl", "the ioctls that neither std nor nix wraps")],
        tests: Tests::Too,
    },
];

// === What is wrong with one file

fn violations(place: &str, text: &str, test_file: bool) -> Vec<String> {
    let found = Names::of(place, text);
    let module = place.split('/').next().unwrap_or_default();
    let Some((_, allowed)) = MODULES.iter().find(|(name, _)| *name == module) else {
        return vec![format!("src/{place}: module `{module}` has no row in MODULES of tests/layering")];
    };
    let mut wrong = Vec::new();
    for Named { path, line, .. } in found.ours.iter() {
        let target = path[0].as_str();
        let known = MODULES.iter().any(|(name, _)| *name == target);
        if known && target != module && !allowed.contains(&target) {
            wrong
                .push(format!("src/{place}.rs:{line}: `{module}` must not import `{target}` (in {})", path.join("::")));
        }
        let is_shell = |place: &str| SHELL_OF_POOL.iter().any(|shell| is_at(place, shell));
        if module == "pool" && place != "pool/mod" && !is_shell(place) && is_shell(&path.join("/")) {
            wrong.push(format!("src/{place}.rs:{line}: a pure part of `pool` must not know its shell `{}`", path[1]));
        }
    }
    for Seam { what, names, places, tests } in &SEAMS {
        if places.iter().any(|(home, _)| is_at(place, home)) {
            continue;
        }
        let exempt = *tests == Tests::Exempt;
        for name in found.all.iter().filter(|name| !(exempt && (test_file || name.in_test))) {
            if let Some(said) = names.iter().find(|said| name.says(said)) {
                wrong.push(format!("src/{place}.rs:{}: {what} (`{said}`) has no place here", name.line));
            }
        }
    }
    wrong
}

fn is_at(place: &str, home: &str) -> bool {
    place == home || place.strip_prefix(home).is_some_and(|rest| rest.starts_with('/'))
}

// === The tests

/// Every file of `src/`: its place, its text, and whether it is compiled for tests only.
static SOURCES: LazyLock<Vec<(String, String, bool)>> = LazyLock::new(sources);

fn sources() -> Vec<(String, String, bool)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut folders: Vec<PathBuf> = vec![root.clone()];
    let mut files = BTreeMap::new();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).expect("src is readable") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|end| end == "rs") {
                let place = path.strip_prefix(&root).expect("below src").with_extension("");
                let place = place.to_str().expect("names are UTF-8").to_owned();
                files.insert(place, std::fs::read_to_string(&path).expect("a source file"));
            }
        }
    }
    let mut for_tests = BTreeSet::new();
    for (place, text) in &files {
        let folder = place.strip_suffix("/mod").unwrap_or(place);
        let modules = Names::of(place, text).test_modules;
        for_tests.extend(
            modules.iter().map(|module| if place == "lib" { module.clone() } else { format!("{folder}/{module}") }),
        );
    }
    let is_test = |place: &str| for_tests.iter().any(|module| is_at(place, module));
    files.into_iter().map(|(place, text)| (place.clone(), text, is_test(&place))).collect()
}

#[test]
fn a_module_imports_only_from_its_left_and_effects_stay_in_their_places() {
    assert!(SOURCES.len() > 50, "only {} files were found", SOURCES.len());
    let wrong: Vec<String> = SOURCES
        .iter()
        .filter(|(place, ..)| place != "lib")
        .flat_map(|(place, text, test_file)| violations(place, text, *test_file))
        .collect();
    assert!(wrong.is_empty(), "\n{}\n", wrong.join("\n"));
}

/// The modules that have a facade, and those of their parts that others may call by name, as `table::read_copies`.
/// Everything else that others need is an item of `mod.rs`. Samples and the fake host are for tests alone.
const FACADES: [(&str, &[&str]); 12] = [
    // Functions that say little without the name of their part, and the parts that tests try on a real kernel.
    ("host", &["ioctl", "links", "machine_id", "timeout", "signature", "state", "stdout", "sysfs", "table"]),
    // `label` is the shape of what is on a disk; `record` reads and writes it.
    ("device", &["duplicate", "fact_table", "id", "label", "lvm_filter", "record", "udev_rules"]),
    ("claim", &[]),
    // `crd` is the shape of what is in the API server.
    ("api", &["crd", "node_selector", "quantity"]),
    ("pool", &[]),
    ("health", &[]),
    ("volume", &[]),
    ("show", &["devices", "health", "volumes"]),
    ("agent", &[]),
    // `proto` is generated.
    ("rpc", &["client", "proto", "registration", "server"]),
    // A part of `operator` is an object, one of the two roles, or a verb about several objects.
    ("operator", &["agent", "controller", "crds", "discovery", "drain", "overview", "volume"]),
    // The roles that the command line starts, and functions that say little without the name of their part.
    ("role", &["controller", "discovery", "http", "machine", "node", "observer", "sets", "standalone", "status_page"]),
];

#[test]
fn nothing_imports_past_a_facade() {
    for (module, parts) in FACADES {
        let (_, text, _) = SOURCES.iter().find(|(place, ..)| *place == format!("{module}/mod")).expect("a facade");
        let for_tests = ["fake", "sample"];
        let open = text.lines().filter_map(|line| line.strip_prefix("pub mod ")?.strip_suffix([';', '{']));
        let open: BTreeSet<&str> = open.map(str::trim).filter(|part| !for_tests.contains(part)).collect();
        assert_eq!(open, parts.iter().copied().collect(), "the public parts of src/{module}/mod.rs");
    }
    let shipped = SOURCES.iter().filter(|(.., for_tests)| !for_tests);
    let past: Vec<String> = shipped.flat_map(|(place, text, _)| past_a_facade(place, text)).collect();
    assert!(past.is_empty(), "\n{}\n", past.join("\n"));
}

/// Paths that lead from one module into a file of another that is not a public part of its facade.
fn past_a_facade(place: &str, text: &str) -> Vec<String> {
    let module = place.split('/').next().unwrap_or_default();
    let leads_past = |path: &[String]| {
        let facade = FACADES.iter().any(|(facade, _)| path[0] == *facade && module != *facade);
        facade
            && path.len() > 3
            && file_of(path).is_some_and(|file| file.strip_suffix("/mod").unwrap_or(file).matches('/').count() > 1)
    };
    let past = Names::of(place, text).ours.into_iter().filter(|name| !name.in_test && leads_past(&name.path));
    past.map(|name| format!("src/{place}.rs:{}: {} leads past a facade", name.line, name.path.join("::"))).collect()
}

#[test]
fn a_path_past_a_facade_is_found() {
    let bad = ["use crate::operator::volume::abandon::abandon;", "use crate::host::table::copies::read_copies;"];
    for line in bad {
        assert_eq!(past_a_facade("cli/ask", line).len(), 1, "{line}");
    }
    for line in ["use crate::host::table::{Table, read_copies};", "use crate::device::{Size, label::Layout};"] {
        assert_eq!(past_a_facade("cli/ask", line), Vec::<String>::new(), "{line}");
    }
    assert_eq!(past_a_facade("operator/set/parsed", bad[0]), Vec::<String>::new());
}

/// The file that a path from the crate's root leads into.
fn file_of(path: &[String]) -> Option<&'static str> {
    let is_file = |end: usize| {
        let place = path[..end].join("/");
        SOURCES.iter().map(|(file, ..)| file.as_str()).find(|file| file.strip_suffix("/mod").unwrap_or(file) == place)
    };
    (1..=path.len()).map_while(is_file).last()
}

/// The files from which a file imports, without its tests.
fn takes_from(place: &str, text: &str) -> BTreeSet<&'static str> {
    let found = Names::of(place, text);
    let module: Vec<String> = place.strip_suffix("/mod").unwrap_or(place).split('/').map(str::to_owned).collect();
    // `pub(in crate::operator)` only says who may import, and imports nothing.
    let is_around = |path: &[String]| place.starts_with(&format!("{}/", path.join("/")));
    let ours = found.ours.iter().filter(|name| !name.in_test && !is_around(&name.path));
    let ours = ours.filter_map(|name| file_of(&name.path));
    // What a module imports from its own parts, by their names.
    let parts = found.all.iter().filter(|name| !name.in_test && name.path.len() > 1).filter_map(|name| {
        let file = file_of(&[module.as_slice(), &name.path[..]].concat())?;
        file_of(&[module.as_slice(), &name.path[..1]].concat()).filter(|part| *part != place).map(|_| file)
    });
    ours.chain(parts).filter(|file| *file != place).collect()
}

#[test]
fn the_table_has_no_cycle_and_the_edges_do_not_import_each_other() {
    for (index, (module, imports)) in MODULES.iter().enumerate() {
        for import in *imports {
            let left = MODULES.iter().position(|(name, _)| name == import).expect("an import is a module");
            assert!(left < index, "{module} imports {import}, which is not left of it");
        }
    }
    let edges = ["rpc", "operator"];
    for (module, imports) in MODULES.iter().filter(|(module, _)| edges.contains(module)) {
        assert!(!imports.iter().any(|import| edges.contains(import)), "{module} imports another edge");
    }
}

#[test]
fn a_module_and_a_place_that_are_allowed_something_still_exist() {
    let places = SEAMS.iter().flat_map(|seam| seam.places).map(|(place, _)| *place);
    for place in places.chain(MODULES.iter().map(|(module, _)| *module)) {
        assert!(SOURCES.iter().any(|(file, ..)| is_at(file, place)), "nothing is at src/{place}");
    }
}

/// Lines that are neither blank nor a comment, nor of an item that only tests have.
fn code_lines(text: &str) -> usize {
    let is_code = |line: &str| !line.trim().is_empty() && !line.trim_start().starts_with("//");
    let (mut lines, mut count) = (text.lines(), 0);
    while let Some(line) = lines.next() {
        if line == "#[cfg(test)]" {
            // The item ends with its line, or with a brace of its own.
            let is_open = |line: &str| !(line.ends_with(';') || line.ends_with('}'));
            if lines.next().is_some_and(is_open) {
                lines.find(|line| *line == "}" || *line == "};");
            }
        } else if is_code(line) {
            count += 1;
        }
    }
    count
}

#[test]
fn no_file_is_longer_than_a_reader_keeps_in_mind() {
    const MOST: usize = 300;
    assert_eq!(code_lines("//! a\nuse b;\n\n    // c\nfn d() {\n}\n#[cfg(test)]\nmod tests {}\n"), 3);
    assert_eq!(code_lines("#[cfg(test)]\nmod sample;\nfn a() {}\n#[cfg(test)]\nfn b() {\n    c();\n}\nfn d() {}\n"), 2);
    let files = SOURCES.iter().filter(|(.., is_test)| !is_test);
    let lines = files.map(|(place, text, _)| (code_lines(text), place));
    let long: Vec<String> =
        lines.filter(|(lines, _)| *lines > MOST).map(|(n, place)| format!("src/{place}.rs: {n}")).collect();
    assert!(long.is_empty(), "a file has at most {MOST} lines of code:\n{}", long.join("\n"));
}

#[test]
fn files_for_tests_are_told_from_others() {
    let of = |wanted: &str| SOURCES.iter().find(|(place, ..)| place == wanted).map(|(_, _, test)| *test);
    assert_eq!(of("device/sample"), Some(true));
    assert_eq!(of("host/table/tests/hostile"), Some(true));
    assert_eq!(of("host/table/write"), Some(false));
}

/// The rule can fail: one bad line in a file that is otherwise fine.
#[test]
fn each_bad_line_is_found_and_its_good_neighbour_is_not() {
    let bad = [
        ("device/id", "use crate::pool::Demand;", "must not import `pool`"),
        ("host/disk", "fn f() { crate::device::id::identify() }", "must not import `device`"),
        ("pool/choose", "use crate::{\n    host::Extent,\n    volume::{VolumeId, Error},\n};", "rs:3: `pool`"),
        ("pool/plan/create", "use super::super::super::rpc::server;", "must not import `rpc`"),
        ("rpc/csi/node", "use crate::operator::decide;", "must not import `operator`"),
        ("operator/decide", "type T = crate::rpc::NodeService;", "must not import `rpc`"),
        ("show/row", "mod inner { use super::super::super::rpc::server; }", "must not import `rpc`"),
        ("api/strict", "use crate::pool::layout;", "must not import `pool`"),
        ("role/standalone", "use crate::cli::Cli;", "must not import `cli`"),
        ("main", "use localpool::pool::choose;", "must not import `pool`"),
        ("pool/choose", "use super::member::LabelledDisk;", "must not know its shell"),
        ("pool/plan/mod", "use crate::pool::{content::Content, disk};", "must not know its shell"),
        ("pool/choose", "fn f(host: &dyn Host) {}", "the machine"),
        ("claim/rule", "use crate::host::{RawDisk, Host};", "the machine"),
        ("pool/plan/erase", "fn f(disk: &dyn crate::host::Disk) {}", "an open disk"),
        ("pool/content", "use crate::host::BlockDevice;", "the bytes of a disk"),
        ("pool/journal", "fn f() { std::fs::read(\"x\"); }", "files, processes"),
        ("rpc/csi/node", "use std::{fs, io};", "files, processes"),
        ("volume/node", "use std::process::{self, Command};", "files, processes"),
        ("volume/node", "use nix::mount::umount;", "files, processes"),
        ("volume/mod", "fn f() -> tonic::Status {}", "gRPC codes"),
        ("cli", "use tonic::{Request, Code};", "gRPC codes"),
        ("volume/local", "use prost::Message;", "gRPC (`prost`)"),
        ("pool/device_pool", "async fn f() {}", "the async runtime"),
        ("host/command", "use tokio::process::Command;", "the async runtime"),
        ("host/disk", "fn f() { unsafe { g() } }", "unsafe code"),
        ("host/disk", "#![allow(unsafe_code)]", "unsafe code"),
        (
            "operator/drain/objects",
            "use k8s_openapi::api::core::v1::{Node, PersistentVolume as Core};",
            "Kubernetes' own",
        ),
        ("shiny/new", "", "no row in MODULES"),
    ];
    for (place, line, words) in bad {
        let wrong = violations(place, line, false);
        assert!(wrong.iter().any(|w| w.contains(words)), "{place}: {line:?} gave {wrong:?}, not {words:?}");
    }
    let good = [
        ("pool/choose", "use crate::host::{Extent, FsKind};\nuse crate::device::label::Layout;"),
        ("pool/choose", "// use crate::rpc::server;\n/* std::fs::read /* nested */ unsafe */"),
        ("pool/choose", "const S: &str = \"crate::csi \\\" unsafe\"; const R: &str = r#\"std::fs \" tonic\"#;"),
        ("pool/choose", "fn f<'a>(c: &'a str) -> char { let _ = '\"'; let _ = '\\''; 'u' }"),
        (
            "pool/journal",
            "#[cfg(test)]\nmod tests { use crate::host::fake::FakeHost; fn f() { std::fs::read(\"x\"); } }",
        ),
        ("pool/journal", "#[cfg(any(test, feature = \"testing\"))]\nmod sample { use crate::host::fake::FakeHost; }"),
        ("device/record/frame", "fn f(device: &dyn BlockDevice) {}"),
        ("pool/disk", "use crate::host::{BlockDevice, Disk, Host};"),
        ("role/sets", "use crate::rpc::server; use std::fs;"),
        ("main", "use std::process::ExitCode; fn main() { localpool::cli::Cli::parse(); }"),
        ("volume/publish", "use super::Error; fn f(host: u8, disk: u8) {}"),
        ("rpc/server", "use std::fs; use tonic::{Code, Status}; async fn f() {}"),
        ("operator/drain/objects", "use k8s_openapi::api::core::v1::{Node, PersistentVolumeClaim};"),
        ("operator/kube_volume/object", "use k8s_openapi::api::core::v1::PersistentVolume as Core;"),
    ];
    for (place, lines) in good {
        assert_eq!(violations(place, lines, false), Vec::<String>::new(), "{place}: {lines:?}");
    }
    let effect = "fn f() { std::fs::read(\"x\"); }";
    assert_eq!(violations("pool/journal", &format!("#[cfg(test)]\nmod t {{}}\n{effect}"), false).len(), 1);
    assert_eq!(violations("pool/tests", effect, true), Vec::<String>::new());
}
