-- `number`: of the message in its partition that the row is from; an older one changes nothing. Rows of open orders change in place: the
-- free tenth of a page keeps such a change in its page, without touching the indexes.
CREATE TABLE orders (
    id int8 PRIMARY KEY, account int8 NOT NULL, market int8 NOT NULL,
    side int8 NOT NULL, type int8 NOT NULL, tif int8 NOT NULL,
    price int8 NOT NULL, stop_price int8 NOT NULL, qty int8 NOT NULL, quote_qty int8 NOT NULL,
    iceberg_qty int8 NOT NULL, trailing_delta int8 NOT NULL, stp int8 NOT NULL, client_id text NOT NULL,
    status int8 NOT NULL, working int8 NOT NULL, filled int8 NOT NULL, filled_quote int8 NOT NULL,
    prevented int8 NOT NULL, list_id int8 NOT NULL,
    created int8 NOT NULL, updated int8 NOT NULL, working_since int8 NOT NULL,
    client_key int8 NOT NULL, number int8 NOT NULL
) WITH (fillfactor = 90);
CREATE INDEX orders_by_owner ON orders ((id >> 14), account, market);
CREATE INDEX orders_by_client ON orders ((id >> 14), client_key);
-- The fee of a buyer is in the market's base asset, of a seller in its quote asset.
CREATE TABLE fills (
    market int8 NOT NULL, part int8 NOT NULL, account int8 NOT NULL, trade int8 NOT NULL, order_id int8 NOT NULL,
    time int8 NOT NULL, buyer int8 NOT NULL, maker int8 NOT NULL, price int8 NOT NULL, qty int8 NOT NULL,
    quote int8 NOT NULL, fee int8 NOT NULL,
    PRIMARY KEY (market, part, account, trade, order_id)
);
