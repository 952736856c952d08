//! A second, independent writer of archives, which also writes what the product never would.

use gesta_core::digest::Digest;
use gesta_core::json::Canon;
use serde_json::{Value, json};

use super::Scene;

/// A member of an archive.
#[derive(Clone)]
pub(crate) struct Member {
    pub(crate) name: String,
    pub(crate) kind: u8,
    pub(crate) link: String,
    pub(crate) data: Vec<u8>,
    /// What stands between the data and the next block.
    pub(crate) padding: u8,
    /// What the header says of its size, if that is not true.
    pub(crate) claims: Option<[u8; 12]>,
}

impl Member {
    pub(crate) fn file(name: impl Into<String>, data: impl Into<Vec<u8>>) -> Self {
        Self {
            name: name.into(),
            kind: b'0',
            link: String::new(),
            data: data.into(),
            padding: 0,
            claims: None,
        }
    }
}

/// An archive, member by member.
#[derive(Clone)]
pub(crate) struct Pack {
    pub(crate) members: Vec<Member>,
    pub(crate) tail: Vec<u8>,
}

impl Pack {
    /// The archive of a scene, with a manifest that fits it.
    pub(crate) fn of(scene: &Scene) -> Self {
        let mut members = vec![Member::file("gesta-bundle.json", Vec::new())];
        for (id, lines) in &scene.chains {
            let data = lines.iter().flat_map(|line| [line.as_slice(), b"\n"].concat());
            members
                .push(Member::file(format!("trajectories/{id}.jsonl"), data.collect::<Vec<_>>()));
        }
        for (digest, bytes) in &scene.blobs {
            members.push(Member::file(format!("blobs/{digest}"), bytes.clone()));
        }
        if !scene.keys.is_empty() {
            let mut keys = scene.keys.clone();
            keys.sort_by_key(|key| key.key);
            let hints = json!({ "keys": keys, "type": "gesta.keys.v1" });
            members.push(Member::file("keys.json", canonical(&hints)));
        }
        let mut pack = Self { members, tail: vec![0; 1024] };
        pack.remake_manifest();
        pack
    }

    /// Makes the manifest fit whatever the members now are.
    pub(crate) fn remake_manifest(&mut self) {
        let (mut trajectories, mut blobs, mut keys) = (Vec::new(), Vec::new(), None);
        for member in &self.members {
            let size = member.data.len();
            if let Some(file) = member.name.strip_prefix("trajectories/") {
                let id = file.strip_suffix(".jsonl").unwrap();
                let mut lines = member.data.split(|byte| *byte == b'\n').rev().skip(1);
                let last = lines.next().unwrap_or_default();
                let seq = serde_json::from_slice(last)
                    .map_or(json!(0), |entry: Value| entry["seq"].clone());
                let head = json!({ "id": Digest::of(last).to_string(), "seq": seq });
                trajectories.push(json!({ "head": head, "trajectory": id }));
            } else if let Some(digest) = member.name.strip_prefix("blobs/") {
                blobs.push(json!({ "sha256": digest, "size": size }));
            } else if member.name == "keys.json" {
                keys =
                    Some(json!({ "sha256": Digest::of(&member.data).to_string(), "size": size }));
            }
        }
        let mut manifest =
            json!({ "blobs": blobs, "trajectories": trajectories, "type": "gesta.bundle.v1" });
        if let Some(keys) = keys {
            manifest["keys"] = keys;
        }
        self.set("gesta-bundle.json", canonical(&manifest));
    }

    pub(crate) fn set(&mut self, name: &str, data: Vec<u8>) {
        self.member(name).data = data;
    }

    pub(crate) fn member(&mut self, name: &str) -> &mut Member {
        self.members.iter_mut().find(|member| member.name == name).unwrap()
    }

    pub(crate) fn position(&self, name: &str) -> usize {
        self.members.iter().position(|member| member.name == name).unwrap()
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        for member in &self.members {
            bytes.extend(header(member));
            bytes.extend(&member.data);
            bytes.resize(bytes.len().next_multiple_of(512), member.padding);
        }
        bytes.extend(&self.tail);
        bytes
    }
}

fn header(member: &Member) -> Vec<u8> {
    let padded = |text: &str, size: usize| {
        let mut field = text.as_bytes().to_vec();
        field.resize(size, 0);
        field
    };
    let size = match member.claims {
        Some(claimed) => claimed.to_vec(),
        None => padded(&format!("{:011o}", member.data.len()), 12),
    };
    let with = |checksum: &str| {
        [
            padded(&member.name, 100),
            padded("0000644", 8),
            padded("0000000", 8),
            padded("0000000", 8),
            size.clone(),
            padded("00000000000", 12),
            checksum.as_bytes().to_vec(),
            vec![member.kind],
            padded(&member.link, 100),
            b"ustar\x0000".to_vec(),
            vec![0; 64],
            padded("0000000", 8),
            padded("0000000", 8),
            vec![0; 167],
        ]
        .concat()
    };
    let sum: u64 = with("        ").iter().map(|byte| u64::from(*byte)).sum();
    with(&format!("{sum:06o}\0 "))
}

pub(crate) fn canonical(value: &Value) -> Vec<u8> {
    Canon::of(value).unwrap().as_bytes().to_vec()
}
