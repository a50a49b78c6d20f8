-- `number`: of the message in its partition that the row is from; an older one changes nothing.
CREATE TABLE orders (
    id INTEGER PRIMARY KEY, account INTEGER NOT NULL, market INTEGER NOT NULL,
    side INTEGER NOT NULL, type INTEGER NOT NULL, tif INTEGER NOT NULL,
    price INTEGER NOT NULL, stop_price INTEGER NOT NULL, qty INTEGER NOT NULL, quote_qty INTEGER NOT NULL,
    iceberg_qty INTEGER NOT NULL, trailing_delta INTEGER NOT NULL, stp INTEGER NOT NULL, client_id TEXT NOT NULL,
    status INTEGER NOT NULL, working INTEGER NOT NULL, filled INTEGER NOT NULL, filled_quote INTEGER NOT NULL,
    prevented INTEGER NOT NULL, list_id INTEGER NOT NULL,
    created INTEGER NOT NULL, updated INTEGER NOT NULL, working_since INTEGER NOT NULL,
    client_key INTEGER NOT NULL, number INTEGER NOT NULL
);
CREATE INDEX orders_by_owner ON orders (id >> 14, account, market);
CREATE INDEX orders_by_client ON orders (id >> 14, client_key);
-- The fee of a buyer is in the market's base asset, of a seller in its quote asset.
CREATE TABLE fills (
    market INTEGER NOT NULL, part INTEGER NOT NULL, account INTEGER NOT NULL, trade INTEGER NOT NULL, order_id INTEGER NOT NULL,
    time INTEGER NOT NULL, buyer INTEGER NOT NULL, maker INTEGER NOT NULL, price INTEGER NOT NULL, qty INTEGER NOT NULL,
    quote INTEGER NOT NULL, fee INTEGER NOT NULL,
    PRIMARY KEY (market, part, account, trade, order_id)
) WITHOUT ROWID;
