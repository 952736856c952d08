//! The last step before the program: the supervisor's own executable, started again, asks the kernel
//! to be killed with the supervisor and then becomes the program. Standard library alone could not
//! do this between fork and exec without unsafe code.

use std::ffi::OsString;
use std::io::Write as _;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, ExitCode};

use serde::{Deserialize, Serialize};

use super::declaration::LAUNCH;
use super::descendants;
use super::message::Bytes;

/// The exit code, and the beginning of the standard error, of a program that could not be started.
const NOT_STARTED_CODE: u8 = 127;
const NOT_STARTED: &[u8] = b"gesta: not started: ";

#[derive(Serialize, Deserialize)]
struct Orders {
    program: Bytes,
    args: Vec<Bytes>,
    supervisor: u32,
}

/// This executable as a command that becomes `program`. Its environment is the program's.
pub(super) fn command(program: Bytes, args: Vec<Bytes>) -> Result<Command, serde_json::Error> {
    let orders = Orders { program, args, supervisor: std::process::id() };
    // Not the path it was started by: a new version may have replaced that file by now.
    let mut command = Command::new("/proc/self/exe");
    command.args(std::env::args_os().skip(1)).env_clear();
    command.env(LAUNCH, serde_json::to_string(&orders)?);
    Ok(command)
}

/// Becomes the program, or says why not.
pub(super) fn become_program(orders: &OsString) -> ExitCode {
    let why = match read(orders) {
        Ok(orders) => exec(&orders),
        Err(error) => error,
    };
    let mut message = NOT_STARTED.to_vec();
    message.extend_from_slice(why.to_string().as_bytes());
    // Nobody is left to tell if this fails.
    let _unheard = std::io::stderr().write_all(&message);
    ExitCode::from(NOT_STARTED_CODE)
}

fn read(orders: &OsString) -> std::io::Result<Orders> {
    Ok(serde_json::from_slice(orders.as_encoded_bytes())?)
}

/// Returns only if it fails.
fn exec(orders: &Orders) -> std::io::Error {
    if let Err(error) = descendants::die_with(orders.supervisor) {
        return error;
    }
    let mut command = Command::new(orders.program.os());
    command.args(orders.args.iter().map(Bytes::os)).env_remove(LAUNCH).exec()
}

/// Why the program was not started, if that is how this ended.
pub(super) fn not_started(code: Option<i32>, stderr: &[u8]) -> Option<String> {
    let why = stderr.strip_prefix(NOT_STARTED)?;
    (code == Some(NOT_STARTED_CODE.into())).then(|| String::from_utf8_lossy(why).into_owned())
}
