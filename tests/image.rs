//! The image as `make image` built it: it contains what its list says, its labels and user are right, and every program
//! that localpool calls works in it. Reads target/image/localpool.tar; without it each test says `skipped: …`.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

use localpool_testing::skipped;
use serde_json::Value;

const LIST: &str = "usr/share/sbom/localpool.spdx.json";

/// The image, unpacked once for all tests.
static IMAGE: LazyLock<Image> = LazyLock::new(Image::unpack);

struct Image {
    root: PathBuf,
    config: Value,
    tags: Value,
}

fn image() -> Option<&'static Image> {
    let archive = archive();
    if !archive.exists() {
        skipped(&format!("needs {}; `make image` makes it", archive.display()));
        return None;
    }
    Some(&IMAGE)
}

fn is_root() -> bool {
    nix::unistd::geteuid().is_root()
}

fn archive() -> PathBuf {
    // The binary under test is in <target>/<profile>.
    PathBuf::from(env!("CARGO_BIN_EXE_localpool")).ancestors().nth(2).unwrap().join("image/localpool.tar")
}

fn json(path: &Path) -> Value {
    serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap()
}

fn untar(archive: &Path, to: &Path) {
    let done = Command::new("tar")
        .args(["--extract", "--no-same-owner", "--same-permissions", "--file"])
        .arg(archive)
        .arg("--directory")
        .arg(to)
        .output()
        .unwrap();
    assert!(done.status.success(), "{done:?}");
}

impl Image {
    /// Unpacked into cargo's own folder for tests, over the rest of the last run.
    fn unpack() -> Self {
        let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join("image");
        let _ = fs::remove_dir_all(&dir);
        let root = dir.join("root");
        fs::create_dir_all(&root).unwrap();
        untar(&archive(), &dir);
        let manifest = json(&dir.join("manifest.json"))[0].clone();
        // As a runtime does it: the layers one over the other, and a file `.wh.x` removes x.
        for layer in manifest["Layers"].as_array().unwrap() {
            untar(&dir.join(layer.as_str().unwrap()), &root);
            let mut gone = Vec::new();
            each_file(&root, &mut |path, _| {
                if path.file_name().unwrap().to_string_lossy().starts_with(".wh.") {
                    gone.push(path.to_owned());
                }
            });
            for mark in gone {
                let name = mark.file_name().unwrap().to_string_lossy().into_owned();
                let victim = mark.with_file_name(name.strip_prefix(".wh.").unwrap());
                let _ = fs::remove_dir_all(&victim).or_else(|_| fs::remove_file(&victim));
                fs::remove_file(&mark).unwrap();
            }
        }
        let config = json(&dir.join(manifest["Config"].as_str().unwrap()))["config"].clone();
        Self { config, tags: manifest["RepoTags"].clone(), root }
    }

    /// The packages in the list, with their entries: by their purl, or by name if they have none.
    fn listed(&self) -> BTreeMap<String, Value> {
        let list = json(&self.root.join(LIST));
        let packages = list["packages"].as_array().unwrap().iter();
        packages
            .map(|package| {
                let purl = package["externalRefs"][0]["referenceLocator"].as_str();
                (purl.unwrap_or(package["name"].as_str().unwrap()).to_owned(), package.clone())
            })
            .collect()
    }

    /// Installed packages by the image's own database: name, version, architecture.
    fn installed(&self) -> BTreeSet<(String, String, String)> {
        let status = fs::read_to_string(self.root.join("var/lib/dpkg/status")).unwrap();
        let field = |stanza: &str, key: &str| {
            let line = stanza.lines().find_map(|line| line.strip_prefix(key)).unwrap_or_default();
            line.trim().to_owned()
        };
        let stanzas = status.split("\n\n").filter(|stanza| field(stanza, "Status:").ends_with(" installed"));
        stanzas.map(|s| (field(s, "Package:"), field(s, "Version:"), field(s, "Architecture:"))).collect()
    }

    fn run(&self, program: &str, args: &[&str]) -> String {
        // A /proc as in a container, in namespaces that end with the program.
        let proc = format!("--mount-proc={}", self.root.join("proc").display());
        let done = Command::new("unshare")
            .args(["--pid", "--fork", "--kill-child", "--mount", &proc, "--", "chroot"])
            .arg("--userspec=65532:65532")
            .arg(&self.root)
            .arg(program)
            .args(args)
            .env_clear()
            .env("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&done.stdout).into_owned() + &String::from_utf8_lossy(&done.stderr);
        assert!(done.status.success(), "{program} {args:?}: {}: {text}", done.status);
        text
    }
}

fn each_file(folder: &Path, visit: &mut dyn FnMut(&Path, &fs::Metadata)) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let metadata = fs::symlink_metadata(&path).unwrap();
        if metadata.is_dir() {
            each_file(&path, visit);
        } else {
            visit(&path, &metadata);
        }
    }
}

#[test]
fn the_list_names_exactly_the_debian_packages_that_are_installed() {
    let Some(image) = image() else { return };
    let encode = |text: &str| text.replace('%', "%25").replace('+', "%2B").replace(':', "%3A").replace('~', "%7E");
    let installed: BTreeSet<String> = image
        .installed()
        .into_iter()
        .map(|(name, version, arch)| format!("pkg:deb/debian/{}@{}?arch={arch}", encode(&name), encode(&version)))
        .collect();
    assert!(installed.len() > 60, "{installed:?}");
    let listed: BTreeSet<String> = image
        .listed()
        .into_keys()
        .filter(|purl| purl.starts_with("pkg:deb/"))
        .map(|purl| purl.strip_suffix("&distro=debian-12").unwrap().to_owned())
        .collect();
    assert_eq!(listed, installed);
}

#[test]
fn every_program_and_library_in_the_image_belongs_to_a_package_or_is_localpool() {
    let Some(image) = image() else { return };
    let root = &image.root;
    let mut owned = BTreeSet::new();
    for entry in fs::read_dir(root.join("var/lib/dpkg/info")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "list") {
            for line in fs::read_to_string(path).unwrap().lines() {
                // Packages still say /bin, but the merged system has /usr/bin.
                let merged = ["/bin/", "/sbin/", "/lib/", "/lib64/"].iter().any(|old| line.starts_with(old));
                owned.insert(if merged { format!("/usr{line}") } else { line.to_owned() });
            }
        }
    }
    let mut strangers = Vec::new();
    each_file(root, &mut |path, metadata| {
        if metadata.is_file() && fs::read(path).unwrap().starts_with(b"\x7fELF") {
            let inside = format!("/{}", path.strip_prefix(root).unwrap().display());
            if !owned.contains(&inside) {
                strangers.push(inside);
            }
        }
    });
    assert_eq!(strangers, ["/usr/local/bin/localpool"]);
}

/// Crates with the path of a source file in the binary (for the place of a panic).
fn crates_seen_in(binary: &[u8]) -> BTreeSet<String> {
    let text: String =
        binary.iter().map(|byte| if byte.is_ascii_graphic() { char::from(*byte) } else { '\n' }).collect();
    let mut seen = BTreeSet::new();
    for (at, _) in text.match_indices("/registry/src/") {
        let Some(folder) = text[at..].split('/').nth(4) else { continue };
        // <name>-<version>; a version begins with a digit, and so may a part of a name (but in none of our crates).
        let Some((cut, _)) = folder.match_indices('-').find(|(cut, _)| {
            folder[cut + 1..].split('.').count() >= 3 && folder[cut + 1..].starts_with(|c: char| c.is_ascii_digit())
        }) else {
            continue;
        };
        seen.insert(format!("pkg:cargo/{}@{}", &folder[..cut], folder[cut + 1..].replace('+', "%2B")));
    }
    seen
}

#[test]
fn the_list_names_every_crate_that_the_binary_shows_and_each_with_its_licence() {
    let Some(image) = image() else { return };
    let listed = image.listed();
    let seen = crates_seen_in(&fs::read(image.root.join("usr/local/bin/localpool")).unwrap());
    assert!(seen.len() > 20, "{seen:?}");
    let missing: Vec<_> = seen.iter().filter(|purl| !listed.contains_key(*purl)).collect();
    assert!(missing.is_empty(), "in the binary and not in the list: {missing:?}");
    for (purl, package) in listed.iter().filter(|(purl, _)| purl.starts_with("pkg:cargo/")) {
        let licence = package["licenseDeclared"].as_str().unwrap();
        assert!(licence != "NOASSERTION" && !licence.contains('/'), "{purl}: {licence}");
        let sum = package["checksums"][0]["checksumValue"].as_str();
        assert!(purl.starts_with("pkg:cargo/localpool@") || sum.is_some_and(|sum| sum.len() == 64), "{purl}: {sum:?}");
    }
    assert!(listed.contains_key("std"), "the standard library");
}

#[test]
fn the_list_is_spdx_whose_relations_hold_and_lies_beside_the_archive_too() {
    let Some(image) = image() else { return };
    let list = json(&image.root.join(LIST));
    assert_eq!(list["spdxVersion"], "SPDX-2.3");
    assert_eq!(json(&archive().with_file_name("localpool.spdx.json")), list);
    let ids: Vec<&str> =
        list["packages"].as_array().unwrap().iter().map(|package| package["SPDXID"].as_str().unwrap()).collect();
    let all: BTreeSet<&str> = ids.iter().copied().chain(["SPDXRef-DOCUMENT"]).collect();
    assert_eq!(all.len(), ids.len() + 1, "an identifier twice");
    let legal = |id: &str| id.chars().all(|c| c.is_ascii_alphanumeric() || c == '.' || c == '-');
    assert!(ids.iter().all(|id| legal(id)));
    let relations = list["relationships"].as_array().unwrap();
    assert_eq!(relations.len(), ids.len(), "each package has one");
    for relation in relations {
        for end in ["spdxElementId", "relatedSpdxElement"] {
            assert!(all.contains(relation[end].as_str().unwrap()), "{relation}");
        }
    }
}

#[test]
fn the_image_is_labelled_runs_as_nobody_and_holds_nothing_of_the_machine_that_made_it() {
    let Some(image) = image() else { return };
    let version = env!("CARGO_PKG_VERSION");
    assert_eq!(image.tags, serde_json::json!([format!("localpool.dev/localpool:{version}")]));
    assert_eq!(image.config["User"], "65532:65532");
    assert_eq!(image.config["Entrypoint"], serde_json::json!(["/usr/local/bin/localpool"]));
    let label = |name: &str| image.config["Labels"][format!("org.opencontainers.image.{name}")].as_str().unwrap();
    assert_eq!((label("title"), label("version"), label("licenses")), ("localpool", version, "Apache-2.0"));
    let revision = label("revision").trim_end_matches("-modified");
    assert!(revision == "unknown" || (revision.len() == 40 && u128::from_str_radix(&revision[..32], 16).is_ok()));
    for file in ["etc/hostname", "etc/resolv.conf", "var/lib/apt/lists/lock", "root/.bash_history"] {
        let size = fs::metadata(image.root.join(file)).map_or(0, |metadata| metadata.len());
        assert_eq!(size, 0, "{file}");
    }
}

#[test]
fn no_program_in_the_image_makes_anybody_somebody_else() {
    let Some(image) = image() else { return };
    if !is_root() {
        skipped("needs root: unpacking keeps setuid bits only for root");
        return;
    }
    each_file(&image.root, &mut |path, metadata| {
        let mode = metadata.permissions().mode();
        assert!(!metadata.is_file() || mode & 0o6000 == 0, "{}: {mode:o}", path.display());
    });
}

#[test]
fn every_program_that_localpool_calls_works_in_the_image_without_root() {
    let Some(image) = image() else { return };
    if !is_root() {
        skipped("needs root, for chroot");
        return;
    }
    assert!(image.run("localpool", &["--version"]).contains(env!("CARGO_PKG_VERSION")));
    let tmp = image.root.join("tmp");
    fs::set_permissions(&tmp, fs::Permissions::from_mode(0o1777)).unwrap();
    let disk = |name: &str, mib: u64| {
        let path = tmp.join(name);
        fs::File::create(&path).unwrap().set_len(mib << 20).unwrap();
        std::os::unix::fs::chown(&path, Some(65532), Some(65532)).unwrap();
        format!("/tmp/{name}")
    };
    let ext4 = disk("ext4", 64);
    image.run("mkfs.ext4", &["-q", "-F", &ext4]);
    image.run("e2fsck", &["-f", "-p", &ext4]);
    fs::OpenOptions::new().write(true).open(tmp.join("ext4")).unwrap().set_len(96 << 20).unwrap();
    image.run("resize2fs", &[&ext4]);
    image.run("mkfs.xfs", &["-q", "-f", &disk("xfs", 320)]);
    image.run("mkfs.btrfs", &["-q", "-f", &disk("btrfs", 128)]);
    // These two only accept mounts.
    image.run("xfs_growfs", &["-V"]);
    image.run("mdadm", &["--version"]);
    image.run("btrfs", &["--version"]);
    image.run("losetup", &["--version"]);
    assert!(fs::metadata(tmp.join("xfs")).unwrap().blocks() > 0);
}
