//! The filesystems that an administrator mounted and named, as a set chooses them instead of disks.

use crate::api::strict::{Field, Object};
use crate::claim::{FilesystemChoice, Reclaim};
use crate::device::label::Layout;

/// What is about disks.
const OF_DISKS: [&str; 8] = [
    "array",
    "partitioningSpec",
    "deviceInclusionSpec",
    "deviceExclusionSpec",
    "minDeviceCount",
    "maxDeviceCount",
    "hostMountPath",
    "blankness",
];

pub(super) fn read(spec: &mut Object<'_, '_>, layout: &Layout, reclaim: Option<Reclaim>) -> Option<FilesystemChoice> {
    let field = spec.field(&["filesystems"]);
    if !field.is_given() {
        return None;
    }
    if !layout.is_directory() {
        field.problem("is for the layout Directory alone: volumes on filesystems that you mounted are folders");
    }
    for name in OF_DISKS {
        let other = spec.field(&[name]);
        if other.is_given() {
            other.problem("cannot be combined with filesystems: such a set takes no disks");
        }
    }
    if reclaim == Some(Reclaim::Release) {
        spec.field(&["reclaim"]).problem("cannot be Release with filesystems: a person releases them");
    }
    Some(read_choice(field))
}

fn read_choice(field: Field<'_, '_>) -> FilesystemChoice {
    let mut object = field.object();
    let tags_field = object.field(&["tags"]);
    let tags = tags_field.strings().unwrap_or_default();
    if tags.iter().any(|tag| tag.trim().is_empty()) {
        tags_field.problem("has an empty word");
    }
    object.finish();
    FilesystemChoice { tags: tags.into_iter().collect() }
}
