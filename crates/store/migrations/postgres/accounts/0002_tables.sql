CREATE TABLE assets (asset int8 PRIMARY KEY, name text NOT NULL);
CREATE TABLE markets (market int8 PRIMARY KEY, symbol text NOT NULL, base int8 NOT NULL, quote int8 NOT NULL);
-- All messages of an account are in one partition.
CREATE TABLE accounts (account int8 PRIMARY KEY, partition int8 NOT NULL, created int8, last_entry int8 NOT NULL);
CREATE TABLE balances (
    account int8 NOT NULL, asset int8 NOT NULL, free int8 NOT NULL, locked int8 NOT NULL,
    PRIMARY KEY (account, asset)
);
-- Account 0's balance is the sum over the partitions: fees come from all of them.
CREATE TABLE exchange_balances (
    partition int8 NOT NULL, asset int8 NOT NULL, free int8 NOT NULL, locked int8 NOT NULL,
    PRIMARY KEY (partition, asset)
);
CREATE TABLE ledger (
    partition int8 NOT NULL, id int8 NOT NULL, seq int8 NOT NULL, idx int8 NOT NULL, time int8 NOT NULL,
    account int8 NOT NULL, kind int8 NOT NULL, market int8, reference int8 NOT NULL, previous int8 NOT NULL,
    asset_a int8 NOT NULL, account_a int8 NOT NULL, fees_a int8 NOT NULL, counter_a int8 NOT NULL,
    asset_b int8, account_b int8 NOT NULL, fees_b int8 NOT NULL, counter_b int8 NOT NULL,
    PRIMARY KEY (partition, id),
    CHECK (account_a + fees_a + counter_a = 0 AND account_b + fees_b + counter_b = 0)
);
CREATE VIEW postings (partition, entry, seq, book, owner, asset, amount) AS
    SELECT partition, id, seq, 'account', account, asset_a, account_a FROM ledger
    UNION ALL SELECT partition, id, seq, 'fees', 0, asset_a, fees_a FROM ledger WHERE fees_a <> 0
    UNION ALL SELECT partition, id, seq, CASE WHEN kind >= 2 THEN 'clearing' ELSE 'external' END, market, asset_a, counter_a FROM ledger
    UNION ALL SELECT partition, id, seq, 'account', account, asset_b, account_b FROM ledger WHERE asset_b IS NOT NULL
    UNION ALL SELECT partition, id, seq, 'fees', 0, asset_b, fees_b FROM ledger WHERE asset_b IS NOT NULL AND fees_b <> 0
    UNION ALL SELECT partition, id, seq, 'clearing', market, asset_b, counter_b FROM ledger WHERE asset_b IS NOT NULL;
