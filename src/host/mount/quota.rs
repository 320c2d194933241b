//! Whether the kernel can keep projects of XFS within limits.

use std::path::Path;

use nix::errno::Errno;

use crate::host::error::HostError;
use crate::host::ioctl;
use crate::host::project_quota::ModuleLoading;

/// The text says what is missing. XFS must be there to be asked: it is loaded where that is allowed.
pub fn supports_project_quota(proc: &Path, loading: ModuleLoading) -> Result<(), HostError> {
    ioctl::may_call_quotactl_fd().map_err(|errno| lacks(&why_no_quotactl_fd(errno)))?;
    let xfs = proc.join("fs/xfs");
    match loading {
        ModuleLoading::Allowed => {
            let loaded = ioctl::load_filesystem(c"xfs");
            if !xfs.exists() {
                let why = loaded.err().map(|why| format!(": {why}")).unwrap_or_default();
                return Err(lacks(&format!("has no XFS{why}")));
            }
        }
        ModuleLoading::Forbidden if !xfs.exists() => {
            return Err(lacks("has not loaded XFS, and a dry run does not have it loaded"));
        }
        ModuleLoading::Forbidden => {}
    }
    // The counters of XFS's quota are there whenever it was built with quota, and only then.
    match xfs.join("xqmstat").exists() {
        true => Ok(()),
        false => Err(lacks("was built without quota for XFS (CONFIG_XFS_QUOTA)")),
    }
}

fn lacks(what: &str) -> HostError {
    HostError::Unsupported { what: format!("the kernel {what}") }
}

fn why_no_quotactl_fd(errno: Errno) -> String {
    match errno {
        Errno::ENOSYS => "has no quotactl_fd, which Linux has from 5.14 on".to_owned(),
        // As a filter of system calls answers.
        errno => format!("does not let this process call quotactl_fd: {}", errno.desc()),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_kernel_with_xfs_and_without_its_quota_is_not_taken_for_one_with_both() {
        let proc = tempfile::tempdir().expect("a folder");
        let said = |loading| supports_project_quota(proc.path(), loading).map_err(|error| error.to_string());
        if ioctl::may_call_quotactl_fd().is_err() {
            assert!(said(ModuleLoading::Allowed).is_err_and(|why| why.contains("quotactl_fd")));
            return;
        }
        assert!(said(ModuleLoading::Allowed).is_err_and(|why| why.contains("has no XFS")));
        assert!(said(ModuleLoading::Forbidden).is_err_and(|why| why.contains("has not loaded XFS")));
        fs::create_dir_all(proc.path().join("fs/xfs")).expect("made");
        fs::write(proc.path().join("fs/xfs/stat"), "").expect("written");
        for loading in [ModuleLoading::Allowed, ModuleLoading::Forbidden] {
            assert_eq!(said(loading), Err("the kernel was built without quota for XFS (CONFIG_XFS_QUOTA)".to_owned()));
        }
        fs::write(proc.path().join("fs/xfs/xqmstat"), "").expect("written");
        assert_eq!((said(ModuleLoading::Allowed), said(ModuleLoading::Forbidden)), (Ok(()), Ok(())));
    }

    #[test]
    fn a_call_that_is_forbidden_is_said_to_be_forbidden_and_not_taken_for_one_that_is_there() {
        let said = |errno| lacks(&why_no_quotactl_fd(errno)).to_string();
        assert_eq!(
            said(Errno::EPERM),
            "the kernel does not let this process call quotactl_fd: Operation not permitted"
        );
        assert!(said(Errno::ENOSYS).contains("from 5.14 on"));
    }
}
