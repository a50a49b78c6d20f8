//! Users and keys of several nodes in one database, which may go away.

use std::time::{Duration, Instant};

use hoga_core::ids::{AccountId, Timestamp};

use crate::tests::proxy::Proxy;
use crate::tests::support::{WAIT, key, user};
use crate::{Database, Identity, IdentityOptions, StoreError};

fn until(what: &str, mut reached: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !reached() {
        assert!(begun.elapsed() < WAIT, "waited {WAIT:?} until {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn options(refresh: Duration) -> IdentityOptions {
    IdentityOptions { refresh, ..IdentityOptions::default() }
}

#[test]
fn what_one_node_changes_the_others_see() {
    let Some(db) = super::db() else { return };
    let never = options(Duration::from_secs(3600));
    let one = Identity::open_with(&db.database, &never).unwrap();
    let other = Identity::open_with(&db.database, &never).unwrap();
    one.add_user(&user("ann", 1)).unwrap();
    let taken = other.add_user(&user("ann", 2));
    assert!(matches!(taken, Err(StoreError::Taken(_))), "{taken:?}");
    assert_eq!(other.user("ann").unwrap(), Some(user("ann", 1)));
    let secrets =
        [(&one, b"a"), (&other, b"b")].map(|(node, own)| node.secret("s", || own.to_vec()).unwrap());
    assert_eq!(secrets[0], secrets[1]);
    // A key of another node is found when it is asked for, without waiting.
    one.add_key(&key("k1", 1)).unwrap();
    assert_eq!((other.key("k1"), other.settles("k1")), (None, false));
    assert_eq!(*other.find_key("k1").unwrap().unwrap(), key("k1", 1));
    assert!(other.settles("k1"));
    // A revoked one is good until this node has asked.
    assert!(one.revoke_key(AccountId(1), "k1", Timestamp(8)).unwrap());
    assert!(other.key("k1").is_some());
    other.refresh().unwrap();
    assert_eq!(other.find_key("k1").unwrap(), None);
    // More changes than are read at a time.
    let names: Vec<String> = (0..1203).map(|number| format!("many{number}")).collect();
    names.iter().for_each(|name| one.add_key(&key(name, 2)).unwrap());
    other.refresh().unwrap();
    assert!(names.iter().all(|name| other.key(name).is_some()));
    // By itself.
    let eager = Identity::open_with(&db.database, &options(Duration::from_millis(10))).unwrap();
    one.add_key(&key("k2", 1)).unwrap();
    until("the new key comes", || eager.key("k2").is_some());
    assert!(one.revoke_key(AccountId(1), "k2", Timestamp(9)).unwrap());
    until("the revoked key goes", || eager.key("k2").is_none());
}

#[test]
fn known_keys_outlive_the_database() {
    let Some(db) = super::db() else { return };
    let Database::Postgres(direct) = &db.database else { return };
    let (proxy, url) = Proxy::before(&direct.url);
    let through = Database::Postgres(crate::PostgresConfig { url, ..direct.clone() });
    let elsewhere = Identity::open_on(&db.database).unwrap();
    elsewhere.add_key(&key("old", 1)).unwrap();
    let here = Identity::open_with(&through, &options(Duration::from_millis(10))).unwrap();
    here.add_user(&user("ann", 1)).unwrap();
    proxy.cut();
    elsewhere.add_key(&key("new", 1)).unwrap();
    assert!(elsewhere.revoke_key(AccountId(1), "old", Timestamp(9)).unwrap());
    let begun = Instant::now();
    for _ in 0..200 {
        assert!(here.key("old").is_some() && here.find_key("old").unwrap().is_some());
        for result in [
            here.find_key("new").map(|_| ()),
            here.add_user(&user("bob", 2)),
            here.user("ann").map(|_| ()),
            here.add_key(&key("k", 1)),
            here.keys_of(AccountId(1)).map(|_| ()),
            here.revoke_key(AccountId(1), "old", Timestamp(9)).map(|_| ()),
            here.secret("s", Vec::new).map(|_| ()),
        ] {
            let error = result.unwrap_err();
            assert!(error.is_transient() && matches!(error, StoreError::Unavailable { .. }), "{error}");
        }
    }
    assert!(begun.elapsed() < Duration::from_secs(20), "nobody waits long while it is away");
    proxy.restore();
    until("the revocation made meanwhile is known", || here.key("old").is_none());
    until("the new key is known", || here.key("new").is_some());
    assert_eq!(here.user("ann").unwrap(), Some(user("ann", 1)));
    here.add_user(&user("bob", 2)).unwrap();
    // Connections that died while idle are replaced without a word.
    proxy.cut();
    proxy.restore();
    until("the database answers again", || here.user("bob").is_ok());
    assert!(here.user("bob").unwrap().is_some());
}
