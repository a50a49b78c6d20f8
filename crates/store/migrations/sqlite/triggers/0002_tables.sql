-- Alerts are source data: users make them here, and they are nowhere else. `part`: the partition of their market's trades.
CREATE TABLE alerts (
    id INTEGER PRIMARY KEY, version INTEGER NOT NULL, part INTEGER NOT NULL,
    account INTEGER NOT NULL, client_id TEXT NOT NULL, market INTEGER NOT NULL, condition INTEGER NOT NULL, level INTEGER NOT NULL,
    order_bytes BLOB, state INTEGER NOT NULL, created INTEGER NOT NULL, changed INTEGER NOT NULL,
    fired_price INTEGER, fired_trade INTEGER, fired_time INTEGER, fired_place INTEGER,
    told INTEGER NOT NULL, order_client_id TEXT NOT NULL, order_id INTEGER, refusal TEXT NOT NULL
);
CREATE INDEX alerts_version ON alerts (version);
CREATE INDEX alerts_account ON alerts (account, id);
CREATE UNIQUE INDEX alerts_client ON alerts (account, client_id) WHERE client_id <> '';
CREATE INDEX alerts_armed ON alerts (part, id) WHERE state = 0;
CREATE INDEX alerts_untold ON alerts (part, fired_place, id) WHERE state BETWEEN 1 AND 4 AND told = 0;
CREATE INDEX alerts_unsent ON alerts (part, id) WHERE state IN (1, 2) AND order_bytes IS NOT NULL;
-- The last number of an alert, and the last version of all. Whoever changes an alert's state takes the next one first, so that versions
-- are committed in their order.
CREATE TABLE counters (only_row INTEGER PRIMARY KEY CHECK (only_row = 1), version INTEGER NOT NULL, id INTEGER NOT NULL);
INSERT INTO counters VALUES (1, 0, 0);
