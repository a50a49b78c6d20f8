//! A lease of our own on Redis, for candidates in several processes.
//!
//! The key `NAME` is the holder (`node epoch`) and expires; `NAME:epoch` is the last epoch. Each step is one script, which Redis runs without anything in between.
//! One server, so no quorum: where it dies with its memory the next epoch is still higher, because it is at least the server's clock in microseconds, and at
//! least what the candidate has seen. But the lease is free at once then, even though the old leader's `until` has not passed: the law does not hold over such a loss,
//! and only the epoch keeps the old leader out. Whoever writes to that same server can compare the epoch in the same step, which is what makes it sound.

use std::time::{Duration, Instant};

use super::{Held, Lease, LeaseError};

/// Takes it when nobody has it. KEYS: name, epoch. ARGV: node, milliseconds, the highest epoch that the candidate has seen. Gives the epoch, or 0.
const TAKE: &str = r"
if redis.call('EXISTS', KEYS[1]) == 1 then return '0' end
local time = redis.call('TIME')
local clock = tonumber(time[1]) * 1000000 + tonumber(time[2])
local epoch = math.max(tonumber(redis.call('GET', KEYS[2]) or '0'), tonumber(ARGV[3])) + 1
epoch = string.format('%.0f', math.max(epoch, clock))
redis.call('SET', KEYS[2], epoch)
redis.call('SET', KEYS[1], ARGV[1] .. ' ' .. epoch, 'PX', ARGV[2])
return epoch
";
/// Renews it where it is still this candidate's, in this epoch. KEYS: name. ARGV: node and epoch, milliseconds.
const RENEW: &str = r"
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
return redis.call('PEXPIRE', KEYS[1], ARGV[2])
";
/// Gives it up where it is still this candidate's. KEYS: name. ARGV: node and epoch.
const RESIGN: &str = r"
if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end
return 0
";

/// How long connecting, and an answer, may take when the lease is given up. What was not heard by then ends by itself.
const LEAVE: Duration = Duration::from_millis(500);

/// A candidate whose lease is on a Redis server. It resigns when it is dropped.
pub struct RedisLease {
    client: redis::Client,
    url: String,
    name: String,
    node: String,
    ttl: Duration,
    connection: Option<redis::Connection>,
    /// The epoch it leads in; 0: it does not.
    epoch: u64,
    /// The highest it has seen.
    seen: u64,
    /// Not asked again before then, where the server was away.
    not_before: Option<Instant>,
}

impl RedisLease {
    /// A candidate for the lease of this name. The server may be away. `node` has to be different for each candidate.
    ///
    /// # Errors
    /// [`LeaseError::Config`].
    pub fn new(url: &str, name: &str, node: &str, ttl: Duration) -> Result<RedisLease, LeaseError> {
        let client = redis::Client::open(url).map_err(|error| {
            LeaseError::Config(format!(
                "{url:?} is no address of a Redis server ({error}): use redis://host:port"
            ))
        })?;
        if ttl < Duration::from_millis(30) || node.is_empty() || node.contains(' ') {
            return Err(LeaseError::Config(format!(
                "a length of 30 ms or more and a node's name without spaces are needed, not {ttl:?} and {node:?}"
            )));
        }
        Ok(RedisLease {
            client,
            url: url.into(),
            name: name.into(),
            node: node.into(),
            ttl,
            connection: None,
            epoch: 0,
            seen: 0,
            not_before: None,
        })
    }

    fn mine(&self) -> String {
        format!("{} {}", self.node, self.epoch)
    }

    /// Runs a script; the connection is made when there is none, and given up after a fault. Each of connecting and the answer may take `timeout`.
    fn script<T: redis::FromRedisValue>(
        &mut self,
        script: &str,
        keys: &[&str],
        arguments: &[String],
        timeout: Duration,
    ) -> Result<T, LeaseError> {
        let mut work = || {
            let mut connection = match self.connection.take() {
                Some(connection) => connection,
                None => self.client.get_connection_with_timeout(timeout)?,
            };
            connection.set_read_timeout(Some(timeout))?;
            connection.set_write_timeout(Some(timeout))?;
            let mut command = redis::cmd("EVAL");
            command.arg(script).arg(keys.len()).arg(keys).arg(arguments);
            let answer = command.query(&mut connection)?;
            self.connection = Some(connection);
            Ok(answer)
        };
        work().map_err(|error: redis::RedisError| {
            self.not_before = Some(Instant::now() + timeout);
            LeaseError::Away { service: format!("Redis at {}", self.url), reason: error.to_string() }
        })
    }
}

impl Lease for RedisLease {
    fn poll(&mut self) -> Result<Option<Held>, LeaseError> {
        if self.not_before.is_some_and(|at| Instant::now() < at) {
            let service = format!("Redis at {}", self.url);
            return Err(LeaseError::Away { service, reason: "it did not a moment ago".into() });
        }
        let name = self.name.clone();
        let millis = (self.ttl.as_millis() as u64).to_string();
        // A third of the lease's length is for both, connecting and the answer.
        let timeout = self.ttl / 6;
        // The server counts from when it gets this: not earlier than now. A tenth is for clocks that run at different speeds.
        let until = Instant::now() + self.ttl * 9 / 10;
        if self.epoch > 0 {
            let mine = self.mine();
            let renewed: u64 = self.script(RENEW, &[&name], &[mine, millis.clone()], timeout)?;
            if renewed == 1 {
                return Ok(Some(Held { epoch: self.epoch, until }));
            }
            self.epoch = 0;
        }
        let epoch: String = self.script(
            TAKE,
            &[&name, &format!("{name}:epoch")],
            &[self.node.clone(), millis, self.seen.to_string()],
            timeout,
        )?;
        self.epoch = epoch.parse().unwrap_or(0);
        self.seen = self.seen.max(self.epoch);
        Ok((self.epoch > 0).then_some(Held { epoch: self.epoch, until }))
    }

    fn resign(&mut self) {
        if self.epoch > 0 {
            let (name, mine) = (self.name.clone(), self.mine());
            self.epoch = 0;
            // Where it cannot be said it ends by itself.
            let _: Result<u64, _> = self.script(RESIGN, &[&name], &[mine], LEAVE.min(self.ttl / 6));
        }
    }

    fn ttl(&self) -> Duration {
        self.ttl
    }
}

impl Drop for RedisLease {
    fn drop(&mut self) {
        self.resign();
    }
}
