//! Random bytes: keys, ids and seeds are drawn here and nowhere else.

use anyhow::Result;
use gesta_core::ids::TrajectoryId;

use crate::problem::Problem;

/// Bytes that nobody can guess.
pub(crate) fn bytes<const N: usize>() -> Result<[u8; N]> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes)
        .map_err(|error| Problem::new(format!("the system gives no random bytes: {error}")))?;
    Ok(bytes)
}

/// The id of a new trajectory.
pub(crate) fn trajectory() -> Result<TrajectoryId> {
    bytes().map(TrajectoryId::from_bytes)
}

/// Eight hexadecimal digits that make a name unlike every other.
pub(crate) fn suffix() -> Result<String> {
    bytes().map(|bytes| format!("{:08x}", u32::from_be_bytes(bytes)))
}
