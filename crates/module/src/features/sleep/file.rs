//! The files that hold values that are asleep: append-only segments of checksummed records, in a folder that one
//! server owns.
//!
//! A record is a header of 36 bytes, the key's name and its value as `DUMP` gives it; the checksum is over all that
//! follows it. A segment ends at a size, not with a mark: what a crash leaves half written is never looked for,
//! because segments of an earlier run are removed at the start. The one file that outlives its server, written at an
//! orderly stop, ends with a list of its records that has a checksum of its own; without it the file counts as none.
//! Values lie in plain, so all is the server's user's alone: files 0600, and the folder 0700 where Tenure makes it or
//! it holds nothing else.

use std::collections::HashMap;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

const MAGIC: u32 = 0x3152_4e54;
const LIST_MAGIC: u32 = 0x314c_4e54;
const HEADER: usize = 36;
const LOCK_NAME: &str = "tenure.lock";
pub const WARM_NAME: &str = "tenure-warm.values";
/// The number under which the file of an orderly stop is read.
pub const WARM: u32 = u32::MAX;

/// Where a record lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Which file.
    pub segment: u32,
    /// First byte.
    pub offset: u64,
    /// Bytes, header and all.
    pub len: u32,
}

/// A value asleep.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    /// Its database.
    pub db: u16,
    /// The key's name.
    pub name: &'a [u8],
    /// The value, as `DUMP` gives it.
    pub payload: &'a [u8],
    /// When it expires, in ms since 1970; 0 = never.
    pub expires_at_ms: u64,
    /// How long it had not been used when it fell asleep, in seconds.
    pub idle_seconds: u32,
}

impl Record<'_> {
    /// The record as bytes.
    pub fn encode(&self) -> Vec<u8> {
        let len = HEADER + self.name.len() + self.payload.len();
        let mut bytes = Vec::with_capacity(len);
        bytes.extend(MAGIC.to_le_bytes());
        bytes.extend([0; 4]);
        bytes.extend((len as u64).to_le_bytes());
        bytes.extend(u32::from(self.db).to_le_bytes());
        bytes.extend((self.name.len() as u32).to_le_bytes());
        bytes.extend(self.idle_seconds.to_le_bytes());
        bytes.extend(self.expires_at_ms.to_le_bytes());
        bytes.extend(self.name);
        bytes.extend(self.payload);
        let checksum = crc32fast::hash(&bytes[8..]);
        bytes[4..8].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }

    /// Reads a record back; `None` where it is damaged.
    pub fn decode(bytes: &[u8]) -> Option<Record<'_>> {
        let u32_at = |at: usize| Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
        let u64_at = |at: usize| Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?));
        let is_whole = u32_at(0)? == MAGIC && u64_at(8)? == bytes.len() as u64;
        if !is_whole || u32_at(4)? != crc32fast::hash(&bytes[8..]) {
            return None;
        }
        let name_end = HEADER + u32_at(20)? as usize;
        Some(Record {
            db: u32_at(16)? as u16,
            name: bytes.get(HEADER..name_end)?,
            payload: bytes.get(name_end..)?,
            idle_seconds: u32_at(24)?,
            expires_at_ms: u64_at(28)?,
        })
    }
}

/// The folders that this process holds, in which its own lock says nothing.
static HELD: Mutex<Vec<Identity>> = Mutex::new(Vec::new());

/// Device and inode: which folder it is, whatever path leads to it. Not a canonical path, for `realpath` allocates in
/// the C library, and a server that brings its own allocator (Valkey 9.1) aborts as the standard library frees that.
type Identity = (u64, u64);

/// Files that only the server's user may read.
fn private() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.mode(0o600);
    options
}

/// The folder, locked for this server while it is held; what sleeps in it ends with that.
#[derive(Debug)]
pub struct Folder {
    path: PathBuf,
    identity: Identity,
    _lock: File,
}

impl Folder {
    /// Makes the folder where it isn't there, and sees whether it can be written to and is nobody else's.
    ///
    /// # Errors
    /// A sentence that says what stands against it.
    pub fn check(path: &Path) -> Result<(), String> {
        let identity = Folder::make(path)?;
        let held = HELD.lock().unwrap_or_else(PoisonError::into_inner);
        if held.contains(&identity) { Ok(()) } else { Folder::lock(path).map(drop) }
    }

    /// Makes the folder where it isn't there.
    fn make(path: &Path) -> Result<Identity, String> {
        let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(path);
        let identity = made.and_then(|()| path.metadata()).map(|folder| (folder.dev(), folder.ino()));
        identity.map_err(|e| format!("folder {} can't be made: {e}", path.display()))
    }

    /// Takes the lock of a folder that is there.
    fn lock(path: &Path) -> Result<File, String> {
        let shown = path.display();
        let lock = private().create(true).truncate(false).write(true).open(path.join(LOCK_NAME));
        let lock = lock.map_err(|e| format!("folder {shown} can't be written to: {e}"))?;
        match lock.try_lock() {
            Ok(()) => Ok(lock),
            Err(TryLockError::WouldBlock) => Err(format!("folder {shown} is in use by another server")),
            Err(TryLockError::Error(e)) => Err(format!("folder {shown} can't be locked: {e}")),
        }
    }

    /// Makes the folder where it isn't there, takes its lock, and removes what an earlier run left asleep.
    ///
    /// # Errors
    /// A sentence that says what stands against it.
    pub fn open(path: &Path) -> Result<Folder, String> {
        let identity = Folder::make(path)?;
        let lock = Folder::lock(path)?;
        remove_segments(path)?;
        keep_private(path);
        HELD.lock().unwrap_or_else(PoisonError::into_inner).push(identity);
        Ok(Folder { path: path.to_owned(), identity, _lock: lock })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // What stays is removed by the next who opens it.
        drop(remove_segments(&self.path));
        HELD.lock().unwrap_or_else(PoisonError::into_inner).retain(|held| *held != self.identity);
    }
}

/// Removes what sleeps in a folder.
fn remove_segments(path: &Path) -> Result<(), String> {
    let entries = fs::read_dir(path).map_err(|e| format!("folder {} can't be read: {e}", path.display()))?;
    for path in entries.flatten().map(|entry| entry.path()).filter(|path| number_of(path).is_some()) {
        fs::remove_file(&path).map_err(|e| format!("{} can't be removed: {e}", path.display()))?;
    }
    Ok(())
}

/// A folder that holds nothing else is closed to others, and so are files of earlier versions. Where that can't be,
/// files are.
fn keep_private(path: &Path) {
    let Ok(entries) = fs::read_dir(path) else { return };
    let (ours, others): (Vec<PathBuf>, Vec<PathBuf>) =
        entries.flatten().map(|entry| entry.path()).partition(|path| is_ours(path));
    for file in ours {
        drop(fs::set_permissions(file, fs::Permissions::from_mode(0o600)));
    }
    if others.is_empty() {
        drop(fs::set_permissions(path, fs::Permissions::from_mode(0o700)));
    }
}

fn is_ours(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    name == LOCK_NAME || name.starts_with(WARM_NAME)
}

fn segment_path(folder: &Path, segment: u32) -> PathBuf {
    match segment {
        WARM => folder.join(WARM_NAME),
        number => folder.join(format!("tenure-spill-{number:08}.values")),
    }
}

/// The number of a segment's file.
fn number_of(path: &Path) -> Option<u32> {
    path.file_name()?.to_str()?.strip_prefix("tenure-spill-")?.strip_suffix(".values")?.parse().ok()
}

/// Removes a segment. That it is gone already is as good.
pub fn remove(folder: &Path, segment: u32) {
    drop(fs::remove_file(segment_path(folder, segment)));
}

/// Appends records, to a new segment when one is full.
#[derive(Debug)]
pub struct Writer {
    folder: PathBuf,
    segment: u32,
    file: Option<File>,
    written: u64,
    segment_bytes: u64,
}

impl Writer {
    /// A writer of segments of about `segment_bytes`.
    pub fn new(folder: &Path, segment_bytes: u64) -> Self {
        Writer { folder: folder.to_owned(), segment: 0, file: None, written: 0, segment_bytes }
    }

    /// A segment ends from now on at about so many bytes.
    pub fn set_segment_bytes(&mut self, bytes: u64) {
        self.segment_bytes = bytes;
    }

    /// Appends one record.
    ///
    /// # Errors
    /// What the disk says; the segment is closed then, so that half a record is followed by none.
    pub fn append(&mut self, record: &[u8]) -> io::Result<Place> {
        if self.written >= self.segment_bytes {
            self.file = None;
        }
        if self.file.is_none() {
            self.segment += 1;
            let path = segment_path(&self.folder, self.segment);
            self.file = Some(private().create(true).append(true).open(path)?);
            self.written = 0;
        }
        let Some(file) = &mut self.file else { return Err(io::ErrorKind::NotFound.into()) };
        if let Err(e) = file.write_all(record) {
            self.file = None;
            return Err(e);
        }
        let place = Place { segment: self.segment, offset: self.written, len: record.len() as u32 };
        self.written += u64::from(place.len);
        Ok(place)
    }
}

/// Reads records; each thread has one.
#[derive(Debug)]
pub struct Reader {
    folder: PathBuf,
    files: HashMap<u32, File>,
}

impl Reader {
    /// A reader of the folder's segments.
    pub fn new(folder: &Path) -> Self {
        Reader { folder: folder.to_owned(), files: HashMap::new() }
    }

    /// The bytes of one record.
    ///
    /// # Errors
    /// What the disk says.
    pub fn read(&mut self, place: Place) -> io::Result<Vec<u8>> {
        let file = match self.files.entry(place.segment) {
            std::collections::hash_map::Entry::Occupied(held) => held.into_mut(),
            std::collections::hash_map::Entry::Vacant(free) => {
                free.insert(File::open(segment_path(&self.folder, place.segment))?)
            }
        };
        let mut bytes = vec![0; place.len as usize];
        file.read_exact_at(&mut bytes, place.offset)?;
        Ok(bytes)
    }

    /// A segment is gone.
    pub fn forget(&mut self, segment: u32) {
        self.files.remove(&segment);
    }
}

/// One line of the list at the end of the file of an orderly stop.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// Where the record lies.
    pub place: Place,
    /// The key's database.
    pub db: u16,
    /// When it expires, in ms since 1970; 0 = never.
    pub expires_at_ms: u64,
    /// The key's name.
    pub name: Vec<u8>,
}

/// Writes the file of an orderly stop.
#[derive(Debug)]
pub struct WarmWriter {
    folder: PathBuf,
    file: io::BufWriter<File>,
    written: u64,
    list: Vec<u8>,
}

impl WarmWriter {
    /// Begins a new one, under another name until it is whole.
    ///
    /// # Errors
    /// What the disk says.
    pub fn create(folder: &Path) -> io::Result<Self> {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
        let file = private().create(true).truncate(true).write(true).open(folder.join(format!("{WARM_NAME}.part")))?;
        let file = io::BufWriter::with_capacity(1 << 20, file);
        Ok(WarmWriter { folder: folder.to_owned(), file, written: 0, list: Vec::new() })
    }

    /// Bytes so far.
    pub fn bytes(&self) -> u64 {
        self.written + self.list.len() as u64
    }

    /// Appends one record.
    ///
    /// # Errors
    /// What the disk says.
    pub fn append(&mut self, record: &Record) -> io::Result<()> {
        let bytes = record.encode();
        self.file.write_all(&bytes)?;
        self.list.extend(self.written.to_le_bytes());
        self.list.extend((bytes.len() as u32).to_le_bytes());
        self.list.extend(record.db.to_le_bytes());
        self.list.extend(record.expires_at_ms.to_le_bytes());
        self.list.extend((record.name.len() as u32).to_le_bytes());
        self.list.extend(record.name);
        self.written += bytes.len() as u64;
        Ok(())
    }

    /// Writes the list, and gives the file its name once all is on the disk.
    ///
    /// # Errors
    /// What the disk says.
    pub fn finish(mut self) -> io::Result<()> {
        self.file.write_all(&self.list)?;
        self.file.write_all(&end_of_list(&self.list, self.written))?;
        self.file.flush()?;
        self.file.get_ref().sync_all()?;
        fs::rename(self.folder.join(format!("{WARM_NAME}.part")), self.folder.join(WARM_NAME))
    }
}

/// What follows the list: where it begins, its checksum, and that this is such a file.
pub fn end_of_list(list: &[u8], at: u64) -> Vec<u8> {
    [&at.to_le_bytes()[..], &crc32fast::hash(list).to_le_bytes(), &LIST_MAGIC.to_le_bytes()].concat()
}

/// Takes the file of the last orderly stop: its list, in the order in which it was written, and a reader that holds
/// the file open though it is removed at once, so that no later start, after who knows what, finds it again. `None`
/// where there is none.
///
/// # Errors
/// A sentence that says what is wrong with it.
pub fn take_warm(folder: &Path) -> Result<Option<(Vec<Listed>, File)>, String> {
    let path = segment_path(folder, WARM);
    let file = match File::open(&path) {
        Ok(file) => file,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(format!("{} can't be opened: {e}", path.display())),
    };
    fs::remove_file(&path).map_err(|e| format!("{} can't be removed: {e}", path.display()))?;
    read_list(&file).map(|list| Some((list, file))).map_err(|e| format!("{} is damaged: {e}", path.display()))
}

fn read_list(file: &File) -> io::Result<Vec<Listed>> {
    let damaged = |what: &str| io::Error::new(io::ErrorKind::InvalidData, what.to_owned());
    let len = file.metadata()?.len();
    let mut end = [0; 16];
    file.read_exact_at(&mut end, len.checked_sub(16).ok_or_else(|| damaged("it is too short"))?)?;
    let at = u64::from_le_bytes(end[..8].try_into().unwrap_or_default());
    let is_ended = end[12..] == LIST_MAGIC.to_le_bytes() && at <= len - 16;
    let mut list = vec![0; if is_ended { (len - 16 - at) as usize } else { 0 }];
    file.read_exact_at(&mut list, at.min(len))?;
    if !is_ended || crc32fast::hash(&list).to_le_bytes() != end[8..12] {
        return Err(damaged("its list has another checksum"));
    }
    let mut rest = &list[..];
    let mut found = Vec::new();
    while let Some((head, tail)) = rest.split_at_checked(26) {
        let number =
            |from: usize, n: usize| head[from..from + n].iter().rev().fold(0, |sum, &b| sum << 8 | u64::from(b));
        let Some((name, tail)) = tail.split_at_checked(number(22, 4) as usize) else { break };
        if number(0, 8).checked_add(number(8, 4)).is_none_or(|end| end > at) {
            return Err(damaged("its list leads out of it"));
        }
        found.push(Listed {
            place: Place { segment: WARM, offset: number(0, 8), len: number(8, 4) as u32 },
            db: number(12, 2) as u16,
            expires_at_ms: number(14, 8),
            name: name.to_vec(),
        });
        rest = tail;
    }
    Ok(found)
}

impl Reader {
    /// The file of the last orderly stop, held open.
    pub fn hold_warm(&mut self, file: File) {
        self.files.insert(WARM, file);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn record<'a>(name: &'a [u8], payload: &'a [u8]) -> Record<'a> {
        Record { db: 3, name, payload, expires_at_ms: 77, idle_seconds: 5 }
    }

    #[test]
    fn what_is_appended_is_read_back_across_segments() {
        let folder = tempfile::tempdir().unwrap();
        let (mut writer, mut reader) = (Writer::new(folder.path(), 1000), Reader::new(folder.path()));
        let names: Vec<String> = (0..100).map(|i| format!("key:{i}")).collect();
        let places: Vec<Place> =
            names.iter().map(|n| writer.append(&record(n.as_bytes(), &[7; 100]).encode()).unwrap()).collect();
        assert!(places.last().unwrap().segment > 10);
        for (name, place) in names.iter().zip(&places) {
            let bytes = reader.read(*place).unwrap();
            assert_eq!(Record::decode(&bytes).unwrap(), record(name.as_bytes(), &[7; 100]));
        }
        remove(folder.path(), places[0].segment);
        reader.forget(places[0].segment);
        assert!(reader.read(places[0]).is_err());
    }

    #[test]
    fn a_folder_has_one_owner_and_is_cleaned() {
        let folder = tempfile::tempdir().unwrap();
        Writer::new(folder.path(), 1000).append(&record(b"k", b"v").encode()).unwrap();
        let held = Folder::open(folder.path()).unwrap();
        assert!(Reader::new(folder.path()).read(Place { segment: 1, offset: 0, len: 1 }).is_err(), "it was removed");
        assert!(Folder::open(folder.path()).unwrap_err().contains("another server"));
        drop(held);
        Folder::open(folder.path()).unwrap();
        assert!(Folder::open(Path::new("/proc/nowhere")).unwrap_err().contains("can't be made"));
    }

    #[test]
    fn the_file_of_an_orderly_stop_is_taken_once_and_whole_or_not_at_all() {
        let folder = tempfile::tempdir().unwrap();
        assert!(take_warm(folder.path()).unwrap().is_none());
        let write = || {
            let mut writer = WarmWriter::create(folder.path()).unwrap();
            (0..10).for_each(|i| writer.append(&record(format!("k{i}").as_bytes(), b"value")).unwrap());
            writer.finish().unwrap();
        };
        write();
        let (list, file) = take_warm(folder.path()).unwrap().unwrap();
        assert_eq!((list.len(), list[4].name.as_slice(), list[4].db, list[4].expires_at_ms), (10, &b"k4"[..], 3, 77));
        let mut reader = Reader::new(folder.path());
        reader.hold_warm(file);
        assert_eq!(Record::decode(&reader.read(list[4].place).unwrap()).unwrap(), record(b"k4", b"value"));
        assert!(take_warm(folder.path()).unwrap().is_none(), "taken once");
        write();
        let path = folder.path().join(WARM_NAME);
        let mut bytes = fs::read(&path).unwrap();
        let at = bytes.len() - 40;
        bytes[at] ^= 1;
        fs::write(&path, bytes).unwrap();
        assert!(take_warm(folder.path()).unwrap_err().contains("damaged"));
        assert!(take_warm(folder.path()).unwrap().is_none());
    }

    proptest! {
        /// No damage of one bit, and no cut, is taken for a value.
        #[test]
        fn damage_is_seen(
            name in prop::collection::vec(any::<u8>(), 0..20), payload in prop::collection::vec(any::<u8>(), 0..200),
            bit in any::<prop::sample::Index>(), cut in any::<prop::sample::Index>(),
        ) {
            let record = record(&name, &payload);
            let mut bytes = record.encode();
            prop_assert_eq!(Record::decode(&bytes), Some(record.clone()));
            prop_assert_eq!(Record::decode(&bytes[..cut.index(bytes.len())]), None);
            let bit = bit.index(bytes.len() * 8);
            bytes[bit / 8] ^= 1 << (bit % 8);
            prop_assert_eq!(Record::decode(&bytes), None);
        }
    }
}
