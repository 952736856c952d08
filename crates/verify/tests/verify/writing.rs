//! The writer writes what was counted, in its order, or nothing that could pass for it.

use gesta_core::content::BlobRef;
use gesta_core::entry::Entry;
use gesta_verify::bundle::{Bundle, Contents, WriteError, Writer};

use crate::scene::{BLOB, BRANCH, JOB, REGISTRY, Scene};

fn counted(scene: &Scene) -> Contents {
    let mut contents = Contents::default();
    for (id, lines) in &scene.chains {
        for line in lines {
            contents.entry(*id, Entry::from_bytes(line).unwrap().head(), line.len() as u64);
        }
    }
    contents.blob(BlobRef::of(BLOB));
    contents
}

fn writer(scene: &Scene) -> Writer<Vec<u8>> {
    Writer::new(Vec::new(), counted(scene)).unwrap()
}

#[test]
fn the_order_is_kept() {
    let scene = Scene::new();
    let first = &scene.chains[&JOB][0];
    assert!(matches!(writer(&scene).entry(JOB, first), Err(WriteError::Order { .. })));
    assert!(matches!(writer(&scene).blob(BLOB), Err(WriteError::Order { .. })));
    assert!(matches!(writer(&scene).finish(), Err(WriteError::Order { .. })));
    let mut begun = writer(&scene);
    begun.entry(REGISTRY, &scene.chains[&REGISTRY][0]).unwrap();
    assert!(matches!(begun.entry(JOB, first), Err(WriteError::Order { .. })));
}

#[test]
fn what_was_not_counted_is_refused() {
    let scene = Scene::small();
    let [first, second] = &scene.chains[&JOB][..] else { unreachable!("the small scene") };
    let mut longer = writer(&scene);
    longer.entry(JOB, first).unwrap();
    assert!(matches!(longer.entry(JOB, first), Err(WriteError::Changed(_))));
    let mut other = writer(&scene);
    other.entry(JOB, first).unwrap();
    let same_size = vec![b'x'; second.len()];
    assert!(matches!(other.entry(JOB, &same_size), Err(WriteError::Changed(_))));
    let mut more = writer(&scene);
    more.entry(JOB, first).unwrap();
    more.entry(JOB, second).unwrap();
    assert!(matches!(more.entry(BRANCH, second), Err(WriteError::Order { .. })));
}

#[test]
fn a_file_is_read_as_it_was_written() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("bundle.tar");
    std::fs::write(&path, Scene::new().bundle()).unwrap();
    let bundle = Bundle::open(&path).unwrap();
    assert_eq!(bundle.hints().len(), Scene::new().keys.len());
    let size: usize = Scene::new().chains.values().flatten().map(|line| line.len() + 1).sum();
    assert_eq!(bundle.entry_bytes(), size as u64);
}
