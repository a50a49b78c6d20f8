//! Figures for operators.

use rdkafka::statistics::Statistics;

/// What a log does, as it was a few seconds ago at most.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KafkaStats {
    /// Messages that were appended since the log was opened.
    pub appended: u64,
    /// Messages that were acknowledged since the log was opened.
    pub acknowledged: u64,
    /// Messages that wait to be acknowledged.
    pub queued: u64,
    /// Bytes that wait to be acknowledged.
    pub queued_bytes: u64,
    /// Messages that were sent again.
    pub retries: u64,
    /// Brokers with a connection.
    pub brokers_up: u32,
    /// Brokers that are known.
    pub brokers: u32,
    /// Longest mean time of an answer among the brokers, in microseconds.
    pub answer_us: u64,
}

impl KafkaStats {
    /// Takes over what the client reports.
    pub(super) fn take(&mut self, from: &Statistics) {
        self.queued_bytes = from.msg_size;
        // Bootstrap addresses and the coordinator are entries too, with node ids below 0.
        let brokers = || from.brokers.values().filter(|broker| broker.nodeid >= 0);
        self.retries = brokers().map(|broker| broker.txretries).sum();
        self.brokers = brokers().count() as u32;
        self.brokers_up = brokers().filter(|broker| broker.state == "UP").count() as u32;
        let answer = |broker: &rdkafka::statistics::Broker| broker.rtt.as_ref().map_or(0, |rtt| rtt.avg);
        self.answer_us = brokers().map(answer).max().unwrap_or(0).max(0) as u64;
    }
}
