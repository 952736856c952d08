//! A file without a name for what the folds of long trajectories put away, so that memory does not follow their length. It is
//! made when the first page comes, and gone with the verification however that ends.

use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use gesta_core::state;

/// The room that each page is given: more than any has. What a page leaves free is not written.
const ROOM_BYTES: u64 = 16 * 1024;

/// The pages of a verification.
#[derive(Debug, Default)]
pub(super) struct Shelf(Arc<Pages>);

#[derive(Debug, Default)]
struct Pages(Mutex<Places>);

#[derive(Debug, Default)]
struct Places {
    file: Option<File>,
    /// How many places there are.
    count: u64,
    /// Those that nobody needs any more.
    free: Vec<u64>,
}

/// A page in its place, which is free when this is dropped.
#[derive(Debug)]
struct Page {
    pages: Arc<Pages>,
    place: u64,
    bytes: usize,
}

impl state::Shelf for Shelf {
    fn put(&self, page: &[u8]) -> Option<Arc<dyn state::Page>> {
        let place = self.0.places().put(page).ok()?;
        let pages = Arc::clone(&self.0);
        Some(Arc::new(Page { pages, place, bytes: page.len() }))
    }
}

impl state::Page for Page {
    fn read(&self) -> Option<Vec<u8>> {
        let mut page = vec![0; self.bytes];
        self.pages.places().read(self.place, &mut page).ok()?;
        Some(page)
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        self.pages.places().free.push(self.place);
    }
}

impl Pages {
    /// Nothing in here panics half-way through a change.
    fn places(&self) -> MutexGuard<'_, Places> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Places {
    fn put(&mut self, page: &[u8]) -> io::Result<u64> {
        if page.len() as u64 > ROOM_BYTES {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        let place = self.free.last().copied().unwrap_or(self.count);
        self.at(place)?.write_all(page)?;
        if self.free.pop().is_none() {
            self.count += 1;
        }
        Ok(place)
    }

    fn read(&mut self, place: u64, page: &mut [u8]) -> io::Result<()> {
        self.at(place)?.read_exact(page)
    }

    fn at(&mut self, place: u64) -> io::Result<&mut File> {
        let file = match &mut self.file {
            Some(file) => file,
            none => none.insert(tempfile::tempfile()?),
        };
        file.seek(SeekFrom::Start(place * ROOM_BYTES))?;
        Ok(file)
    }
}

#[cfg(test)]
mod tests {
    use gesta_core::state::Shelf as _;

    use super::*;

    #[test]
    fn pages_are_read_as_they_were_put_and_leave_their_places_to_others() {
        let shelf = Shelf::default();
        let first = shelf.put(&[1; 9000]).unwrap();
        let second = shelf.put(&[2; 16 * 1024]).unwrap();
        let third = shelf.put(&[]).unwrap();
        drop(first);
        let fourth = shelf.put(b"fourth").unwrap();
        assert_eq!(second.read(), Some(vec![2; 16 * 1024]));
        assert_eq!(third.read(), Some(Vec::new()));
        assert_eq!(fourth.read().as_deref(), Some(&b"fourth"[..]));
        assert_eq!(shelf.0.places().count, 3, "the first one's place was taken again");
        assert!(shelf.put(&[0; 16 * 1024 + 1]).is_none(), "there is no room for it");
    }

    #[test]
    fn a_page_that_is_cut_short_is_not_read() {
        let shelf = Shelf::default();
        let page = shelf.put(&[7; 9000]).unwrap();
        shelf.0.places().file.as_ref().unwrap().set_len(4000).unwrap();
        assert_eq!(page.read(), None);
    }
}
