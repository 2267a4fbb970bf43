//! What is deleted and made again under its old name is another object.

use crate::fuzz::world::{PROGRAMS, World, Write};

/// A change by a program names the uid or the resourceVersion that it was decided on: if the object has been replaced by
/// a namesake, the API server refuses it.
pub(super) fn named(_: &World, write: &Write) -> Result<(), String> {
    let ours = write.writer.split_once('/').is_some_and(|(program, _)| PROGRAMS.contains(&program));
    if !ours || write.precise || write.old.is_none() {
        return Ok(());
    }
    Err(format!(
        "{} sent {:?} {} {:?} for whatever has that name",
        write.writer,
        write.verb,
        write.resource,
        write.key()
    ))
}
