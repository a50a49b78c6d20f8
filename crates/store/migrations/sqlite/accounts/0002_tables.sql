CREATE TABLE assets (asset INTEGER PRIMARY KEY, name TEXT NOT NULL);
CREATE TABLE markets (market INTEGER PRIMARY KEY, symbol TEXT NOT NULL, base INTEGER NOT NULL, quote INTEGER NOT NULL);
-- All messages of an account are in one partition.
CREATE TABLE accounts (account INTEGER PRIMARY KEY, partition INTEGER NOT NULL, created INTEGER, last_entry INTEGER NOT NULL);
CREATE TABLE balances (
    account INTEGER NOT NULL, asset INTEGER NOT NULL, free INTEGER NOT NULL, locked INTEGER NOT NULL,
    PRIMARY KEY (account, asset)
) WITHOUT ROWID;
-- Account 0's balance is the sum over the partitions: fees come from all of them.
CREATE TABLE exchange_balances (
    partition INTEGER NOT NULL, asset INTEGER NOT NULL, free INTEGER NOT NULL, locked INTEGER NOT NULL,
    PRIMARY KEY (partition, asset)
) WITHOUT ROWID;
CREATE TABLE ledger (
    partition INTEGER NOT NULL, id INTEGER NOT NULL, seq INTEGER NOT NULL, idx INTEGER NOT NULL, time INTEGER NOT NULL,
    account INTEGER NOT NULL, kind INTEGER NOT NULL, market INTEGER, reference INTEGER NOT NULL, previous INTEGER NOT NULL,
    asset_a INTEGER NOT NULL, account_a INTEGER NOT NULL, fees_a INTEGER NOT NULL, counter_a INTEGER NOT NULL,
    asset_b INTEGER, account_b INTEGER NOT NULL, fees_b INTEGER NOT NULL, counter_b INTEGER NOT NULL,
    PRIMARY KEY (partition, id),
    CHECK (account_a + fees_a + counter_a = 0 AND account_b + fees_b + counter_b = 0)
) WITHOUT ROWID;
CREATE VIEW postings (partition, entry, seq, book, owner, asset, amount) AS
    SELECT partition, id, seq, 'account', account, asset_a, account_a FROM ledger
    UNION ALL SELECT partition, id, seq, 'fees', 0, asset_a, fees_a FROM ledger WHERE fees_a <> 0
    UNION ALL SELECT partition, id, seq, CASE WHEN kind >= 2 THEN 'clearing' ELSE 'external' END, market, asset_a, counter_a FROM ledger
    UNION ALL SELECT partition, id, seq, 'account', account, asset_b, account_b FROM ledger WHERE asset_b IS NOT NULL
    UNION ALL SELECT partition, id, seq, 'fees', 0, asset_b, fees_b FROM ledger WHERE asset_b IS NOT NULL AND fees_b <> 0
    UNION ALL SELECT partition, id, seq, 'clearing', market, asset_b, counter_b FROM ledger WHERE asset_b IS NOT NULL;
