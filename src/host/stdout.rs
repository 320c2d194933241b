//! Prints the output of a command: all of it reaches standard output, or the caller learns why not.

use std::io::{self, IsTerminal as _, Write};

/// Why something was not printed.
#[derive(Debug, thiserror::Error)]
pub enum PrintError {
    /// The reader has gone, as in `localpool devices | head -1`: nobody needs to hear of it.
    #[error("nobody reads standard output any more")]
    Closed,
    #[error("standard output could not be written")]
    Failed(#[source] io::Error),
}

impl PrintError {
    pub fn of(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Self::Closed,
            _ => Self::Failed(error),
        }
    }
}

/// Prints all of a text as it is.
pub fn print(text: &str) -> Result<(), PrintError> {
    print_bytes(text.as_bytes())
}

pub fn print_bytes(bytes: &[u8]) -> Result<(), PrintError> {
    let mut out = io::stdout().lock();
    out.write_all(bytes).and_then(|()| out.flush()).map_err(PrintError::of)
}

/// Whether a person reads it as it is printed.
pub fn is_terminal() -> bool {
    io::stdout().is_terminal()
}

/// Prints on standard error why a command failed. If that cannot be written either, the exit status says it.
pub fn complain(text: &str) {
    let _ = writeln!(io::stderr(), "{text}");
}
