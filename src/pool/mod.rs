//! What we make of disks: layouts, extents, placement and plans (pure), and their execution.
//!
//! Takes in devices and rules; gives out volumes' places, capacity, and changed disks. `disk`, `erase`, `labelled`,
//! `filesystem` and `bare` touch a disk, `journal_store` the state directory; what they perform is decided elsewhere.
//!
//! * `device_pool`: all members; `create`, `change`, `settle`: the verbs that `volume` calls; `whereabouts`: where a
//!   volume is, and may be.
//! * `labelled`: a labelled disk over its life; `filesystem`: one whose volumes are folders, and `directory`: their
//!   names, `directory_table`: all of them; `bare`: a bare device; `member`: what all have in common.
//! * `disk`: one open disk, performs the steps of a `plan`; `erase`: its background work; `erasure`: how far that is;
//!   `background`: that of all.
//! * `named_filesystem`: which filesystem of an administrator is the one that its name had before (pure);
//!   `disk_config`: the file that says it.
//! * `cordon`: which disks take no new volumes; `arrays`: what is said of arrays of disks.
//! * `view`: what others see of it; `error`: why a verb was not done.

mod arrays;
mod background;
mod bare;
mod change;
mod choose;
mod config_file;
mod content;
mod cordon;
mod create;
mod device_pool;
mod directory;
mod directory_table;
mod disk;
mod disk_config;
mod earlier;
mod erase;
mod erasure;
mod errand;
mod error;
mod extents;
mod filesystem;
mod filesystem_claim;
mod filesystem_error;
mod filesystem_reason;
mod journal;
mod journal_store;
mod labelled;
mod layout;
mod member;
mod named_filesystem;
mod opening_error;
mod plan;
mod request;
#[cfg(test)]
pub mod sample;
mod settle;
mod view;
mod volume_list;
mod whereabouts;
mod worker_flag;

pub use background::Workers;
pub use bare::{BareDevice, reads_as_zeros};
pub use choose::{Capacity, Demand, NoPlace};
pub use config_file::ConfigFile;
pub use content::Content;
pub use cordon::{Cordon, CordonChoice, Cordons, EarlierCordon, Fitness, WAS_GIVEN_UP};
pub use create::{ClassDisks, Destination, Made};
pub use device_pool::Pool;
pub use disk::{Opened, PoolDisk, clear_array, zero};
pub use disk_config::{begin_config, read_config};
pub use earlier::{Earlier, LastSeen, earlier};
pub use erase::Progress;
pub use erasure::Erasure;
pub use errand::ErrandKey;
pub use error::{ApplyError, BareError, PoolError, StoreError};
pub use filesystem::{Carrier, LookedFor, PoolFilesystem, find_mounted};
pub use filesystem_claim::{CLAIM, FilesystemClaim, OWN_FOLDER};
pub use filesystem_error::FilesystemError;
pub use filesystem_reason::FilesystemReason;
pub use journal::{BareClaim, BareVolume, GivenUpMember, JOURNAL, KnownDisk, LostClaim, LostVolume};
pub use journal_store::reported::{AskVolumes, ReportedVolume};
pub use labelled::{ArrayMember, LabelledDisk};
pub use layout::{data_area, places};
pub use member::Member;
pub use member::room::Attempt;
pub use named_filesystem::{
    FilesystemFacts, FilesystemLook, FilesystemProblem, FilesystemVerdict, LookedAt, NamedFilesystem, NoDefaultDisk,
    Whose, judge,
};
pub use opening_error::OpeningError;
pub use plan::{Adoption, NewLabel, PlannedVolume, Site, relabel};
#[cfg(any(test, feature = "testing"))]
pub use plan::{create, delete};
pub use request::{Change, CreateRequest, Selector, WantedUsage, difference};
pub use settle::Settlement;
pub use view::{
    CORDONED, DirectoryView, DiskView, Doubt, FAILING, HostMount, Knowledge, Standing, Unasked, VolumeView,
};
