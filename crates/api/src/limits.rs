//! Request weights per address and order counts per account, in the fixed windows that Binance documents: a minute starts at second 0,
//! ten seconds at 0, 10, 20 …, a day at 00:00 UTC.

use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use hoga_core::ids::{AccountId, Timestamp};
use rustc_hash::FxHashMap;

use crate::config::LimitsConfig;
use crate::error::ApiError;
use crate::json::write_int;

/// Entries above which those without a connection and without use in this window are dropped: the tables stay as large as the traffic.
const PRUNE_ABOVE: usize = 4_096;

/// A counter that starts again in each window: the window's number in the upper half, the count in the lower.
#[derive(Debug, Default)]
struct Window(AtomicU64);

impl Window {
    fn add(&self, window: u64, n: u32) -> u64 {
        let mut now = self.0.load(Ordering::Relaxed);
        loop {
            let count = if now >> 32 == window { now & 0xffff_ffff } else { 0 };
            // Saturating: a count of four thousand millions is beyond every limit.
            let count = (count + u64::from(n)).min(0xffff_ffff);
            match self.0.compare_exchange_weak(
                now,
                window << 32 | count,
                Ordering::Relaxed,
                Ordering::Relaxed,
            ) {
                Ok(_) => return count,
                Err(other) => now = other,
            }
        }
    }

    fn get(&self, window: u64) -> u64 {
        let now = self.0.load(Ordering::Relaxed);
        if now >> 32 == window { now & 0xffff_ffff } else { 0 }
    }
}

/// Seconds since the epoch.
fn seconds(now: Timestamp) -> u64 {
    u64::try_from(now.0.div_euclid(1_000_000)).unwrap_or(0)
}

/// What an address has used.
#[derive(Debug, Default)]
pub struct AddressUse {
    minute: Window,
}

/// What an account has ordered.
#[derive(Debug, Default)]
pub struct OrderUse {
    ten_seconds: Window,
    day: Window,
}

/// Order counts of an account, for headers and answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OrderCounts {
    /// In this window of ten seconds.
    pub ten_seconds: u64,
    /// On this day, UTC.
    pub day: u64,
}

/// The limits and what has been used of them.
#[derive(Debug)]
pub struct Limits {
    config: LimitsConfig,
    addresses: Mutex<FxHashMap<IpAddr, Arc<AddressUse>>>,
    accounts: Mutex<FxHashMap<AccountId, Arc<OrderUse>>>,
}

impl Limits {
    /// Nothing used yet.
    pub fn new(config: LimitsConfig) -> Limits {
        Limits { config, addresses: Mutex::default(), accounts: Mutex::default() }
    }

    /// The counter of an address; a connection asks once and keeps it.
    pub fn address(&self, ip: IpAddr, now: Timestamp) -> Arc<AddressUse> {
        let minute = seconds(now) / 60;
        let mut table = self.addresses.lock().unwrap_or_else(PoisonError::into_inner);
        if table.len() > PRUNE_ABOVE {
            table.retain(|_, used| Arc::strong_count(used) > 1 || used.minute.get(minute) > 0);
        }
        table.entry(ip).or_default().clone()
    }

    /// The counter of an account; a session asks once and keeps it.
    pub fn account(&self, account: AccountId, now: Timestamp) -> Arc<OrderUse> {
        let day = seconds(now) / 86_400;
        let mut table = self.accounts.lock().unwrap_or_else(PoisonError::into_inner);
        if table.len() > PRUNE_ABOVE {
            table.retain(|_, used| Arc::strong_count(used) > 1 || used.day.get(day) > 0);
        }
        table.entry(account).or_default().clone()
    }

    /// Adds a request's weight and gives the sum of this minute; -1003 when that is above the limit.
    pub fn charge(&self, used: &AddressUse, weight: u32, now: Timestamp) -> (u64, Result<(), ApiError>) {
        let seconds = seconds(now);
        let sum = used.minute.add(seconds / 60, weight);
        let limit = self.config.request_weight_1m;
        if limit > 0 && sum > limit {
            return (sum, Err(ApiError::too_much_weight(limit, 60 - seconds % 60)));
        }
        (sum, Ok(()))
    }

    /// The weight used in this minute.
    pub fn weight(&self, used: &AddressUse, now: Timestamp) -> u64 {
        used.minute.get(seconds(now) / 60)
    }

    /// Counts a new order; -1015 when there are too many. Cancels are not counted and never refused.
    pub fn count_order(&self, used: &OrderUse, now: Timestamp) -> Result<OrderCounts, ApiError> {
        let seconds = seconds(now);
        let LimitsConfig { orders_10s, orders_1d, .. } = self.config;
        let before = self.orders(used, now);
        if orders_10s > 0 && before.ten_seconds >= orders_10s {
            return Err(ApiError::too_many_orders(orders_10s, "10 SECOND", 10 - seconds % 10));
        }
        if orders_1d > 0 && before.day >= orders_1d {
            return Err(ApiError::too_many_orders(orders_1d, "1 DAY", 86_400 - seconds % 86_400));
        }
        Ok(OrderCounts {
            ten_seconds: used.ten_seconds.add(seconds / 10, 1),
            day: used.day.add(seconds / 86_400, 1),
        })
    }

    /// The order counts as they are.
    pub fn orders(&self, used: &OrderUse, now: Timestamp) -> OrderCounts {
        let seconds = seconds(now);
        OrderCounts { ten_seconds: used.ten_seconds.get(seconds / 10), day: used.day.get(seconds / 86_400) }
    }

    /// Writes the two ORDERS entries of `rateLimits`, without brackets; `counts` for the form that carries them.
    pub fn write_orders(&self, out: &mut Vec<u8>, counts: Option<OrderCounts>) {
        write_limit(out, "ORDERS", "SECOND", 10, self.config.orders_10s, counts.map(|c| c.ten_seconds));
        out.push(b',');
        write_limit(out, "ORDERS", "DAY", 1, self.config.orders_1d, counts.map(|c| c.day));
    }

    /// Writes the REQUEST_WEIGHT entry of `rateLimits`.
    pub fn write_weight(&self, out: &mut Vec<u8>, count: Option<u64>) {
        write_limit(out, "REQUEST_WEIGHT", "MINUTE", 1, self.config.request_weight_1m, count);
    }
}

fn write_limit(out: &mut Vec<u8>, kind: &str, interval: &str, num: u32, limit: u64, count: Option<u64>) {
    for piece in ["{\"rateLimitType\":\"", kind, "\",\"interval\":\"", interval, "\",\"intervalNum\":"] {
        out.extend_from_slice(piece.as_bytes());
    }
    write_int(out, num);
    out.extend_from_slice(b",\"limit\":");
    write_int(out, limit);
    if let Some(count) = count {
        out.extend_from_slice(b",\"count\":");
        write_int(out, count);
    }
    out.push(b'}');
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits() -> Limits {
        Limits::new(LimitsConfig { request_weight_1m: 10, orders_10s: 2, orders_1d: 3 })
    }

    #[test]
    fn weight_starts_again_each_minute() {
        let limits = limits();
        let at = |s: i64| Timestamp(s * 1_000_000);
        let used = limits.address("127.0.0.1".parse().unwrap(), at(0));
        assert_eq!(limits.charge(&used, 10, at(59)), (10, Ok(())));
        let (sum, error) = limits.charge(&used, 1, at(59));
        let error = error.unwrap_err();
        assert_eq!((sum, error.status, error.code, error.retry_after), (11, 429, -1003, Some(1)));
        assert_eq!(limits.charge(&used, 1, at(60)), (1, Ok(())));
        // The address keeps its counter over connections.
        let again = limits.address("127.0.0.1".parse().unwrap(), at(60));
        assert_eq!(limits.weight(&again, at(61)), 1);
    }

    #[test]
    fn orders_are_counted_per_ten_seconds_and_day() {
        let limits = limits();
        let at = |s: i64| Timestamp(s * 1_000_000);
        let used = limits.account(AccountId(1), at(0));
        for (second, result) in [
            (3, Ok((1, 1))),
            (4, Ok((2, 2))),
            (5, Err((-1015, Some(5)))),
            (10, Ok((1, 3))),
            (11, Err((-1015, Some(86_389)))),
            (86_400, Ok((1, 1))),
        ] {
            let got = limits.count_order(&used, at(second));
            let got = got.map(|c| (c.ten_seconds, c.day)).map_err(|e| (e.code, e.retry_after));
            assert_eq!(got, result, "second {second}");
        }
    }

    #[test]
    fn the_table_of_addresses_stays_bounded() {
        let limits = limits();
        for i in 0..20_000_u32 {
            limits.address(IpAddr::from(i.to_be_bytes()), Timestamp(0));
        }
        assert!(limits.addresses.lock().unwrap().len() <= PRUNE_ABOVE + 1);
    }
}
