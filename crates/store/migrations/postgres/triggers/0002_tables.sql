-- Alerts are source data: users make them here, and they are nowhere else. `part`: the partition of their market's trades.
CREATE TABLE alerts (
    id int8 PRIMARY KEY, version int8 NOT NULL, part int8 NOT NULL,
    account int8 NOT NULL, client_id text NOT NULL, market int8 NOT NULL, condition int8 NOT NULL, level int8 NOT NULL,
    order_bytes bytea, state int8 NOT NULL, created int8 NOT NULL, changed int8 NOT NULL,
    fired_price int8, fired_trade int8, fired_time int8, fired_place int8,
    told int8 NOT NULL, order_client_id text NOT NULL, order_id int8, refusal text NOT NULL
);
CREATE INDEX alerts_version ON alerts (version);
CREATE INDEX alerts_account ON alerts (account, id);
CREATE UNIQUE INDEX alerts_client ON alerts (account, client_id) WHERE client_id <> '';
CREATE INDEX alerts_armed ON alerts (part, id) WHERE state = 0;
CREATE INDEX alerts_untold ON alerts (part, fired_place, id) WHERE state BETWEEN 1 AND 4 AND told = 0;
CREATE INDEX alerts_unsent ON alerts (part, id) WHERE state IN (1, 2) AND order_bytes IS NOT NULL;
-- The last number of an alert, and the last version of all. Whoever changes an alert's state takes the next one first, so that versions
-- are committed in their order.
CREATE TABLE counters (only_row int8 PRIMARY KEY CHECK (only_row = 1), version int8 NOT NULL, id int8 NOT NULL);
INSERT INTO counters VALUES (1, 0, 0);
