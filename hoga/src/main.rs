//! The Hoga binary.
fn main() {}
