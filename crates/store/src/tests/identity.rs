//! Users, keys and secrets.

use hoga_core::ids::{AccountId, Timestamp};

use crate::tests::support::{key, user};
use crate::{ApiKey, Database, Identity, IdentityOptions, StoreError, Taken, User};

#[test]
fn identities_are_unique_and_durable() {
    let Some(db) = super::db() else { return };
    let identity = Identity::open_on(&db.database).unwrap();
    identity.add_user(&user("ann", 1)).unwrap();
    identity.add_key(&key("k1", 1)).unwrap();
    identity.add_key(&key("k2", 1)).unwrap();
    for (result, taken) in [
        (identity.add_user(&user("ann", 2)), Taken::UserName("ann".to_owned())),
        (identity.add_user(&user("bob", 1)), Taken::Account(AccountId(1))),
        (identity.add_key(&key("k1", 9)), Taken::ApiKey("k1".to_owned())),
    ] {
        assert!(matches!(result, Err(StoreError::Taken(ref found)) if *found == taken), "{result:?}");
    }
    assert_eq!(*identity.key("k1").unwrap(), key("k1", 1));
    assert!(!format!("{:?}", identity.key("k1")).contains("secret"));
    assert!(!identity.revoke_key(AccountId(2), "k1", Timestamp(8)).unwrap(), "not the owner's");
    assert!(identity.revoke_key(AccountId(1), "k1", Timestamp(8)).unwrap());
    assert!(!identity.revoke_key(AccountId(1), "k1", Timestamp(9)).unwrap());
    assert_eq!((identity.key("k1"), identity.find_key("k1").unwrap()), (None, None));
    identity.refresh().unwrap();
    assert_eq!(identity.key("k1"), None, "a refresh does not bring a revoked key back");
    assert!(identity.set_password("ann", "new").unwrap() && !identity.set_password("nobody", "new").unwrap());
    let token = identity.secret("admin", || b"token".to_vec()).unwrap();
    assert_eq!(
        (token, identity.secret("admin", || b"other".to_vec()).unwrap()),
        (b"token".to_vec(), b"token".to_vec())
    );
    drop(identity);
    let identity = Identity::open_on(&db.database).unwrap();
    assert_eq!(identity.user("ann").unwrap(), Some(User { password: "new".to_owned(), ..user("ann", 1) }));
    assert_eq!(identity.user_of(AccountId(1)).unwrap().map(|user| user.name), Some("ann".to_owned()));
    assert_eq!((identity.user("bob").unwrap(), identity.key("k1")), (None, None));
    assert_eq!(*identity.key("k2").unwrap(), key("k2", 1));
    let revoked = ApiKey { revoked: Some(Timestamp(8)), ..key("k1", 1) };
    assert_eq!(identity.keys_of(AccountId(1)).unwrap(), [revoked, key("k2", 1)]);
    assert_eq!(identity.secret("admin", Vec::new).unwrap(), b"token");
    identity.set_secret("admin", b"next").unwrap();
    assert_eq!(identity.secret("admin", Vec::new).unwrap(), b"next");
    if let Database::Sqlite { dir } = &db.database {
        use std::os::unix::fs::PermissionsExt;
        let mode = std::fs::metadata(dir.join("identity.db")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }
}

#[test]
fn keys_that_do_not_fit_into_memory_are_looked_up() {
    let Some(db) = super::db() else { return };
    let options = IdentityOptions { keys: 3, ..IdentityOptions::default() };
    let identity = Identity::open_with(&db.database, &options).unwrap();
    let names: Vec<String> = (0..7).map(|number| format!("k{number}")).collect();
    names.iter().for_each(|name| identity.add_key(&key(name, 1)).unwrap());
    let in_memory = |identity: &Identity| names.iter().filter(|name| identity.key(name).is_some()).count();
    assert_eq!(in_memory(&identity), 3);
    let identity = Identity::open_with(&db.database, &options).unwrap();
    assert_eq!(in_memory(&identity), 3);
    for name in names.iter().cycle().take(20) {
        assert_eq!(*identity.find_key(name).unwrap().unwrap(), key(name, 1));
        assert_eq!(in_memory(&identity), 3);
        assert!(identity.settles(name));
    }
    assert_eq!(identity.find_key("k9").unwrap(), None);
    assert!(identity.revoke_key(AccountId(1), "k0", Timestamp(9)).unwrap());
    assert_eq!(identity.find_key("k0").unwrap(), None);
}

#[test]
fn many_threads_make_and_revoke_keys_and_memory_says_what_is_stored() {
    let Some(db) = super::db() else { return };
    let identity = Identity::open_on(&db.database).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..4_u32 {
            let identity = &identity;
            scope.spawn(move || {
                for number in 0..25 {
                    let name = format!("t{thread}n{number}");
                    identity.add_key(&key(&name, thread)).unwrap();
                    // Another thread may look for it at any time.
                    let _ = identity.find_key(&format!("t{}n{number}", (thread + 1) % 4)).unwrap();
                    if number % 2 == 0 {
                        assert!(identity.revoke_key(AccountId(thread), &name, Timestamp(9)).unwrap());
                        assert_eq!(identity.key(&name), None);
                    }
                }
            });
        }
    });
    for thread in 0..4 {
        let stored = identity.keys_of(AccountId(thread)).unwrap();
        assert_eq!(stored.len(), 25);
        for stored in stored {
            assert_eq!(identity.key(&stored.key).is_some(), stored.revoked.is_none(), "{stored:?}");
        }
    }
}

#[test]
fn a_file_of_the_first_release_is_taken_over() {
    let Some(db) = super::db() else { return };
    let Database::Sqlite { dir } = &db.database else { return };
    let path = dir.join("identity.db");
    let old = rusqlite::Connection::open(&path).unwrap();
    old.execute_batch(include_str!("../../migrations/sqlite/identity/0001_tables.sql")).unwrap();
    old.execute_batch(
        "INSERT INTO users VALUES ('ann', 'hash', 7, 5);
         INSERT INTO api_keys VALUES ('k1', 0, x'0102', 7, 'bot', 6, NULL), ('k2', 1, x'03', 7, '', 6, 8);
         PRAGMA user_version = 1;",
    )
    .unwrap();
    drop(old);
    let identity = Identity::open(&path).unwrap();
    assert_eq!(identity.user("ann").unwrap().unwrap().account, AccountId(7));
    assert_eq!(identity.key("k1").unwrap().secret, [1, 2]);
    assert_eq!(identity.key("k2"), None);
    assert!(identity.revoke_key(AccountId(7), "k1", Timestamp(9)).unwrap());
    identity.add_key(&key("k3", 7)).unwrap();
    assert_eq!(identity.keys_of(AccountId(7)).unwrap().len(), 3);
    assert!(matches!(Identity::open(&dir.join("identity")), Err(StoreError::File { .. })));
}
