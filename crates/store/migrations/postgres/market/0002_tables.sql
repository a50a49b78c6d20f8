-- All trades of a market are in one partition.
CREATE TABLE markets (market int8 PRIMARY KEY, partition int8 NOT NULL);
CREATE TABLE trades (
    market int8 NOT NULL, id int8 NOT NULL, time int8 NOT NULL, price int8 NOT NULL, qty int8 NOT NULL,
    quote int8 NOT NULL, taker_buys int8 NOT NULL, buy_order int8 NOT NULL, sell_order int8 NOT NULL,
    aggregate int8 NOT NULL,
    PRIMARY KEY (market, id)
);
CREATE TABLE candles (
    market int8 NOT NULL, seconds int8 NOT NULL, open_time int8 NOT NULL,
    open int8 NOT NULL, high int8 NOT NULL, low int8 NOT NULL, close int8 NOT NULL,
    volume int8 NOT NULL, quote_volume int8 NOT NULL, trades int8 NOT NULL,
    taker_base int8 NOT NULL, taker_quote int8 NOT NULL, first_trade int8 NOT NULL, last_trade int8 NOT NULL,
    first_time int8 NOT NULL, last_time int8 NOT NULL, revision int8 NOT NULL,
    PRIMARY KEY (market, seconds, open_time)
);
