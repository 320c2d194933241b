//! How the disks of a NodeDiskSetup are measured: by the node's agent, or by a command in the pod that waits.

use std::time::Duration;

use crate::api::strict::{Case, Field, Object};

/// Where Scylla's pods mount their volume.
const MOUNT_POINT: &str = "/var/lib/scylla";
/// How long a command may take, in seconds, if the object does not say.
const TIMEOUT: i64 = 600;
/// The longest time that an object may give it.
const LONGEST: i64 = 3600;
/// The most bytes of a command: it is part of the address of a request.
const COMMAND_BYTES: usize = 8192;
/// The most bytes of a container's name.
const NAME_BYTES: usize = 63;

/// How disks are measured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BenchmarkOptions {
    pub precomputed: PrecomputedUse,
    /// The path in the pod, as the result names it.
    pub mount_point: String,
    pub place: BenchmarkPlace,
}

/// Whether the figures that are published for a type of machine are used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PrecomputedUse {
    Use,
    Ignore,
}

/// Where a disk is measured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BenchmarkPlace {
    /// By the node's agent.
    Node,
    /// In the pod that waits, where the controller may do that.
    Pod(PodCommand),
}

/// What is run in a pod. It prints what Scylla reads as `io_properties.yaml`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodCommand {
    pub command: Vec<String>,
    /// `None`: the first one that runs and mounts the volume.
    pub container: Option<String>,
    pub timeout: Duration,
}

#[derive(Clone, Copy)]
enum RunIn {
    Node,
    Pod,
}

pub(super) fn read_options(mut options: Object<'_, '_>) -> BenchmarkOptions {
    let precomputed = match options.field(&["ignorePrecomputed"]).boolean() {
        Some(true) => PrecomputedUse::Ignore,
        Some(false) | None => PrecomputedUse::Use,
    };
    let mount_point = options.field(&["mountPoint"]);
    let path = mount_point.string().unwrap_or(MOUNT_POINT);
    if !path.starts_with('/') || path.len() > 1024 || path.contains(char::is_control) {
        mount_point.problem(format!("{path:?} is not a path in the pod, such as {MOUNT_POINT}"));
    }
    let place = read_place(&mut options);
    options.finish();
    BenchmarkOptions { precomputed, mount_point: path.to_owned(), place }
}

fn read_place(options: &mut Object<'_, '_>) -> BenchmarkPlace {
    let run_in = options.field(&["runIn"]).one_of(&[("Node", RunIn::Node), ("Pod", RunIn::Pod)], Case::Exact);
    let [command, container, timeout] =
        [options.field(&["command"]), options.field(&["container"]), options.field(&["timeoutSeconds"])];
    match run_in.unwrap_or(RunIn::Node) {
        RunIn::Node => {
            for field in [&command, &container, &timeout].into_iter().filter(|field| field.is_given()) {
                field.problem("is for runIn: Pod; on the node, fio measures");
            }
            BenchmarkPlace::Node
        }
        RunIn::Pod => BenchmarkPlace::Pod(PodCommand {
            command: read_command(&command),
            container: read_container(&container),
            timeout: read_timeout(&timeout),
        }),
    }
}

fn read_command(field: &Field<'_, '_>) -> Vec<String> {
    if !field.is_given() {
        field.problem(
            "is required with runIn: Pod: what is run in the container, such as iotune, as localpool puts no program of \
             its own into the image of somebody else",
        );
    }
    let elements = field.list().unwrap_or_default();
    let words: Vec<String> = elements.iter().filter_map(|word| word.string().map(str::to_owned)).collect();
    // One with a slip in it is told by that.
    if field.value().is_some_and(|value| value.as_array().is_some_and(|list| list.len() == words.len())) {
        if words.first().is_none_or(|program| program.trim().is_empty()) {
            field.problem("names no program");
        }
        if words.iter().any(|word| word.contains('\0')) {
            field.problem("has a NUL in it, which no program can be given");
        }
        if words.iter().map(String::len).sum::<usize>() > COMMAND_BYTES {
            field.problem(format!(
                "has more than {COMMAND_BYTES} bytes: put it into a file of the image or of a ConfigMap"
            ));
        }
    }
    words
}

fn read_container(field: &Field<'_, '_>) -> Option<String> {
    let name = field.string()?;
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    if name.is_empty() || name.len() > NAME_BYTES || !name.chars().all(plain) {
        field.problem(format!("{name:?} is not the name of a container"));
    }
    Some(name.to_owned())
}

fn read_timeout(field: &Field<'_, '_>) -> Duration {
    let seconds = field.integer(1, LONGEST).unwrap_or(TIMEOUT);
    Duration::from_secs(seconds.unsigned_abs())
}
