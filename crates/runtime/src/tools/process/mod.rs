//! Tools that are programs. The worker starts a supervisor, the supervisor starts the program; it
//! ends the program and all its descendants when the call is over, whoever dies first.

mod declaration;
mod descendants;
mod exchange;
mod launch;
mod message;
mod program;
mod resident;
mod serve;
mod supervisor;

use std::ffi::OsString;

pub use declaration::{BadProcess, Command, ProcessDeclaration};
pub(super) use exchange::Process;
pub(super) use resident::{Resident, Running};
pub use supervisor::supervise;

/// How processes are run.
#[derive(Clone, Debug)]
pub struct ProcessOptions {
    /// The program, and its first arguments, that runs [`supervise`] and nothing else. It is started
    /// with an empty environment, and starts itself again with the same arguments.
    pub supervisor: Vec<OsString>,
}
