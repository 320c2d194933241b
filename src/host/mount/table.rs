//! The mount table, until mountinfo has a reader of its own. Decodes no escapes.

use std::path::PathBuf;

use crate::host::raw::DevNo;
use crate::host::{HostError, Mount};

pub(super) fn read() -> Result<Vec<Mount>, HostError> {
    let failed = |source| HostError::Io { what: "read", object: "/proc/self/mountinfo".into(), source };
    let text = std::fs::read_to_string("/proc/self/mountinfo").map_err(failed)?;
    Ok(text.lines().filter_map(line).collect())
}

fn line(line: &str) -> Option<Mount> {
    let (left, right) = line.split_once(" - ")?;
    let left: Vec<&str> = left.split(' ').collect();
    let right: Vec<&str> = right.split(' ').collect();
    let (major, minor) = left.get(2)?.split_once(':')?;
    let options = [left.get(5)?, right.get(2)?].into_iter().flat_map(|words| words.split(','));
    Some(Mount {
        device: DevNo { major: major.parse().ok()?, minor: minor.parse().ok()? },
        root: PathBuf::from(left.get(3)?),
        target: PathBuf::from(left.get(4)?),
        fs_type: (*right.first()?).to_owned(),
        source: (*right.get(1)?).to_owned(),
        options: options.map(str::to_owned).collect(),
    })
}
