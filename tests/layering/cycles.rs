//! No file takes from one that takes from it, and no folder from one that takes from it, by whatever way.

use std::collections::{BTreeMap, BTreeSet};

use super::{SOURCES, is_at, takes_from};

/// What each file or folder takes from others.
pub(super) type Takes = BTreeMap<String, BTreeSet<String>>;

/// Of `src/`, without tests, the fake machine, and the root, which names all modules.
fn takes_of_files() -> Takes {
    let files = SOURCES.iter().filter(|(place, _, test)| !test && place != "lib" && !is_at(place, "host/fake"));
    let takes = |text, place: &String| takes_from(place, text).into_iter().map(str::to_owned).collect();
    files.map(|(place, text, _)| (place.clone(), takes(text, place))).collect()
}

/// The same between neighbours: what lies side by side in one folder. A neighbour is a file, or a folder together with
/// the file that declares its parts; between these parts, that file is a neighbour as well, called `mod`.
fn takes_of_neighbours(files: &Takes) -> Takes {
    let mut takes = Takes::new();
    for (file, other) in files.iter().flat_map(|(file, others)| others.iter().map(move |other| (file, other))) {
        let [file, other] = [file, other].map(|place| place.strip_suffix("/mod").unwrap_or(place));
        let common = file.split('/').zip(other.split('/')).take_while(|(a, b)| a == b).count();
        let neighbour = |place: &str| {
            let parts: Vec<&str> = place.split('/').chain(["mod"]).take(common + 1).collect();
            parts.join("/")
        };
        takes.entry(neighbour(file)).or_default().insert(neighbour(other));
    }
    takes
}

/// Each step of a way that leads back to where it began.
pub(super) fn lead_back(takes: &Takes) -> Vec<(&str, &str)> {
    let leads_to = |from: &str, to: &str| {
        let (mut seen, mut next) = (BTreeSet::new(), vec![from]);
        while let Some(place) = next.pop() {
            next.extend(takes.get(place).into_iter().flatten().map(String::as_str).filter(|other| seen.insert(*other)));
        }
        seen.contains(to)
    };
    let ways = takes.iter().flat_map(|(place, from)| from.iter().map(move |other| (place.as_str(), other.as_str())));
    ways.filter(|(place, other)| leads_to(other, place)).collect()
}

fn cycles(takes: &Takes) -> Vec<String> {
    lead_back(takes).into_iter().map(|(place, other)| format!("src/{place} -> src/{other}")).collect()
}

#[test]
fn no_file_takes_from_one_that_takes_from_it_by_whatever_way() {
    let takes = takes_of_files();
    assert!(takes["pool/disk/open"].contains("pool/disk") && takes["pool/mod"].contains("pool/disk"), "{takes:?}");
    let cycles = cycles(&takes);
    assert!(cycles.is_empty(), "files take from each other:\n{}", cycles.join("\n"));
}

#[test]
fn no_folder_takes_from_one_that_takes_from_it_by_whatever_way() {
    let takes = takes_of_neighbours(&takes_of_files());
    assert!(takes["operator/agent"].contains("operator/volume") && takes["pool/disk/open"].contains("pool/disk/mod"));
    let cycles = cycles(&takes);
    assert!(cycles.is_empty(), "folders take from each other:\n{}", cycles.join("\n"));
}

#[test]
fn folders_that_take_from_each_other_are_found_even_if_no_files_do() {
    let of = |ways: &[(&str, &str)]| {
        let mut files = Takes::new();
        for (file, other) in ways {
            files.entry((*file).to_owned()).or_default().insert((*other).to_owned());
        }
        assert_eq!(cycles(&files), [""; 0], "between files");
        cycles(&takes_of_neighbours(&files))
    };
    let both = ["src/pool/a -> src/pool/b", "src/pool/b -> src/pool/a"];
    assert_eq!(of(&[("pool/a/x", "pool/b/x"), ("pool/b/y", "pool/a/y")]), both);
    assert_eq!(of(&[("pool/a/x", "pool/b"), ("pool/b/y", "pool/a/mod")]), both, "with the files that declare them");
    assert_eq!(of(&[("pool/a/x", "pool/b"), ("pool/b", "pool/a/y")]), both, "with a file beside it");
    assert_eq!(of(&[("pool/a/x", "pool/c"), ("pool/c", "pool/b/y"), ("pool/b/x", "pool/a/y")]).len(), 3, "on a detour");
    assert_eq!(of(&[("pool/a/b/x", "pool/a/c/x"), ("pool/a/c/y", "pool/a/b/y")]).len(), 2, "deeper");
    assert_eq!(of(&[("pool/a/mod", "pool/a/b/x"), ("pool/a/b/y", "pool/a/mod")]).len(), 2, "with its own parts");
    let one_way = [("pool/a/x", "pool/b/x"), ("pool/a", "pool/b/y"), ("pool/a/x", "pool/a"), ("pool/mod", "pool/b")];
    assert_eq!(of(&one_way), [""; 0]);
}
