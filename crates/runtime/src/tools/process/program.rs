//! Where a program is: beside its declaration, or in the worker's `PATH`.

use std::env;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

/// The program as an absolute path, or why there is none. With a slash it is a path that begins at
/// the directory of the declaring file; without one it is looked for in the worker's `PATH`.
pub(super) fn find(program: &str, base_dir: &Path) -> Result<PathBuf, String> {
    if program.contains('/') {
        let path = absolute(&base_dir.join(program))?;
        return if is_executable(&path) {
            Ok(path)
        } else {
            Err(format!("`{}` is not an executable file", path.display()))
        };
    }
    let paths = env::var_os("PATH").unwrap_or_default();
    let found = env::split_paths(&paths)
        .filter(|dir| dir.is_absolute())
        .map(|dir| dir.join(program))
        .find(|path| is_executable(path));
    found.ok_or_else(|| {
        format!("there is no program `{program}` in the worker's PATH; name it by its path")
    })
}

/// Without looking through links: a program may care by which name it is called.
pub(super) fn absolute(path: &Path) -> Result<PathBuf, String> {
    std::path::absolute(path).map_err(|error| format!("`{}`: {error}", path.display()))
}

fn is_executable(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0)
}
