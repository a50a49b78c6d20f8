//! The rules of the fence, one by one and under random interleavings of several nodes.

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

fn claim(epoch: u64, instance: u64, read_to: u64, next: u64) -> Envelope<'static> {
    Envelope { epoch, instance, body: Content::Claim { read_to, next: Seq(next), node: "n" } }
}

fn batch(epoch: u64, instance: u64, first: u64, count: u32) -> Envelope<'static> {
    Envelope { epoch, instance, body: Content::Batch { first: Seq(first), count, sent: 0, records: b"" } }
}

fn beat(epoch: u64, instance: u64) -> Envelope<'static> {
    Envelope { epoch, instance, body: Content::Heartbeat { next: Seq(0) } }
}

fn resign(epoch: u64, instance: u64) -> Envelope<'static> {
    Envelope { epoch, instance, body: Content::Resign { next: Seq(0) } }
}

#[test]
fn each_rule() {
    use Refusal::{Gap, Repeat, Stale, Void};
    use Verdict::{Alive, Commands, Leads, Refused, Vacant};
    let script = [
        (batch(0, 0, 1, 1), Refused(Stale)),  // 0: nobody leads
        (beat(1, 7), Refused(Stale)),         // 1
        (claim(2, 7, 0, 1), Refused(Void)),   // 2: not the next epoch
        (claim(1, 7, 0, 1), Leads),           // 3
        (claim(1, 8, 0, 1), Refused(Void)),   // 4: came second
        (batch(1, 7, 1, 2), Commands),        // 5
        (batch(1, 7, 1, 2), Refused(Repeat)), // 6
        (batch(1, 7, 4, 1), Refused(Gap)),    // 7
        (batch(1, 7, 2, 2), Refused(Gap)),    // 8: half of it is there
        (batch(1, 8, 3, 1), Refused(Stale)),  // 9: not the one that leads
        (claim(2, 8, 5, 3), Refused(Void)),   // 10: the batch at 5 stands before it, unread
        (beat(1, 7), Alive),                  // 11
        (claim(2, 8, 11, 3), Refused(Void)),  // 12: the heartbeat at 11, unread
        (claim(2, 8, 12, 4), Refused(Void)),  // 13: counts otherwise than the topic
        (claim(2, 8, 12, 3), Leads),          // 14
        (batch(1, 7, 3, 1), Refused(Stale)),  // 15: late
        (beat(1, 7), Refused(Stale)),         // 16
        (batch(2, 8, 3, 1), Commands),        // 17
        (resign(1, 7), Refused(Stale)),       // 18
        (resign(2, 8), Vacant),               // 19
        (batch(2, 8, 4, 1), Refused(Stale)),  // 20: it has left
        (claim(3, 7, 19, 4), Refused(Void)),  // 21: the resignation is unread
        (claim(3, 7, 20, 4), Leads),          // 22
    ];
    let mut fence = Fence::new();
    for (offset, (message, expected)) in script.iter().enumerate() {
        assert_eq!(fence.pass(offset as u64, message), *expected, "at {offset}: {message:?}");
    }
    let end = Fence { epoch: 3, leader: 7, vacant: false, heard: 23, next: Seq(4) };
    assert_eq!(fence, end);
}

#[test]
fn the_first_leader_may_bring_a_journal() {
    let mut fence = Fence::new();
    assert_eq!(fence.pass(0, &claim(1, 7, 0, 42)), Verdict::Leads);
    assert_eq!(fence.pass(1, &batch(1, 7, 42, 1)), Verdict::Commands);
}

/// What a node of the model may do.
#[derive(Clone, Copy, Debug)]
enum Step {
    Read(usize, usize),
    Claim(usize),
    Write(usize, u32),
    Beat(usize),
    Resign(usize),
    /// Loses all that it has not written; a new run begins, from what it had read before or from nothing.
    Restart(usize, bool),
    /// What it sends stays under way until it is let go.
    Hold(usize),
    Release(usize),
}

/// One entry of the model's topic: a message, and for batches what stands for the commands in it.
type Entry = (Envelope<'static>, Vec<u64>);

struct Node {
    instance: u64,
    fence: Fence,
    offset: usize,
    /// The commands that count, as this node has read them.
    commands: Vec<u64>,
    leads: bool,
    /// Numbers given, read back or not.
    given: u64,
    held: bool,
    under_way: Vec<Entry>,
}

#[derive(Default)]
struct World {
    topic: Vec<Entry>,
    acknowledged: Vec<(usize, u64)>,
    runs: u64,
    made: u64,
    /// By epoch, who ever acted as its leader.
    leaders: std::collections::BTreeMap<u64, u64>,
}

impl World {
    fn node(&mut self) -> Node {
        self.runs += 1;
        Node {
            instance: self.runs,
            fence: Fence::new(),
            offset: 0,
            commands: Vec::new(),
            leads: false,
            given: 0,
            held: false,
            under_way: Vec::new(),
        }
    }

    fn send(&mut self, node: &mut Node, message: Envelope<'static>, commands: Vec<u64>) {
        if node.held {
            node.under_way.push((message, commands));
        } else {
            self.topic.push((message, commands));
        }
    }

    fn read(&mut self, node: &mut Node, count: usize) {
        for _ in 0..count {
            let Some((message, commands)) = self.topic.get(node.offset) else { return };
            let verdict = node.fence.pass(node.offset as u64, message);
            node.offset += 1;
            let own = message.instance == node.instance;
            match verdict {
                Verdict::Commands => {
                    for command in commands {
                        if own && node.leads {
                            self.acknowledged.push((node.commands.len(), *command));
                        }
                        node.commands.push(*command);
                    }
                }
                Verdict::Leads => {
                    node.leads = own;
                    node.given = node.fence.next.0;
                    let before = self.leaders.insert(message.epoch, message.instance);
                    assert!(
                        before.is_none_or(|before| before == message.instance),
                        "two leaders of one epoch"
                    );
                }
                Verdict::Vacant => node.leads = false,
                Verdict::Alive | Verdict::Refused(_) => {}
            }
        }
    }
}

fn step() -> impl Strategy<Value = Step> {
    let node = 0..3usize;
    prop_oneof![
        6 => (node.clone(), 1..8usize).prop_map(|(node, count)| Step::Read(node, count)),
        2 => node.clone().prop_map(Step::Claim),
        6 => (node.clone(), 1..4u32).prop_map(|(node, count)| Step::Write(node, count)),
        2 => node.clone().prop_map(Step::Beat),
        1 => node.clone().prop_map(Step::Resign),
        1 => (node.clone(), any::<bool>()).prop_map(|(node, keeps)| Step::Restart(node, keeps)),
        1 => node.clone().prop_map(Step::Hold),
        1 => node.prop_map(Step::Release),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    /// Nodes claim whenever they like, write while they believe to lead, are held up, and come back: all agree on the same commands, and
    /// none that was acknowledged is lost or elsewhere.
    #[test]
    fn nodes_agree_and_nothing_acknowledged_is_lost(steps in vec(step(), 1..200)) {
        let mut world = World::default();
        let mut nodes: Vec<Node> = (0..3).map(|_| world.node()).collect();
        for step in steps {
            match step {
                Step::Read(node, count) => world.read(&mut nodes[node], count),
                Step::Claim(node) => {
                    let node = &mut nodes[node];
                    if !node.leads {
                        let (epoch, read_to) = (node.fence.epoch + 1, node.offset as u64);
                        let message = claim(epoch, node.instance, read_to, node.fence.next.0);
                        world.send(node, message, Vec::new());
                    }
                }
                Step::Write(node, count) => {
                    let node = &mut nodes[node];
                    if node.leads {
                        let message = batch(node.fence.epoch, node.instance, node.given, count);
                        node.given += u64::from(count);
                        let commands = (0..count).map(|_| { world.made += 1; world.made }).collect();
                        world.send(node, message, commands);
                    }
                }
                Step::Beat(node) | Step::Resign(node) if nodes[node].leads => {
                    let node = &mut nodes[node];
                    let (epoch, instance) = (node.fence.epoch, node.instance);
                    let message =
                        if matches!(step, Step::Beat(_)) { beat(epoch, instance) } else { resign(epoch, instance) };
                    world.send(node, message, Vec::new());
                }
                Step::Beat(_) | Step::Resign(_) => {}
                Step::Restart(node, keeps) => {
                    let fresh = world.node();
                    let old = std::mem::replace(&mut nodes[node], fresh);
                    if keeps {
                        let node = &mut nodes[node];
                        (node.fence, node.offset, node.commands) = (old.fence, old.offset, old.commands);
                    }
                    // What was under way may still arrive.
                    world.topic.extend(old.under_way);
                }
                Step::Hold(node) => nodes[node].held = true,
                Step::Release(node) => {
                    nodes[node].held = false;
                    world.topic.append(&mut nodes[node].under_way);
                }
            }
        }
        for node in &mut nodes {
            world.read(node, usize::MAX);
        }
        for node in &nodes[1..] {
            prop_assert_eq!(&node.commands, &nodes[0].commands);
            prop_assert_eq!(node.fence, nodes[0].fence);
        }
        for (place, command) in &world.acknowledged {
            prop_assert_eq!(nodes[0].commands.get(*place), Some(command), "acknowledged and lost");
        }
        prop_assert_eq!(nodes[0].fence.next.0, nodes[0].commands.len() as u64 + 1);
    }
}
