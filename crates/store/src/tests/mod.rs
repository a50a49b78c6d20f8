//! One suite on both databases: each file is a module of `sqlite` and of `postgres`. PostgreSQL is a real server, named by the variable
//! `HOGA_TEST_POSTGRES` (an address as in the configuration); each test has schemas of its own there, dropped when it ends.

#[cfg(feature = "postgres")]
mod proxy;
mod support;

#[path = "."]
mod sqlite {
    use super::support::Db;

    pub(super) fn db() -> Option<Db> {
        Some(Db::sqlite())
    }

    #[path = "crash.rs"]
    mod crash;
    #[path = "faults.rs"]
    mod faults;
    #[path = "identity.rs"]
    mod identity;
    #[path = "killed.rs"]
    mod killed;
    #[path = "reads.rs"]
    mod reads;
    #[path = "rebuilds.rs"]
    mod rebuilds;
    #[path = "runs.rs"]
    mod runs;
    #[path = "told.rs"]
    mod told;
}

#[cfg(feature = "postgres")]
#[path = "."]
mod postgres {
    use super::support::Db;

    pub(super) fn db() -> Option<Db> {
        Db::postgres()
    }

    #[path = "crash.rs"]
    mod crash;
    #[path = "faults.rs"]
    mod faults;
    #[path = "identity.rs"]
    mod identity;
    #[path = "nodes.rs"]
    mod nodes;
    #[path = "outage.rs"]
    mod outage;
    #[path = "reads.rs"]
    mod reads;
    #[path = "rebuilds.rs"]
    mod rebuilds;
    #[path = "runs.rs"]
    mod runs;
    #[path = "told.rs"]
    mod told;
}
