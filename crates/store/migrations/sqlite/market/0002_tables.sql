-- All trades of a market are in one partition.
CREATE TABLE markets (market INTEGER PRIMARY KEY, partition INTEGER NOT NULL);
CREATE TABLE trades (
    market INTEGER NOT NULL, id INTEGER NOT NULL, time INTEGER NOT NULL, price INTEGER NOT NULL, qty INTEGER NOT NULL,
    quote INTEGER NOT NULL, taker_buys INTEGER NOT NULL, buy_order INTEGER NOT NULL, sell_order INTEGER NOT NULL,
    aggregate INTEGER NOT NULL,
    PRIMARY KEY (market, id)
) WITHOUT ROWID;
CREATE TABLE candles (
    market INTEGER NOT NULL, seconds INTEGER NOT NULL, open_time INTEGER NOT NULL,
    open INTEGER NOT NULL, high INTEGER NOT NULL, low INTEGER NOT NULL, close INTEGER NOT NULL,
    volume INTEGER NOT NULL, quote_volume INTEGER NOT NULL, trades INTEGER NOT NULL,
    taker_base INTEGER NOT NULL, taker_quote INTEGER NOT NULL, first_trade INTEGER NOT NULL, last_trade INTEGER NOT NULL,
    first_time INTEGER NOT NULL, last_time INTEGER NOT NULL, revision INTEGER NOT NULL,
    PRIMARY KEY (market, seconds, open_time)
) WITHOUT ROWID;
