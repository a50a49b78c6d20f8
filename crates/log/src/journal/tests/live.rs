//! Looking at a journal that somebody writes: nothing is disturbed, and a sound journal is called nothing else.

use std::io;
use std::sync::{Arc, Mutex};

use super::*;
use crate::storage::{Disk, SimFile};

/// What the writer does meanwhile, with the number of the reading operation that it happens before.
type Meanwhile = Arc<Mutex<dyn FnMut(u64) + Send>>;

/// A disk that can only be read, and on which something happens before each reading operation.
#[derive(Clone)]
struct Watched {
    disk: SimStorage,
    meanwhile: Meanwhile,
    operations: Arc<Mutex<u64>>,
}

struct WatchedFile {
    file: SimFile,
    watched: Watched,
}

impl Watched {
    fn new(disk: &SimStorage, meanwhile: impl FnMut(u64) + Send + 'static) -> Watched {
        Watched {
            disk: disk.clone(),
            meanwhile: Arc::new(Mutex::new(meanwhile)),
            operations: Default::default(),
        }
    }

    fn step(&self) {
        let mut operations = self.operations.lock().unwrap();
        (self.meanwhile.lock().unwrap())(*operations);
        *operations += 1;
    }
}

impl Storage for Watched {
    type File = WatchedFile;
    type Lock = ();
    const BACKGROUND: bool = false;

    fn open(&self, path: &Path) -> io::Result<WatchedFile> {
        panic!("{} is opened for writing", path.display())
    }
    fn open_read(&self, path: &Path) -> io::Result<WatchedFile> {
        self.step();
        Ok(WatchedFile { file: self.disk.open_read(path)?, watched: self.clone() })
    }
    fn create(&self, path: &Path) -> io::Result<WatchedFile> {
        panic!("{} is created", path.display())
    }
    fn create_dir(&self, path: &Path) -> io::Result<()> {
        panic!("{} is created", path.display())
    }
    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        self.step();
        self.disk.list(dir)
    }
    fn rename(&self, from: &Path, _: &Path) -> io::Result<()> {
        panic!("{} is renamed", from.display())
    }
    fn remove(&self, path: &Path) -> io::Result<()> {
        panic!("{} is removed", path.display())
    }
    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        panic!("{} is synced", dir.display())
    }
    fn exists(&self, path: &Path) -> io::Result<bool> {
        self.disk.exists(path)
    }
    fn lock(&self, dir: &Path) -> io::Result<Option<()>> {
        panic!("{} is locked", dir.display())
    }
}

impl StorageFile for WatchedFile {
    fn write_at(&self, _: u64, _: &[u8]) -> io::Result<()> {
        panic!("a file is written")
    }
    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<usize> {
        self.watched.step();
        self.file.read_at(offset, into)
    }
    fn sync(&self) -> io::Result<()> {
        panic!("a file is synced")
    }
    fn allocate(&self, _: u64) -> io::Result<()> {
        panic!("a file is made longer")
    }
    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }
    fn truncate(&self, _: u64) -> io::Result<()> {
        panic!("a file is cut")
    }
}

/// A journal with some records, of which the last ones are not synced, and something that appends to it.
fn live(storage: &SimStorage, records: u64) -> Journal<SimStorage> {
    let (mut journal, _) = Journal::open(storage.clone(), config(4096)).unwrap();
    for _ in 0..records {
        append(&mut journal, 2).unwrap();
        journal.sync().unwrap();
    }
    journal
}

/// What a writer does in one go: some batches, each synced, over a few segments; and retention now and then.
fn burst(journal: &mut Journal<SimStorage>, storage: &SimStorage, batches: u64, retention: bool) {
    for _ in 0..batches {
        append(journal, 3).unwrap();
        journal.sync().unwrap();
    }
    if retention {
        remove_before(storage, dir(), Seq(journal.last().0 - 5)).unwrap();
    }
}

#[test]
fn verify_beside_a_writer_finds_nothing_wrong() {
    for (records, batches, retention) in
        [(0, 1, false), (3, 1, false), (9, 2, false), (20, 25, false), (40, 9, true)]
    {
        // The writer goes on before one of the reading operations, or before this one and all later ones.
        for always in [false, true] {
            for at in (0..60).step_by(if always { 7 } else { 1 }) {
                let storage = SimStorage::new();
                let mut journal = live(&storage, records);
                let before = journal.last().0;
                let mut rounds = 0;
                let watched = Watched::new(&storage, {
                    let storage = storage.clone();
                    move |operation| {
                        if operation == at || (always && operation > at && rounds < 100) {
                            rounds += 1;
                            burst(&mut journal, &storage, batches, retention && rounds % 50 == 1);
                        }
                    }
                });
                let report = verify(&watched, dir()).unwrap();
                let case = format!("{records} records, {batches} batches, always: {always}, at {at}");
                assert_eq!((report.verdict, &report.problem), (Verdict::Clean, &None), "{case}");
                assert!(report.last >= before, "{case}: {} of {before}", report.last);
                let records: u64 = report.segments.iter().map(|segment| segment.records).sum();
                assert_eq!(records, report.last + 1 - report.first, "{case}: each record counts once");
                let stats = stats(&watched, dir()).unwrap();
                assert_eq!(stats.records, stats.last + 1 - stats.first, "{case}");
            }
        }
    }
}

/// What is damaged or torn is called so, also while somebody writes behind it or beside it.
#[test]
fn verify_beside_a_writer_still_finds_damage() {
    for at in 0..40 {
        let storage = SimStorage::new();
        let mut journal = live(&storage, 20);
        let path = files(&storage)[1].clone();
        let mut bytes = storage.bytes(&path).unwrap();
        bytes[BLOCK + 20] ^= 1;
        storage.set_bytes(&path, bytes);
        let watched = Watched::new(&storage, {
            let storage = storage.clone();
            move |operation| {
                if operation == at {
                    burst(&mut journal, &storage, 3, false);
                }
            }
        });
        assert_eq!(verify(&watched, dir()).unwrap().verdict, Verdict::Damaged, "at {at}");
    }
}

#[test]
fn dump_beside_retention_says_what_is_gone() {
    let storage = SimStorage::new();
    let mut journal = live(&storage, 40);
    let last = journal.last();
    let mut seen = 0;
    let result = dump(&storage, dir(), Seq(1), |record| {
        assert_eq!(record.seq.0, seen + 1);
        seen += 1;
        if seen == 3 {
            burst(&mut journal, &storage, 2, true);
        }
        ControlFlow::Continue(())
    });
    assert!(matches!(result, Err(LogError::Removed { .. })), "{result:?}");
    assert!(seen < last.0);
}

#[test]
fn verify_runs_beside_a_writer_on_the_disk() {
    let dir = std::env::temp_dir().join(format!("hoga-log-live-{}", std::process::id()));
    drop(std::fs::remove_dir_all(&dir));
    let config =
        JournalConfig { segment_bytes: 64 << 10, durability: Durability::Write, ..JournalConfig::new(&dir) };
    let (mut journal, _) = Journal::open(Disk, config.clone()).unwrap();
    let mut batch = Batch::new();
    let done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            while !done.load(std::sync::atomic::Ordering::Relaxed) {
                batch.clear();
                for _ in 0..40 {
                    let seq = Seq(journal.last().0 + u64::from(batch.count()) + 1);
                    batch.push(seq, &payload(seq.0));
                }
                journal.append(batch.first(), batch.count(), batch.records()).unwrap();
                journal.sync().unwrap();
                if journal.last().0 % 2000 == 0 {
                    journal.sync_device().unwrap();
                    remove_before(&Disk, &dir, Seq(journal.last().0.saturating_sub(4000))).unwrap();
                }
            }
            journal.close().unwrap();
        });
        let mut last = 0;
        for _ in 0..40 {
            let report = verify(&Disk, &dir).unwrap();
            assert_eq!((report.verdict, report.problem), (Verdict::Clean, None));
            assert!(report.last >= last);
            last = report.last;
            assert!(stats(&Disk, &dir).unwrap().last >= last);
        }
        done.store(true, std::sync::atomic::Ordering::Relaxed);
        writer.join().unwrap();
    });
    // The writer was not disturbed, and the journal starts again.
    drop(Journal::open(Disk, config).unwrap());
    std::fs::remove_dir_all(&dir).unwrap();
}
