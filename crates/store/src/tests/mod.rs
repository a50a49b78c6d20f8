//! Tests of the read models against real files and logs. `support` has the exchange run that feeds them and the naive model that they
//! are compared with.

mod crash;
mod faults;
mod reads;
mod runs;
mod support;
