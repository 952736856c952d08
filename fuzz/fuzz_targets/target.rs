//! One program for all targets, so that they are compiled once: `GESTA_FUZZ_TARGET` says which one it is.
#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;

static TARGET: LazyLock<fn(&[u8])> = LazyLock::new(|| {
    let name = std::env::var("GESTA_FUZZ_TARGET").unwrap_or_default();
    let found = gesta_fuzz::targets().into_iter().find(|(known, _)| *known == name);
    found.map(|(_, target)| target).expect("GESTA_FUZZ_TARGET names no target")
});

fuzz_target!(|data: &[u8]| TARGET(data));
