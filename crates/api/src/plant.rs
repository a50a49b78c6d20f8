//! The tick plant as operators and programs see it: JSON, metrics, and the two commands.

use std::fmt::Write as _;
use std::sync::Arc;

use hoga_core::folds::candle::Interval;
use hoga_core::ids::Timestamp;
use hoga_feed::Symbol;
use hoga_feed::bus::{Bus, Published};
use hoga_feed::cache::{Quote, Status};
use hoga_feed::feeder::FeedStatus;
use hoga_feed::groups::{Desk, GroupName, Member};
use hoga_feed::monitor::explain::{Explained, explain};
use hoga_feed::monitor::{Counts, Delays, Verdict};
use hoga_feed::plant::PlantStats;
use hoga_feed::sockets;
use serde_json::{Value, json};

/// Tells how a feed is doing, and what its bus has taken.
pub type FeedOf = Arc<dyn Fn() -> (FeedStatus, Option<Published>) + Send + Sync>;

/// The parts of a plant that are in this process.
#[derive(Clone, Default)]
pub struct TickPlant {
    /// How the feed is doing, and what its bus has taken.
    pub feed: Option<FeedOf>,
    /// Members of groups.
    pub members: Vec<(GroupName, Arc<Member>)>,
    /// What shows the groups.
    pub desk: Option<Arc<Desk>>,
    /// The log of ticks, where it can be read from here.
    pub log: Option<Arc<dyn Bus>>,
    /// Ports of the buses and caches, whose sockets' queues are told.
    pub ports: Vec<u16>,
}

impl TickPlant {
    /// `GET /api/v1/plant`: feed, members, groups and sockets of this process. What is not here is null or empty.
    pub fn json(&self) -> Value {
        let feed = self.feed.as_ref().map(|feed| {
            let (feed, published) = feed();
            json!({
                "ticks": feed.gateway.ticks, "repeated": feed.gateway.repeated, "full": feed.gateway.full,
                "ended": feed.ended, "fault": feed.fault,
                "source": {
                    "connected": feed.source.connected, "reconnects": feed.source.reconnects,
                    "broken": feed.source.broken, "trades": feed.source.trades, "fault": feed.source.fault,
                },
                "published": published.map(|p| json!({ "ticks": p.ticks, "waiting": p.waiting, "connected": p.connected })),
            })
        });
        let members: Vec<Value> = self
            .members
            .iter()
            .map(|(group, member)| {
                let status = member.status();
                json!({
                    "group": group.as_str(), "node": status.status.node, "leads": status.leads.is_some(),
                    "epoch": status.leads, "refused": status.refused, "rebuilt": status.rebuilt,
                    "cache_connected": status.cache_is_there, "lease_connected": status.lease_is_there,
                    "status": status.status, "fault": member.fault(),
                    "loops": member.plant().map(|stats| loops(&stats)),
                    "heavy_loops": member.heavy().map(|stats| loops(&stats)),
                })
            })
            .collect();
        let sockets: Vec<Value> = sockets::queues(&self.ports)
            .iter()
            .map(|queue| json!({ "peer": queue.peer.to_string(), "receive_bytes": queue.receive, "send_bytes": queue.send }))
            .collect();
        json!({ "feed": feed, "members": members, "groups": self.groups(), "sockets": sockets })
    }

    /// Both groups as the desk sees them; null where there is no desk.
    fn groups(&self) -> Value {
        let Some(desk) = &self.desk else { return Value::Null };
        let of = |group: GroupName| {
            let info = desk.group(group);
            let contents = desk.contents(group);
            let health = &info.health;
            json!({
                "group": group.as_str(), "active": desk.active() == group, "connected": info.connected,
                "leader": info.status.as_ref().map(|status| &status.node), "epoch": health.leader,
                "behind": health.behind, "behind_ms": health.behind_for.as_millis() as u64,
                "stale": health.stale, "rebuilding": health.rebuilding, "status": info.status,
                "refused": contents.as_ref().ok().map(|contents| contents.refused),
                "members": contents.as_ref().ok().map(|contents| &contents.members),
                "fault": contents.as_ref().err().map(ToString::to_string),
            })
        };
        let (compared, only_one) = desk.group(GroupName::A).compared;
        let switched: Vec<Value> = desk
            .switched()
            .iter()
            .map(|s| json!({ "from": s.from.as_str(), "to": s.to.as_str(), "reason": s.reason, "automatic": s.automatic }))
            .collect();
        let view = desk.view().stats();
        json!({
            "active": desk.active().as_str(), "switches": desk.switches(), "switched": switched,
            "a": of(GroupName::A), "b": of(GroupName::B),
            "compared": compared, "only_one": only_one, "differs": desk.diff().len(),
            "shown": view.shown, "gaps": view.gaps, "below": view.below, "cut_off": view.cut_off, "events": view.events,
        })
    }

    /// `GET /api/v1/plant/diff`: the first difference of each symbol in which the groups differ.
    pub fn diff(&self) -> Value {
        let Some(desk) = &self.desk else { return Value::Null };
        let mark = |mark: &hoga_feed::groups::Mark| {
            json!({
                "epoch": mark.epoch, "seq": mark.seq, "last": hoga_core::money::Price(mark.last).to_string(),
                "candles": format!("{:016x}", mark.candles), "hash": format!("{:016x}", mark.hash),
            })
        };
        let differences: Vec<Value> = desk
            .diff()
            .iter()
            .map(|d| json!({ "symbol": d.symbol.as_str(), "seq": d.a.seq, "epoch": d.a.epoch, "kind": d.kind.as_str(), "a": mark(&d.a), "b": mark(&d.b) }))
            .collect();
        let (compared, only_one) = desk.group(GroupName::A).compared;
        json!({ "compared": compared, "only_one": only_one, "differences": differences })
    }

    /// `GET /api/v1/plant/monitor`: what happened to the numbers of each symbol, by the members of this process.
    pub fn monitor(&self) -> Value {
        let members: Vec<Value> = self
            .members
            .iter()
            .map(|(group, member)| {
                let (mut total, mut delays) = (Counts::default(), Delays::default());
                let symbols: Vec<Value> = member
                    .monitor()
                    .iter()
                    .map(|(symbol, order)| {
                        total.add(order.counts());
                        delays.add(order.delays());
                        let missing: Vec<(u64, u64)> = order.missing().take(10).collect();
                        let (epoch, seq) = order.place();
                        let mut row = counts(order.counts(), order.delays());
                        row["symbol"] = json!(symbol.as_str());
                        row["epoch"] = json!(epoch);
                        row["seq"] = json!(seq);
                        row["missing"] = json!(missing);
                        row
                    })
                    .collect();
                json!({
                    "group": group.as_str(), "node": member.status().status.node, "total": counts(&total, &delays),
                    "symbols": symbols,
                })
            })
            .collect();
        json!({ "members": members })
    }

    /// `GET /api/v1/plant/quotes`: the latest of each symbol, as it is shown.
    pub fn quotes(&self) -> Value {
        let quotes = self.desk.iter().flat_map(|desk| desk.view().all());
        quotes.map(|quote| quote_json(&quote)).collect()
    }

    /// `GET /api/v1/plant/quotes/{symbol}`: the latest of one symbol with its candles and, where a member of the shown group is in this process, the 24 h ticker.
    pub fn quote(&self, symbol: &str) -> Option<Value> {
        let symbol = Symbol::parse(symbol).ok()?;
        let desk = self.desk.as_ref()?;
        let mut value = quote_json(&*desk.view().latest(symbol)?);
        let candles: Vec<Value> = Interval::ALL
            .into_iter()
            .flat_map(|interval| desk.view().candles(symbol, interval))
            .map(|candle| {
                let c = &candle.change.candle;
                json!({
                    "interval": candle.change.interval.as_str(), "open_time": c.open_time.0, "open": c.open.to_string(),
                    "high": c.high.to_string(), "low": c.low.to_string(), "close": c.close.to_string(),
                    "volume": c.volume.to_string(), "trades": c.trades, "closed": candle.change.closed,
                    "revision": c.revision,
                })
            })
            .collect();
        value["candles"] = candles.into();
        let member = self.members.iter().find(|(group, _)| *group == desk.active());
        let ticker = member.and_then(|(_, member)| {
            member.with_symbol(symbol, |state| {
                let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
                let ticker = state.ticker(Timestamp(i64::try_from(now.as_micros()).unwrap_or(i64::MAX)));
                json!({
                    "open": ticker.open.to_string(), "high": ticker.high.to_string(), "low": ticker.low.to_string(),
                    "last": ticker.last.to_string(), "volume": ticker.volume.to_string(), "trades": ticker.trades,
                })
            })
        });
        value["ticker_24h"] = ticker.into();
        Some(value)
    }

    /// `GET /api/v1/plant/explain/{symbol}`: whether the order of a symbol's ticks is wrong in the log or after it. Reads the whole log.
    ///
    /// # Errors
    /// Why it cannot be said.
    pub fn explain(&self, symbol: &str) -> Result<Value, String> {
        let log = self.log.as_ref().ok_or(
            "the log of ticks cannot be read from this process: ask one with the role feed or processor",
        )?;
        let symbol = Symbol::parse(symbol).map_err(|error| error.to_string())?;
        // What members have seen is taken before: what comes into the log meanwhile is no fault of theirs.
        let wrong =
            |counts: &Counts| counts.violations + counts.duplicates + counts.lost() + counts.steps_back;
        let seen = self
            .members
            .iter()
            .filter_map(|(_, member)| member.with_symbol(symbol, |state| *state.order().counts()));
        let seen = seen.max_by_key(wrong);
        let found: Explained = explain(&**log, symbol, seen.as_ref()).map_err(|error| error.to_string())?;
        let verdict = |verdict| match verdict {
            Verdict::New { skipped } => format!("after a gap of {skipped}"),
            Verdict::Late => "out of order".to_owned(),
            Verdict::Duplicate => "again".to_owned(),
            Verdict::StepBack => "of an older epoch".to_owned(),
        };
        let findings: Vec<Value> = found
            .findings
            .iter()
            .map(|f| json!({ "lane": f.lane, "offset": f.offset, "epoch": f.epoch, "seq": f.seq, "verdict": verdict(f.verdict) }))
            .collect();
        let places: Vec<Value> = found
            .places
            .iter()
            .map(|(lane, first, last)| json!({ "lane": lane, "first_offset": first, "last_offset": last }))
            .collect();
        Ok(json!({
            "symbol": symbol.as_str(), "blame": found.blame.as_str(), "text": found.text,
            "log": counts(&found.counts, &Delays::default()), "places": places, "findings": findings,
        }))
    }

    /// `POST /api/v1/admin/plant/switch`: shows a group.
    ///
    /// # Errors
    /// Why not.
    pub fn switch(&self, to: &str, force: bool) -> Result<Value, String> {
        let desk =
            self.desk.as_ref().ok_or("this process shows no groups: ask the one with the role quotes")?;
        let to = GroupName::parse(to).ok_or_else(|| format!("{to:?} is no group: a or b"))?;
        let done = desk.command(to, force)?;
        Ok(json!({ "active": desk.active().as_str(), "switched": done.is_some() }))
    }

    /// `POST /api/v1/admin/plant/rebuild`: a group builds itself anew from the bus.
    ///
    /// # Errors
    /// Why not.
    pub fn rebuild(&self, group: &str) -> Result<Value, String> {
        let desk =
            self.desk.as_ref().ok_or("this process shows no groups: ask the one with the role quotes")?;
        let group = GroupName::parse(group).ok_or_else(|| format!("{group:?} is no group: a or b"))?;
        desk.rebuild(group).map_err(|error| error.to_string())?;
        Ok(json!({ "group": group.as_str(), "asked": true }))
    }

    /// Adds metrics in Prometheus' text format.
    pub fn metrics(&self, out: &mut String) {
        if let Some(feed) = &self.feed {
            let (feed, published) = feed();
            counter(out, "hoga_feed_ticks_total", "Ticks that went into the spool.", feed.gateway.ticks);
            counter(
                out,
                "hoga_feed_repeated_total",
                "Trades that a source had sent before.",
                feed.gateway.repeated,
            );
            counter(
                out,
                "hoga_feed_full_total",
                "Times that the spool took nothing because it was full.",
                feed.gateway.full,
            );
            counter(
                out,
                "hoga_feed_broken_total",
                "Messages of the source that could not be read.",
                feed.source.broken,
            );
            if let Some(published) = published {
                gauge(
                    out,
                    "hoga_feed_waiting",
                    "Ticks of the spool that the bus has not taken.",
                    published.waiting,
                );
                gauge(
                    out,
                    "hoga_feed_bus_connected",
                    "Whether the bus takes ticks.",
                    published.connected.into(),
                );
            }
        }
        self.member_metrics(out);
        if let Some(desk) = &self.desk {
            let view = desk.view().stats();
            gauge(
                out,
                "hoga_groups_active",
                "The group that is shown: 0 is A, 1 is B.",
                (desk.active() == GroupName::B).into(),
            );
            counter(
                out,
                "hoga_groups_switches_total",
                "Changes of the group that is shown.",
                desk.switches(),
            );
            gauge(
                out,
                "hoga_groups_differs",
                "Symbols in which the groups differ.",
                desk.diff().len() as u64,
            );
            counter(out, "hoga_quotes_shown_total", "Quotes that were shown.", view.shown);
            counter(out, "hoga_quotes_gaps_total", "Numbers that no quote shown stood for.", view.gaps);
            counter(
                out,
                "hoga_quotes_below_total",
                "Quotes that were not shown because a newer one had been.",
                view.below,
            );
        }
        let queues = sockets::queues(&self.ports);
        if !queues.is_empty() {
            head(
                out,
                "hoga_socket_receive_queue_bytes",
                "gauge",
                "Bytes received and not read (Recv-Q), by the other end's port.",
            );
            for port in &self.ports {
                let waiting: u64 = queues.iter().filter(|q| q.peer.port() == *port).map(|q| q.receive).sum();
                let _ = writeln!(out, "hoga_socket_receive_queue_bytes{{port=\"{port}\"}} {waiting}");
            }
        }
    }

    fn member_metrics(&self, out: &mut String) {
        if self.members.is_empty() {
            return;
        }
        let all: Vec<_> = self
            .members
            .iter()
            .map(|(group, member)| (group.as_str(), member.status(), member.plant(), member.heavy()))
            .collect();
        type Of = fn(&Status) -> u64;
        let of_status: [(&str, &str, &str, Of); 12] = [
            ("hoga_ticks_total", "counter", "Ticks handled.", |s| s.ticks),
            ("hoga_ticks_violations_total", "counter", "Numbers that came after a higher one.", |s| {
                s.violations
            }),
            ("hoga_ticks_duplicates_total", "counter", "Numbers that came again.", |s| s.duplicates),
            ("hoga_ticks_gaps_total", "counter", "Numbers that were left out when a higher one came.", |s| {
                s.gaps
            }),
            ("hoga_ticks_lost", "gauge", "Numbers that have not come.", |s| s.lost),
            ("hoga_ticks_steps_back_total", "counter", "Ticks of an epoch that was left behind.", |s| {
                s.steps_back
            }),
            ("hoga_ticks_bad_total", "counter", "Messages that were no ticks.", |s| s.bad),
            ("hoga_ticks_behind", "gauge", "Messages of the bus that are not handled.", |s| s.behind),
            ("hoga_ticks_behind_milliseconds", "gauge", "How old the oldest of them is.", |s| s.behind_ms),
            ("hoga_symbols_stale", "gauge", "Symbols with an open gap.", |s| s.stale),
            (
                "hoga_written_p99_microseconds",
                "gauge",
                "From reading a tick to its acknowledged write, 99th percentile since the start.",
                |s| s.written_p99_us,
            ),
            ("hoga_loops_wanted", "gauge", "Loops that the load of the last second asks for.", |s| {
                s.loops_wanted.into()
            }),
        ];
        for (name, kind, help, of) in of_status {
            head(out, name, kind, help);
            for (group, status, ..) in &all {
                let _ = writeln!(out, "{name}{{group=\"{group}\"}} {}", of(&status.status));
            }
        }
        head(out, "hoga_member_leads", "gauge", "Whether the member of this process leads its group.");
        for (group, status, ..) in &all {
            let _ =
                writeln!(out, "hoga_member_leads{{group=\"{group}\"}} {}", u8::from(status.leads.is_some()));
        }
        head(
            out,
            "hoga_member_refused_total",
            "counter",
            "Writes that were refused because a newer leader had written.",
        );
        for (group, status, ..) in &all {
            let _ = writeln!(out, "hoga_member_refused_total{{group=\"{group}\"}} {}", status.refused);
        }
        type OfLoop = fn(&hoga_feed::plant::LoopStats) -> u64;
        let of_loop: [(&str, &str, &str, OfLoop); 7] = [
            ("hoga_loop_ticks_total", "counter", "Ticks that a loop has handled.", |l| l.ticks),
            (
                "hoga_loop_load_permille",
                "gauge",
                "The part of the last second in which a loop did not wait.",
                |l| l.load.into(),
            ),
            ("hoga_loop_queue", "gauge", "Ticks that wait for a loop.", |l| l.queue),
            (
                "hoga_loop_delay_nanoseconds",
                "gauge",
                "The longest wait of a tick for a loop in the last seconds.",
                |l| l.delay_max_ns,
            ),
            ("hoga_loop_away", "gauge", "Symbols of a loop that have a loop of their own.", |l| l.away),
            ("hoga_loop_moved_total", "counter", "Symbols that were moved to a loop of their own.", |l| {
                l.moved
            }),
            ("hoga_loop_returned_total", "counter", "Symbols that came back.", |l| l.returned),
        ];
        for (name, kind, help, of) in of_loop {
            head(out, name, kind, help);
            for (group, _, plant, heavy) in &all {
                for (work, stats) in [("fold", plant), ("heavy", heavy)] {
                    for (n, one) in stats.iter().flat_map(|stats| &stats.loops).enumerate() {
                        let _ = writeln!(
                            out,
                            "{name}{{group=\"{group}\",work=\"{work}\",loop=\"{n}\"}} {}",
                            of(one)
                        );
                    }
                }
            }
        }
    }
}

fn head(out: &mut String, name: &str, kind: &str, help: &str) {
    let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} {kind}");
}

fn counter(out: &mut String, name: &str, help: &str, value: u64) {
    head(out, name, "counter", help);
    let _ = writeln!(out, "{name} {value}");
}

fn gauge(out: &mut String, name: &str, help: &str, value: u64) {
    head(out, name, "gauge", help);
    let _ = writeln!(out, "{name} {value}");
}

fn loops(stats: &PlantStats) -> Value {
    stats
        .loops
        .iter()
        .map(|one| {
            json!({
                "hot": one.hot, "ticks": one.ticks, "load": f64::from(one.load) / 1000.0, "queue": one.queue,
                "delay_us": one.delay_max_ns / 1000, "away": one.away, "moved": one.moved, "returned": one.returned,
            })
        })
        .collect()
}

fn counts(counts: &Counts, delays: &Delays) -> Value {
    json!({
        "ticks": counts.ticks, "violations": counts.violations, "duplicates": counts.duplicates, "gaps": counts.gaps,
        "lost": counts.lost(), "steps_back": counts.steps_back, "delay_p50_us": delays.at(0.5), "delay_p99_us": delays.at(0.99),
    })
}

fn quote_json(quote: &Quote) -> Value {
    let output = &quote.output;
    json!({
        "symbol": output.symbol.as_str(), "price": output.last.to_string(), "quantity": output.last_qty.to_string(),
        "time": output.time.0, "epoch": output.mark.epoch, "seq": output.mark.seq, "stale": output.stale,
    })
}
