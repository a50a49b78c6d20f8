//! The engine as a whole, on a simulated disk: the law "durable before acknowledged", order, queues, restart, faults and crashes.

mod crash;
mod faults;
mod law;
mod queues;
mod replica;
mod restart;
mod snapshots;
mod support;
