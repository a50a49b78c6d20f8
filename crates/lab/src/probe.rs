//! The disk probe: what a 4 KiB append with fdatasync costs on this disk now. It stands beside every durable figure, since the disk is
//! the p99.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::report::{Report, histogram, round1};

/// The probe's result.
#[derive(Clone, Copy, Debug)]
pub struct Disk {
    /// Median of a sync, in microseconds.
    pub p50_us: f64,
    /// 99 % of the syncs are quicker.
    pub p99_us: f64,
    /// Time-weighted 99 %: what an order that arrives at a random moment meets. A long sync catches more of them than a short one.
    pub tw_p99_us: f64,
}

/// A probe that runs beside a measurement, one sync every 20 ms, so that it says what the disk did in that very minute.
pub struct Running {
    stop: Arc<AtomicBool>,
    thread: std::thread::JoinHandle<std::io::Result<Vec<u64>>>,
}

/// Starts a probe in `dir`.
pub fn start(dir: &Path) -> std::io::Result<Running> {
    let file = open(dir)?;
    let path = dir.join("probe.tmp");
    let stop = Arc::new(AtomicBool::new(false));
    let seen = Arc::clone(&stop);
    let thread = std::thread::Builder::new().name("probe".into()).spawn(move || {
        let mut times = Vec::new();
        while !seen.load(Ordering::Relaxed) {
            times.push(one(&file, times.len() as u64)?);
            std::thread::sleep(Duration::from_millis(20)); // a probe, not a load: it must not be what it measures
        }
        std::fs::remove_file(path)?;
        Ok(times)
    })?;
    Ok(Running { stop, thread })
}

impl Running {
    /// Ends the probe.
    pub fn finish(self) -> std::io::Result<Disk> {
        self.stop.store(true, Ordering::Relaxed);
        let times = self.thread.join().map_err(|_| std::io::Error::other("the disk probe panicked"))??;
        Ok(summary(times))
    }
}

fn open(dir: &Path) -> std::io::Result<File> {
    let file =
        OpenOptions::new().read(true).write(true).create(true).truncate(true).open(dir.join("probe.tmp"))?;
    // Written once before, as the journal's segments are: overwriting allocated blocks is what is measured.
    file.write_all_at(&vec![0; SLOTS as usize * 4096], 0)?;
    file.sync_all()?;
    Ok(file)
}

const SLOTS: u64 = 256;

fn one(file: &File, number: u64) -> std::io::Result<u64> {
    let block = [number as u8; 4096];
    let begun = Instant::now();
    file.write_all_at(&block, number % SLOTS * 4096)?;
    file.sync_data()?;
    Ok(begun.elapsed().as_nanos() as u64)
}

fn summary(mut times: Vec<u64>) -> Disk {
    let mut plain = histogram();
    for &ns in &times {
        plain.saturating_record(ns);
    }
    times.sort_unstable();
    let total: u128 = times.iter().map(|&t| u128::from(t)).sum();
    let mut sum = 0_u128;
    let weighted = times
        .iter()
        .find(|&&t| {
            sum += u128::from(t);
            sum * 100 >= total * 99
        })
        .copied()
        .unwrap_or(0);
    Disk {
        p50_us: round1(plain.value_at_quantile(0.5) as f64 / 1000.0),
        p99_us: round1(plain.value_at_quantile(0.99) as f64 / 1000.0),
        tw_p99_us: round1(weighted as f64 / 1000.0),
    }
}

impl Disk {
    /// Puts the three figures into a report.
    pub fn report(&self, report: &mut Report) {
        report.set("sync_p50_us", self.p50_us);
        report.set("sync_p99_us", self.p99_us);
        report.set("sync_tw_p99_us", self.tw_p99_us);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_syncs_weigh_more() {
        // 99 short syncs of 1 ms and one of 1 s: the long one has 91 % of the time, so a random moment meets it.
        let mut times = vec![1_000_000; 99];
        times.push(1_000_000_000);
        let disk = summary(times);
        assert!(disk.p50_us < 1_100.0);
        assert!(disk.tw_p99_us > 900_000.0);
    }
}
