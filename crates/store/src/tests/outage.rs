//! PostgreSQL that goes away and comes back.

use hoga_core::ids::AccountId;

use crate::tests::support::{WAIT, World, caught_up, client, dump};
use crate::{Database, Group};

#[test]
fn connections_that_are_cut_again_and_again_lose_and_double_nothing() {
    let (Some(db), Some(straight)) = (super::db(), super::db()) else { return };
    let Database::Postgres(config) = &db.database else { return };
    let mut world = World::new(41, 2);
    let stores = crate::tests::support::stores(&db, world.log());
    stores.start().unwrap();
    let mut killer = client(config, Group::Accounts);
    let mut cuts = 0;
    for _ in 0..30 {
        world.run(60);
        // Only those of this test: their search path names its schemas.
        let sql = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
                   WHERE application_name LIKE 'hoga %' AND application_name LIKE $1";
        let row = killer.query_one(sql, &[&format!("%{}%", config.schema_prefix)]).unwrap();
        cuts += row.get::<_, i64>(0);
        let _ = stores.accounts().balances(AccountId(1));
    }
    assert!(cuts > 0, "some connection has to be cut");
    for group in Group::ALL {
        assert!(stores.wait_current(group, WAIT), "{:?}", stores.position(group));
        let position = stores.position(group);
        assert!(position.running && position.fault.is_none(), "{position:?}");
    }
    let report = stores.audit(&crate::EngineView::capture(&world.exchange), WAIT).unwrap();
    assert!(report.is_clean(), "{report}");
    stores.shutdown();
    caught_up(&straight, world.log()).shutdown();
    for group in Group::ALL {
        assert_eq!(dump(&db, group), dump(&straight, group), "{group:?}");
    }
}
