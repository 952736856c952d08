//! The transparency log as the C2SP documents describe it, read and written by OpenSSL and by what this file has of
//! them: cosignatures (tlog-cosignature), notes (signed-note), tiles (tlog-tiles).

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use gesta_core::digest::Digest;
use gesta_verify::engine::Demand;
use gesta_verify::report::Verdict;
use serde_json::{Value, json};

use crate::transparency::audit;
use crate::world::World;

/// What comes before the bytes of an Ed25519 key in its public form (RFC 8410).
const ED25519: &[u8] = b"\x30\x2a\x30\x05\x06\x03\x2b\x65\x70\x03\x21\x00";
const LOG: u8 = 1;
const COSIGNATURE: u8 = 4;

/// What OpenSSL writes; none if it refuses.
fn openssl(world: &World, arguments: &[&str]) -> Option<Vec<u8>> {
    let ran = Command::new("openssl").args(arguments).current_dir(world.path(".")).output();
    let ran = ran.unwrap();
    ran.status.success().then_some(ran.stdout)
}

/// The four bytes by which a signature names its key.
fn key_id(world: &World, name: &str, algorithm: u8, key: &[u8]) -> Vec<u8> {
    let hashed = [name.as_bytes(), &[b'\n', algorithm], key].concat();
    std::fs::write(world.path("hashed"), hashed).unwrap();
    let hash = openssl(world, &["dgst", "-sha256", "-binary", "hashed"]).unwrap();
    hash[..4].to_vec()
}

fn verifies(world: &World, key: &[u8], message: &[u8], signature: &[u8]) -> bool {
    std::fs::write(world.path("key.der"), [ED25519, key].concat()).unwrap();
    std::fs::write(world.path("message"), message).unwrap();
    std::fs::write(world.path("signature"), signature).unwrap();
    let verify = ["pkeyutl", "-verify", "-pubin", "-keyform", "DER", "-inkey", "key.der", "-rawin"];
    let with = ["-in", "message", "-sigfile", "signature"];
    openssl(world, &[&verify[..], &with].concat()).is_some()
}

fn timed(at: u64, text: &str) -> Vec<u8> {
    format!("cosignature/v1\ntime {at}\n{text}").into_bytes()
}

/// The text of a note, and its signatures by the names of their keys.
fn opened(note: &str) -> (String, Vec<(String, Vec<u8>)>) {
    let (text, signatures) = note.rsplit_once("\n\n").unwrap();
    let signature = |line: &str| {
        let (name, encoded) = line.strip_prefix("\u{2014} ").unwrap().split_once(' ').unwrap();
        (name.to_owned(), STANDARD.decode(encoded).unwrap())
    };
    (format!("{text}\n"), signatures.lines().map(signature).collect())
}

fn sealed() -> World {
    let world = World::with_workspace();
    world.gesta(&["seal"]).ok();
    world.gesta(&["seal", "export", "log"]).ok();
    world
}

#[test]
fn openssl_checks_what_log_and_witness_have_signed() {
    let world = sealed();
    let log = world.gesta(&["seal", "status", "--json"]).json()["key"].clone();
    let log = log.as_str().unwrap();
    let made = ["witness", "init", "w", "--name", "w.example", "--log", log, "--json"];
    let made = world.gesta(&made).json();
    world.gesta(&["witness", "sign", "w", "log/checkpoint", "-o", "cosigned"]).ok();
    let (text, signatures) = opened(&world.read("cosigned"));
    let origin = text.lines().next().unwrap();
    let [(by_log, first), (by_witness, second)] = &signatures[..] else { panic!("{signatures:?}") };
    assert_eq!((by_log.as_str(), by_witness.as_str()), (origin, "w.example"));

    // A key as others are told it: its name, by what signatures name it, how it signs, and its bytes.
    let [name, id, encoded] = log.splitn(3, '+').collect::<Vec<_>>()[..] else { panic!("{log}") };
    let key = STANDARD.decode(encoded).unwrap();
    assert_eq!((name, key[0]), (origin, LOG));
    let computed = key_id(&world, origin, LOG, &key[1..]);
    assert_eq!(hex::encode(&computed), id);
    assert_eq!(first[..4], computed);
    assert!(verifies(&world, &key[1..], text.as_bytes(), &first[4..]));
    assert!(!verifies(&world, &key[1..], text.replace('\n', "\n ").as_bytes(), &first[4..]));

    let key = hex::decode(made["trust"]["key"].as_str().unwrap()).unwrap();
    assert_eq!(second[..4], key_id(&world, "w.example", COSIGNATURE, &key));
    assert_eq!(second.len(), 4 + 8 + 64);
    let at = u64::from_be_bytes(second[4..12].try_into().unwrap());
    assert!(verifies(&world, &key, &timed(at, &text), &second[12..]));
    assert!(!verifies(&world, &key, &timed(at + 1, &text), &second[12..]), "another time");
    assert!(!verifies(&world, &key, text.as_bytes(), &second[12..]), "no time");
}

/// A witness that is none of ours.
#[test]
fn what_openssl_has_cosigned_counts() {
    let world = sealed();
    openssl(&world, &["genpkey", "-algorithm", "ed25519", "-out", "w.pem"]).unwrap();
    let public = ["pkey", "-in", "w.pem", "-pubout", "-outform", "DER"];
    let public = openssl(&world, &public).unwrap();
    let key = public.strip_prefix(ED25519).unwrap();
    let mut trust: Value = serde_json::from_str(&world.read("trust.json")).unwrap();
    let mut witness = trust["keys"][0].clone();
    (witness["key"], witness["name"]) = (json!(hex::encode(key)), json!("w.example"));
    witness["roles"] = json!(["witness"]);
    trust["keys"].as_array_mut().unwrap().push(witness);
    world.write("trust.json", &trust.to_string());

    let note = world.read("log/checkpoint");
    let (text, _) = opened(&note);
    let at = jiff::Timestamp::now().as_second().unsigned_abs();
    let cosigned = |name: &str, algorithm: u8, said: u64| {
        std::fs::write(world.path("message"), timed(at, &text)).unwrap();
        let sign = ["pkeyutl", "-sign", "-inkey", "w.pem", "-rawin", "-in", "message"];
        let signature = openssl(&world, &sign).unwrap();
        let id = key_id(&world, name, algorithm, key);
        let whole = [id.as_slice(), &said.to_be_bytes(), &signature].concat();
        let line = format!("\u{2014} {name} {}\n", STANDARD.encode(whole));
        world.write("cosigned", &format!("{note}{line}"));
    };
    let witnesses = || world.gesta(&["seal", "status", "--json"]).json()["witnesses"].clone();
    for (algorithm, said) in [(LOG, at), (COSIGNATURE, at + 1)] {
        cosigned("w.example", algorithm, said);
        assert_ne!(world.gesta(&["seal", "cosign", "cosigned"]).code, Some(0));
        assert_eq!(witnesses(), 0, "{algorithm} {said}");
    }
    cosigned("w.example", COSIGNATURE, at);
    world.gesta(&["seal", "cosign", "cosigned"]).ok();
    assert_eq!(witnesses(), 1);
    world.gesta(&["export", "--all", "-o", "all.gesta"]).ok();
    let demand = Demand { sealed: true, witnesses: 1, ..Demand::default() };
    let report = audit(&world, "all.gesta", &demand);
    assert_eq!(report.verdict, Verdict::Sound, "{report}");
}

/// The root of a Merkle tree by its definition in RFC 6962.
fn root(leaves: &[Digest]) -> Digest {
    match leaves {
        [] => Digest::of(b""),
        [leaf] => *leaf,
        _ => {
            let (left, right) = leaves.split_at(leaves.len().next_power_of_two() / 2);
            let (left, right) = (root(left), root(right));
            Digest::of(&[&[1], &left.as_bytes()[..], right.as_bytes()].concat())
        }
    }
}

/// The entries of a bundle of them: how long each is, in two bytes, and then the entry.
fn entries(mut bundle: &[u8]) -> Vec<Vec<u8>> {
    let mut entries = Vec::new();
    while let Some((length, rest)) = bundle.split_first_chunk() {
        let (entry, rest) = rest.split_at(usize::from(u16::from_be_bytes(*length)));
        entries.push(entry.to_vec());
        bundle = rest;
    }
    entries
}

/// Every file below a directory, by its path from there.
fn files(directory: &Path, below: &str, found: &mut BTreeSet<String>) {
    for file in std::fs::read_dir(directory.join(below)).unwrap() {
        let file = file.unwrap();
        let path = format!("{below}/{}", file.file_name().to_string_lossy());
        match file.file_type().unwrap().is_dir() {
            true => files(directory, &path, found),
            false => found.extend([path]),
        }
    }
}

/// More leaves than a tile holds.
#[test]
fn the_tiles_of_a_log_are_those_of_its_entries() {
    let world = World::with_workspace();
    let steps: String = (0..300).map(|n| format!("  - {{ id: s{n}, set: {n} }}\n")).collect();
    world.write("job.yaml", &format!("job: long\nsteps:\n{steps}answer: done\n"));
    world.gesta(&["run", "job.yaml"]).ok();
    world.gesta(&["seal"]).ok();
    world.gesta(&["seal", "export", "log"]).ok();
    let (text, _) = opened(&world.read("log/checkpoint"));
    let lines: Vec<&str> = text.lines().collect();
    let size: usize = lines[1].parse().unwrap();
    assert!((257..512).contains(&size), "{size}");

    let rest = size - 256;
    let read = |path: &str| std::fs::read(world.path("log").join(path)).unwrap();
    let last = format!("tile/entries/001.p/{rest}");
    let all = [entries(&read("tile/entries/000")), entries(&read(&last))].concat();
    assert_eq!(all.len(), size);
    let leaf = |entry: &Vec<u8>| Digest::of(&[&[0], entry.as_slice()].concat());
    let leaves: Vec<Digest> = all.iter().map(leaf).collect();
    assert_eq!(lines[2], STANDARD.encode(root(&leaves).as_bytes()));
    let hashes = |digests: &[Digest]| digests.iter().flat_map(|it| *it.as_bytes()).collect();
    let (first, second) = leaves.split_at(256);
    let expected: [(String, Vec<u8>); 3] = [
        ("tile/0/000".to_owned(), hashes(first)),
        (format!("tile/0/001.p/{rest}"), hashes(second)),
        ("tile/1/000.p/1".to_owned(), hashes(&[root(first)])),
    ];
    for (path, tile) in &expected {
        assert_eq!(&read(path), tile, "{path}");
    }
    let mut found = BTreeSet::new();
    files(&world.path("log"), "tile", &mut found);
    let mut paths: BTreeSet<String> = expected.into_iter().map(|(path, _)| path).collect();
    paths.extend(["tile/entries/000".to_owned(), last]);
    assert_eq!(found, paths);
}
