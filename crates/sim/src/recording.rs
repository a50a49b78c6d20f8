//! What the readers of recordings share: opening plain, gzip and xz files, lines with a bound, and errors that name line and field.

use flate2::read::MultiGzDecoder;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Cursor, Read, Write};
use std::path::{Path, PathBuf};

/// The longest line of a recording, in bytes. The formats read here need fewer than 200.
pub const MOST_LINE: usize = 4096;

/// The most that an xz file may unpack to, since it is unpacked in memory.
pub const MOST_UNPACKED: usize = 1 << 30;

/// Why a recording could not be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The file could not be opened or unpacked.
    #[error("cannot open recording {path}: {source}")]
    Open {
        /// Which file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Reading failed on the way; a damaged gzip file shows here.
    #[error("line {line}: {source}")]
    Io {
        /// The line that was being read, from 1.
        line: u64,
        /// What the system said.
        source: io::Error,
    },
    /// A line beyond [`MOST_LINE`] bytes.
    #[error("line {line} is longer than {MOST_LINE} bytes: this is not such a recording")]
    LineTooLong {
        /// Which line, from 1.
        line: u64,
    },
    /// The first line is not the heading that the format has.
    #[error("line 1 is not the heading '{expected}': this is not such a recording")]
    Heading {
        /// The heading that was expected.
        expected: &'static str,
    },
    /// Too few or too many fields.
    #[error("line {line} has {found} fields instead of {expected}")]
    Fields {
        /// Which line, from 1.
        line: u64,
        /// How many there should be.
        expected: usize,
        /// How many there are.
        found: usize,
    },
    /// A field that is not what it should be.
    #[error("line {line}, field {field}: '{text}' is {problem}")]
    Field {
        /// Which line, from 1.
        line: u64,
        /// Which field, by its column name.
        field: &'static str,
        /// The field's text, its first 40 characters.
        text: String,
        /// What is wrong with it.
        problem: &'static str,
    },
}

impl ReadError {
    /// The error for one field.
    pub(crate) fn field(line: u64, field: &'static str, text: &[u8], problem: &'static str) -> ReadError {
        let text = String::from_utf8_lossy(text).chars().take(40).collect();
        ReadError::Field { line, field, text, problem }
    }
}

/// Opens a recording and unpacks it, by its first bytes: gzip and xz, else plain.
pub fn open(path: &Path) -> Result<Box<dyn BufRead + Send>, ReadError> {
    let fail = |source| ReadError::Open { path: path.to_owned(), source };
    unpack(File::open(path).map_err(fail)?).map_err(fail)
}

fn unpack(source: impl Read + Send + 'static) -> io::Result<Box<dyn BufRead + Send>> {
    let mut reader = BufReader::with_capacity(64 * 1024, source);
    let head = reader.fill_buf()?;
    if head.starts_with(&[0x1f, 0x8b]) {
        return Ok(Box::new(BufReader::with_capacity(64 * 1024, MultiGzDecoder::new(reader))));
    }
    if head.starts_with(&[0xfd, b'7', b'z', b'X', b'Z', 0]) {
        let mut unpacked = Bounded(Vec::new());
        lzma_rs::xz_decompress(&mut reader, &mut unpacked)
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, format!("{error:?}")))?;
        return Ok(Box::new(Cursor::new(unpacked.0)));
    }
    Ok(Box::new(reader))
}

struct Bounded(Vec<u8>);

impl Write for Bounded {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.0.len() + bytes.len() > MOST_UNPACKED {
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, "unpacks to more than 1 GiB"));
        }
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Lines of a reader: bounded, numbered from 1, without their line ends, in one buffer.
pub(crate) struct Lines<R> {
    reader: R,
    buffer: Vec<u8>,
    number: u64,
}

impl<R: BufRead> Lines<R> {
    pub(crate) fn new(reader: R) -> Lines<R> {
        Lines { reader, buffer: Vec::with_capacity(256), number: 0 }
    }

    /// The number and the bytes of the next line that is not empty.
    pub(crate) fn next(&mut self) -> Result<Option<(u64, &[u8])>, ReadError> {
        loop {
            self.buffer.clear();
            self.number += 1;
            let line = self.number;
            let mut limited = (&mut self.reader).take(MOST_LINE as u64 + 1);
            limited.read_until(b'\n', &mut self.buffer).map_err(|source| ReadError::Io { line, source })?;
            if self.buffer.is_empty() {
                return Ok(None);
            }
            if self.buffer.len() > MOST_LINE {
                return Err(ReadError::LineTooLong { line });
            }
            while let Some(b'\n' | b'\r') = self.buffer.last() {
                self.buffer.pop();
            }
            if !self.buffer.is_empty() {
                return Ok(Some((line, &self.buffer)));
            }
        }
    }
}

/// Splits a line at its commas into exactly `N` fields.
pub(crate) fn fields<const N: usize>(line: u64, bytes: &[u8]) -> Result<[&[u8]; N], ReadError> {
    let mut parts = [&bytes[..0]; N];
    let mut found = 0;
    for part in bytes.split(|b| *b == b',') {
        if let Some(place) = parts.get_mut(found) {
            *place = part;
        }
        found += 1;
    }
    if found == N { Ok(parts) } else { Err(ReadError::Fields { line, expected: N, found }) }
}

/// A whole number without a sign.
pub(crate) fn unsigned(line: u64, field: &'static str, text: &[u8]) -> Result<u64, ReadError> {
    let digits =
        std::str::from_utf8(text).ok().filter(|t| !t.is_empty() && t.bytes().all(|b| b.is_ascii_digit()));
    let digits = digits.ok_or_else(|| ReadError::field(line, field, text, "not a whole number"))?;
    digits.parse().map_err(|_| ReadError::field(line, field, text, "out of range"))
}

/// A decimal number in units of 10⁻⁸, with or without an exponent (`6.377e-05`): exact, or refused.
pub(crate) fn decimal(line: u64, field: &'static str, text: &[u8]) -> Result<i64, ReadError> {
    decimal_units(text).map_err(|problem| ReadError::field(line, field, text, problem))
}

fn decimal_units(text: &[u8]) -> Result<i64, &'static str> {
    const MALFORMED: &str = "not a decimal number";
    const RANGE: &str = "out of range";
    let text = std::str::from_utf8(text).map_err(|_| MALFORMED)?;
    let (mantissa, exponent) = match text.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, exponent.parse::<i32>().map_err(|_| MALFORMED)?),
        None => (text, 0),
    };
    let (whole, part) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    if whole.is_empty() && part.is_empty() {
        return Err(MALFORMED);
    }
    let mut value: i128 = 0;
    for digit in whole.bytes().chain(part.bytes()) {
        if !digit.is_ascii_digit() {
            return Err(MALFORMED);
        }
        value = value.checked_mul(10).and_then(|v| v.checked_add(i128::from(digit - b'0'))).ok_or(RANGE)?;
    }
    // The value is now an integer of 10^-places; units are of 10^-8.
    let shift = i64::from(exponent) + 8 - part.len() as i64;
    if value == 0 {
        return Ok(0);
    }
    let units = if shift >= 0 {
        u32::try_from(shift)
            .ok()
            .and_then(|s| 10_i128.checked_pow(s))
            .and_then(|p| value.checked_mul(p))
            .ok_or(RANGE)?
    } else {
        let power = u32::try_from(-shift)
            .ok()
            .and_then(|s| 10_i128.checked_pow(s))
            .ok_or("finer than 8 decimal places")?;
        if value % power != 0 {
            return Err("finer than 8 decimal places");
        }
        value / power
    };
    i64::try_from(units).map_err(|_| RANGE)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::any;
    use proptest::sample::Index;

    #[test]
    fn decimals_with_exponents_are_exact() {
        for (text, units) in [
            ("78318.0", Ok(7_831_800_000_000)),
            ("6.377e-05", Ok(6377)),
            ("1e-05", Ok(1000)),
            ("4E-7", Ok(40)),
            ("0.0", Ok(0)),
            ("0e99", Ok(0)),
            ("1e3", Ok(100_000_000_000)),
            ("999999999.0", Ok(99_999_999_900_000_000)),
            ("1e-08", Ok(1)),
            ("1.000000000", Ok(100_000_000)),
            ("1e-09", Err("finer than 8 decimal places")),
            ("1e-2000000000", Err("finer than 8 decimal places")),
            ("1e2000000000", Err("out of range")),
            ("99999999999999999999999999999999999999999", Err("out of range")),
            ("", Err("not a decimal number")),
            (".", Err("not a decimal number")),
            ("1.2.3", Err("not a decimal number")),
            ("-1", Err("not a decimal number")),
            ("1e", Err("not a decimal number")),
            ("nan", Err("not a decimal number")),
        ] {
            assert_eq!(decimal_units(text.as_bytes()), units, "{text}");
        }
        assert!(decimal_units(&[0xff]).is_err());
    }

    #[test]
    fn packed_and_plain_files_read_the_same() {
        let text = b"first\r\n\nsecond".to_vec();
        let mut gz = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        gz.write_all(&text).unwrap();
        let mut xz = Vec::new();
        lzma_rs::xz_compress(&mut text.as_slice(), &mut xz).unwrap();
        for bytes in [text, gz.finish().unwrap(), xz] {
            let mut lines = Lines::new(unpack(Cursor::new(bytes)).unwrap());
            assert_eq!(lines.next().unwrap(), Some((1, b"first".as_slice())));
            assert_eq!(lines.next().unwrap(), Some((3, b"second".as_slice())));
            assert_eq!(lines.next().unwrap(), None);
        }
    }

    #[test]
    fn long_lines_and_damaged_files_are_errors() {
        let mut lines = Lines::new(Cursor::new(vec![b'x'; MOST_LINE + 1]));
        assert!(matches!(lines.next(), Err(ReadError::LineTooLong { line: 1 })));
        let mut damaged = Lines::new(unpack(Cursor::new(vec![0x1f, 0x8b, 8, 0, 1, 2, 3])).unwrap());
        assert!(matches!(damaged.next(), Err(ReadError::Io { line: 1, .. })));
        assert!(unpack(Cursor::new(b"\xfd7zXZ\0broken".to_vec())).is_err());
        let missing = open(Path::new("no/such/file")).err().unwrap().to_string();
        assert!(missing.starts_with("cannot open recording no/such/file: "), "{missing}");
    }

    /// Sixty lines as the `xz` program packs them.
    fn xz_text() -> Vec<u8> {
        let hex = "fd377a585a0000016922de360200210116000000742fe5a3e0036700da5d00270b0442e606c6ed0d304e984f0a214b96\
         f611e2f7fe89ad23e26f37a50547cd30963d6e92f1f9966788acb28779a0076cb5b50fce8117ea6fe056979b2a1801e0\
         c1d8a9640032d8b71b72e574d5153ddc0f486afcc49adf9afd35eef5d2ca4c015e4ec84d3205c7454fad0508c9da8aec\
         8c6b55dd1ec81fb4a3230d69537f80cfb6308f805353adf55b823e2309d660223cbf0c973b04964f5cda7ec32081c6d3\
         66c15d783d253a8e0c9afb3a2819bc6bca5d61da53c2bfdc4d2fac936f2c80c52dbde258ed7fdde1b18e4c6ba692f15b\
         c6cd48de9aba341e680000000718ff430001f201e80600001a5029b13e300d8b020000000001595a";
        let byte = |at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap();
        (0..hex.len()).step_by(2).map(byte).collect()
    }

    proptest::proptest! {
        #![proptest_config(proptest::test_runner::Config::with_cases(1000))]

        /// Damaged packed files are errors or other texts, never a panic.
        #[test]
        fn damaged_packed_files_never_panic(
            xz in any::<bool>(),
            damage in proptest::collection::vec((any::<Index>(), any::<u8>()), 1..5),
            cut in proptest::option::of(any::<Index>()),
        ) {
            let mut packed = xz_text();
            if !xz {
                let mut text = Vec::new();
                lzma_rs::xz_decompress(&mut packed.as_slice(), &mut text).unwrap();
                let mut gz = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
                std::io::Write::write_all(&mut gz, &text).unwrap();
                packed = gz.finish().unwrap();
            }
            for (at, byte) in damage {
                let at = at.index(packed.len());
                packed[at] = byte;
            }
            if let Some(cut) = cut {
                packed.truncate(cut.index(packed.len()));
            }
            if let Ok(reader) = unpack(Cursor::new(packed)) {
                let mut lines = Lines::new(reader);
                while let Ok(Some(_)) = lines.next() {}
            }
        }
    }
}
