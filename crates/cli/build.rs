//! Puts the vectors into the binary, so that `gesta conformance` needs nothing but itself.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs, io};

fn main() -> io::Result<()> {
    let vectors = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../vectors");
    let mut table = String::from("[\n");
    for part in ["bundles", "json", "runs"] {
        let directory = vectors.join(part);
        println!("cargo::rerun-if-changed={}", directory.display());
        let files = fs::read_dir(&directory)?.map(|entry| entry.map(|entry| entry.path()));
        let mut files = files.collect::<io::Result<Vec<PathBuf>>>()?;
        files.sort();
        for file in files {
            let name = file.file_name().unwrap_or_default().to_string_lossy();
            writeln!(table, "    ({part:?}, {name:?}, include_bytes!({file:?}).as_slice()),")
                .map_err(io::Error::other)?;
        }
    }
    table.push_str("]\n");
    let out = env::var_os("OUT_DIR").ok_or_else(|| io::Error::other("no OUT_DIR"))?;
    fs::write(Path::new(&out).join("vectors.rs"), table)
}
