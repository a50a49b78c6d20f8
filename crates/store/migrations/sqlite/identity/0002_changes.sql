-- Every change of a key has a number. The row here is written first in the same transaction, so that numbers commit in their order and
-- whoever has seen one asks only for those above it.
CREATE TABLE changes (number INTEGER NOT NULL);
INSERT INTO changes VALUES (0);
ALTER TABLE api_keys ADD COLUMN change INTEGER NOT NULL DEFAULT 0;
CREATE INDEX api_keys_by_change ON api_keys (change);
