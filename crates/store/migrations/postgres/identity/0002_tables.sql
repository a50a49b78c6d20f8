CREATE TABLE users (
    name text COLLATE "C" PRIMARY KEY, password text NOT NULL, account int8 NOT NULL UNIQUE, created int8 NOT NULL
);
-- Every change of a key has a number. The row here is written first in the same transaction, so that numbers commit in their order and
-- whoever has seen one asks only for those above it.
CREATE TABLE changes (number int8 NOT NULL);
INSERT INTO changes VALUES (0);
CREATE TABLE api_keys (
    key text COLLATE "C" PRIMARY KEY, kind int8 NOT NULL, secret bytea NOT NULL, account int8 NOT NULL, label text NOT NULL,
    created int8 NOT NULL, revoked int8, change int8 NOT NULL
);
CREATE INDEX api_keys_by_account ON api_keys (account);
CREATE INDEX api_keys_by_change ON api_keys (change);
CREATE TABLE secrets (name text COLLATE "C" PRIMARY KEY, value bytea NOT NULL);
