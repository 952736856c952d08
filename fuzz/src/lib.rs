//! What is fuzzed: every parser that reads bytes of others, and the verifier. Each target is a function of
//! bytes that panics when something does not hold. `cargo xtask fuzz` runs them with libFuzzer, and
//! `crates/cli/tests/corpus` replays `fuzz/corpus` with the very same functions.

#[cfg(feature = "fuzz")]
mod files;
mod record;

/// A name, and what is called with bytes.
pub type Target = (&'static str, fn(&[u8]));

/// The targets that need the core and the verifier alone, which compile in a minute.
pub const RECORD: &[Target] = &[
    ("json", record::json_text),
    ("entry", record::entries),
    ("document", record::documents),
    ("writ", record::writs),
    ("bundle", record::bundles),
    ("log", record::logs),
];

/// Every target.
pub fn targets() -> Vec<Target> {
    #[cfg(feature = "fuzz")]
    return [RECORD, FILES].concat();
    #[cfg(not(feature = "fuzz"))]
    RECORD.to_vec()
}

/// The targets that need the runtime.
#[cfg(feature = "fuzz")]
const FILES: &[Target] = &[
    ("job", files::jobs),
    ("expression", files::expressions),
    ("policy", files::policies),
    ("mcp", files::mcp),
];
