//! The set that a driver of a test gets: what it may take.

use std::path::Path;

/// A LocalVolumeSet of that name and class over the loop devices whose images the glob names. `layout` is a line of its
/// spec, or more of them.
pub fn set_of_images(name: &str, class: &str, layout: &str, images: &Path) -> String {
    format!(
        "---\napiVersion: local.storage.openshift.io/v1alpha1\nkind: LocalVolumeSet\nmetadata: {{name: {name}}}\n\
         spec:\n  storageClassName: {class}\n  {layout}\n  \
         deviceInclusionSpec: {{deviceTypes: [loop], minSize: '0', paths: [{:?}]}}\n",
        crate::text(images)
    )
}
