//! What PersistentVolumes of other provisioners promise of this node's disks: asked before a claim, and only then.

use std::path::PathBuf;
use std::time::Duration;

use tokio::runtime::Handle;

use crate::api::crd::PromisedPath;
use crate::claim::{AskPromises, NoAnswer, Promise};
use crate::device::PvName;
use crate::host::links;
use crate::host::timeout::Timeouts;
use crate::operator::api_server::error::OperatorError;
use crate::operator::node::question::Questions;

/// How long it may take to read a promised path: it may be on a server that is gone.
const PATH_TIMEOUT: Duration = Duration::from_secs(5);

/// Asks the controller, on a thread of its own: it blocks.
pub fn ask(questions: Questions, runtime: Handle) -> AskPromises {
    let mut timeouts = Timeouts::new(PATH_TIMEOUT);
    Box::new(move || {
        let named = runtime.block_on(questions.promises()).map_err(OperatorError::no_answer)?;
        timeouts.forget(|path| named.iter().any(|named| *path == named.path));
        let resolve = |PromisedPath { name: volume, provisioner, path }| {
            let (path, asked, volume) = (PathBuf::from(&path), PathBuf::from(path), PvName::from(volume));
            let device = timeouts.ask(&path, move || links::device_on_host(&asked));
            match device {
                Ok(device) => Ok(Promise { volume, provisioner, path, device }),
                Err(source) => Err(NoAnswer::Path { path, volume, source }),
            }
        };
        named.into_iter().map(resolve).collect()
    })
}
