//! The contents of the image, as SPDX 2.3 in JSON: the crates that are linked into the binary, and the Debian packages
//! of the system that this runs in.
//!
//! Takes in what cargo, rustc and dpkg say; gives out the list of crates (where cargo is), and the document (in the
//! image). SOURCE_DATE_EPOCH, if it is not empty, is the time of creation.

mod document;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::Path;

use super::process::{answer, command};
use super::tree;
use document::{Document, Package};

/// `crates` prints name, version, licence and SHA-256 of each crate, by tabs; `write VERSION REVISION FILE` prints the
/// document, with the crates of that file.
pub fn run(words: &[&str]) -> io::Result<()> {
    match words {
        ["crates"] => crates(),
        ["write", version, revision, file] => write(version, revision, &fs::read_to_string(file)?),
        _ => Err(io::Error::other("usage: xtask sbom crates | write VERSION REVISION CRATES.TSV")),
    }
}

/// The output of a program.
fn text(program: &str, folder: &Path, words: &[&str]) -> io::Result<String> {
    let ended = || io::Error::other(format!("{program} has failed"));
    answer(command(program, folder).args(words))?.map_err(|_| ended())
}

/// Only what ends up in the binary: neither build scripts nor macros nor tests.
fn crates() -> io::Result<()> {
    let root = tree::root()?;
    let rustc = text("rustc", &root, &["-vV"])?;
    let target = rustc.lines().find_map(|line| line.strip_prefix("host: ")).unwrap_or_default();
    let mut words = vec!["tree", "--locked", "--target", target, "--edges", "normal,no-proc-macro"];
    words.extend(["--prefix", "none", "--no-dedupe", "--format", "{p}\t{l}"]);
    let tree = text("cargo", &root, &words)?;
    for line in linked(&tree, &checksums(&fs::read_to_string(root.join("Cargo.lock"))?))? {
        println!("{line}");
    }
    // The standard library is linked in as well, but is in no lock file.
    let rustc = text("rustc", &root, &["-V"])?;
    println!("std\t{}\tMIT OR Apache-2.0\t", rustc.split(' ').nth(1).unwrap_or_default());
    Ok(())
}

/// The rows of the crates in the output of `cargo tree`.
fn linked(tree: &str, sums: &BTreeMap<(&str, &str), &str>) -> io::Result<BTreeSet<String>> {
    let mut rows = BTreeSet::new();
    for line in tree.lines().filter(|line| !line.is_empty()) {
        let (package, licence) = line.split_once('\t').unwrap_or((line, ""));
        let parts = package.split_once(" v").and_then(|(name, rest)| Some((name, rest.split(' ').next()?)));
        let (name, version) =
            parts.ok_or_else(|| io::Error::other(format!("cargo tree says {line:?}, which names no crate")))?;
        let licence = if licence.is_empty() { "NOASSERTION" } else { licence };
        rows.insert(format!("{name}\t{version}\t{licence}\t{}", sums.get(&(name, version)).unwrap_or(&"")));
    }
    Ok(rows)
}

/// The checksums in a lock file, by name and version.
fn checksums(lock: &str) -> BTreeMap<(&str, &str), &str> {
    let packages = lock.split("[[package]]").skip(1).filter_map(|package| {
        let field = |name: &str| {
            package.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(" = \"")?.strip_suffix('"'))
        };
        Some(((field("name")?, field("version")?), field("checksum")?))
    });
    packages.collect()
}

fn write(version: &str, revision: &str, crates: &str) -> io::Result<()> {
    let root = Path::new("/");
    let epoch = std::env::var("SOURCE_DATE_EPOCH").unwrap_or_default();
    let epoch = if epoch.is_empty() { "now".to_owned() } else { format!("@{epoch}") };
    let created = text("date", root, &["-u", "-d", &epoch, "+%Y-%m-%dT%H:%M:%SZ"])?;
    let format = "${db:Status-Status}\t${Package}\t${Version}\t${Architecture}\t${source:Package}\n";
    let installed = text("dpkg-query", root, &["-W", "-f", format])?;
    let release = release(&fs::read_to_string("/etc/os-release")?);
    let mut document = Document::new(version, revision, &created);
    crates.lines().try_for_each(|row| add_crate(&mut document, row))?;
    let mut packages: Vec<&str> = installed.lines().filter_map(|line| line.strip_prefix("installed\t")).collect();
    packages.sort_unstable();
    packages.into_iter().try_for_each(|row| add_debian(&mut document, row, &release))?;
    print!("{document}");
    Ok(())
}

/// `debian-12` of an os-release.
fn release(text: &str) -> String {
    let field =
        |name: &str| text.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default().trim_matches('"');
    format!("{}-{}", field("ID="), field("VERSION_ID="))
}

/// The fields of a row, by tabs.
fn fields<const N: usize>(row: &str) -> io::Result<[&str; N]> {
    let fields: Vec<&str> = row.split('\t').collect();
    fields.try_into().map_err(|_| io::Error::other(format!("{row:?} has not {N} fields")))
}

fn add_crate(document: &mut Document, row: &str) -> io::Result<()> {
    let [name, version, licence, checksum] = fields(row)?;
    if name == "localpool" {
        let locator = format!("pkg:cargo/localpool@{version}");
        let package = Package { id: "localpool".to_owned(), name, version, licence, checksum: "", locator, source: "" };
        document.add("image", "CONTAINS", package);
        return Ok(());
    }
    let licence = licence.split('/').map(|one| one.trim_matches(' ')).collect::<Vec<_>>().join(" OR ");
    let locator = match name {
        "std" => String::new(),
        _ => format!("pkg:cargo/{name}@{}", document::escaped(version)),
    };
    let id = format!("crate-{name}-{version}");
    let package = Package { id, name, version, licence: &licence, checksum, locator, source: "" };
    document.add("localpool", "STATIC_LINK", package);
    Ok(())
}

fn add_debian(document: &mut Document, row: &str, release: &str) -> io::Result<()> {
    let [name, version, architecture, source] = fields(row)?;
    let (escaped_name, escaped_version) = (document::escaped(name), document::escaped(version));
    let locator = format!("pkg:deb/debian/{escaped_name}@{escaped_version}?arch={architecture}&distro={release}");
    let id = format!("deb-{name}-{architecture}");
    document.add(
        "image",
        "CONTAINS",
        Package { id, name, version, licence: "NOASSERTION", checksum: "", locator, source },
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOCK: &str = "version = 4\n\n[[package]]\nname = \"a\"\nversion = \"1.0.0\"\nchecksum = \"11\"\n\n\
                        [[package]]\nname = \"a\"\nversion = \"2.0.0+x\"\nsource = \"r\"\nchecksum = \"22\"\n\n\
                        [[package]]\nname = \"ours\"\nversion = \"0.1.0\"\ndependencies = [\n \"a 1.0.0\",\n]\n";

    fn some<T>(result: io::Result<T>) -> T {
        result.unwrap_or_else(|error| panic!("{error}"))
    }

    #[test]
    fn each_crate_is_a_row_once_with_the_checksum_of_its_version() {
        let tree = "ours v0.1.0 (/src)\tApache-2.0\na v2.0.0+x\tMIT\na v1.0.0\t\na v2.0.0+x\tMIT\n";
        let rows: Vec<String> = some(linked(tree, &checksums(LOCK))).into_iter().collect();
        assert_eq!(rows, ["a\t1.0.0\tNOASSERTION\t11", "a\t2.0.0+x\tMIT\t22", "ours\t0.1.0\tApache-2.0\t"]);
        assert!(linked("[build-dependencies]", &BTreeMap::new()).is_err());
    }

    #[test]
    fn the_document_has_what_contains_what_and_is_json() {
        let mut document = Document::new("0.1.0", "abc", "2026-01-02T03:04:05Z");
        for row in ["localpool\t0.1.0\tApache-2.0\t", "a\t2.0.0+x\tMIT/Apache-2.0\t22", "std\t1.95.0\tMIT\t"] {
            some(add_crate(&mut document, row));
        }
        some(add_debian(&mut document, "libc6\t2.36-9+deb12u1\tamd64\tglibc", "debian-12"));
        let text = document.to_string();
        for line in [
            "    {\"SPDXID\": \"SPDXRef-image\", \"name\": \"localpool.dev/localpool\", \"versionInfo\": \"0.1.0\", \
             \"downloadLocation\": \"NOASSERTION\", \"filesAnalyzed\": false, \"copyrightText\": \"NOASSERTION\", \
             \"licenseConcluded\": \"NOASSERTION\", \"licenseDeclared\": \"NOASSERTION\"},\n",
            "\"licenseDeclared\": \"MIT OR Apache-2.0\", \"checksums\": [{\"algorithm\": \"SHA256\", \
             \"checksumValue\": \"22\"}], \"externalRefs\": [{\"referenceCategory\": \"PACKAGE-MANAGER\", \
             \"referenceType\": \"purl\", \"referenceLocator\": \"pkg:cargo/a@2.0.0%2Bx\"}]},\n",
            "\"sourceInfo\": \"built from the source package glibc\"",
            "\"pkg:deb/debian/libc6@2.36-9%2Bdeb12u1?arch=amd64&distro=debian-12\"}]}\n  ],\n",
            "    {\"spdxElementId\": \"SPDXRef-localpool\", \"relationshipType\": \"STATIC_LINK\", \
             \"relatedSpdxElement\": \"SPDXRef-crate-a-2.0.0-x\"},\n",
            "\"relatedSpdxElement\": \"SPDXRef-deb-libc6-amd64\"}\n  ]\n}\n",
        ] {
            assert!(text.contains(line), "{line}\nis not in\n{text}");
        }
    }

    #[test]
    fn a_release_is_its_id_and_its_version() {
        assert_eq!(release("PRETTY_NAME=\"Debian\"\nVERSION_ID=\"12\"\nID=debian\n"), "debian-12");
    }
}
