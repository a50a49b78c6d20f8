"""python-binance against Hoga: REST, sockets, the WebSocket API, user data, and its depth cache for DEPTH_SECONDS without a resync.

HOGA_URL, HOGA_KEY, HOGA_SECRET, HOGA_KEY2, HOGA_SECRET2: a running server and two funded accounts.
"""

import asyncio
import os
import time
from decimal import Decimal

from binance import AsyncClient, BinanceSocketManager, Client, DepthCacheManager
from binance.exceptions import BinanceAPIException

from checks import check, finish, refused

B = os.environ["HOGA_URL"]
W = B.replace("http", "ws", 1)
S = os.environ.get("HOGA_MARKET", "BTC/USDT").replace("/", "")
DEPTH_SECONDS = int(os.environ.get("DEPTH_SECONDS", "120"))
KEYS = os.environ["HOGA_KEY"], os.environ["HOGA_SECRET"]
# Class attributes: they reach what the library makes by itself, too.
for kind in (Client, AsyncClient):
    kind.API_URL, kind.MARGIN_API_URL, kind.WS_API_URL = f"{B}/api", f"{B}/sapi", f"{W}/ws-api/v3"
BinanceSocketManager.STREAM_URL = f"{W}/"

client = Client(*KEYS)
other = Client(os.environ["HOGA_KEY2"], os.environ["HOGA_SECRET2"])
steps = {}
AMOUNT = "0.001"


def top():
    book = client.get_order_book(symbol=S, limit=5)
    return Decimal(book["bids"][0][0]), Decimal(book["asks"][0][0])


def resting_price():
    """A price that rests: well below the market."""
    return on_step(top()[0] * Decimal("0.98"))


def on_step(price):
    return f"{price - price % steps['price']:f}"


def place(**overrides):
    return client.order_limit_buy(**{"symbol": S, "quantity": AMOUNT, "price": resting_price(), **overrides})


def information():
    client.ping()
    assert abs(client.get_server_time()["serverTime"] - time.time() * 1_000) < 2_000
    filters = {row["filterType"]: row for row in client.get_symbol_info(S)["filters"]}
    steps["price"] = Decimal(filters["PRICE_FILTER"]["tickSize"])
    steps["amount"] = Decimal(filters["LOT_SIZE"]["stepSize"])


def market_data():
    other.order_market_buy(symbol=S, quantity=AMOUNT)
    assert Decimal(client.get_ticker(symbol=S)["lastPrice"]) > 0
    assert Decimal(client.get_symbol_ticker(symbol=S)["price"]) > 0
    assert S in [row["symbol"] for row in client.get_all_tickers()]
    quotes = client.get_orderbook_ticker(symbol=S)
    assert Decimal(quotes["bidPrice"]) < Decimal(quotes["askPrice"])
    trades = client.get_recent_trades(symbol=S)
    assert trades and all(row["id"] < later["id"] for row, later in zip(trades, trades[1:]))
    assert client.get_historical_trades(symbol=S, fromId=trades[0]["id"])[0]["id"] == trades[0]["id"]
    assert client.get_aggregate_trades(symbol=S)
    assert client.get_klines(symbol=S, interval="1m", limit=5)


def historical_klines():
    rows = client.get_historical_klines(S, "1s", int(time.time() * 1_000) - 20_000)
    assert rows and all(row[0] < later[0] for row, later in zip(rows, rows[1:]))
    return f"{len(rows)} candles of one second"


def orders():
    order = place()
    assert order["status"] == "NEW"
    assert client.get_order(symbol=S, orderId=order["orderId"])["status"] == "NEW"
    assert order["orderId"] in [row["orderId"] for row in client.get_open_orders(symbol=S)]
    # python-binance sends DELETE with a form body.
    assert client.cancel_order(symbol=S, orderId=order["orderId"])["status"] == "CANCELED"
    assert order["orderId"] in [row["orderId"] for row in client.get_all_orders(symbol=S)]
    place()
    place()
    assert len(client.cancel_all_open_orders(symbol=S)) == 2
    assert client.get_open_orders(symbol=S) == []
    client.create_test_order(symbol=S, side="BUY", type="LIMIT", timeInForce="GTC", quantity=AMOUNT, price=resting_price())


def market_orders():
    before = Decimal(client.get_asset_balance(asset="BTC")["free"]) if S.startswith("BTC") else None
    order = client.order_market_buy(symbol=S, quantity=AMOUNT)
    assert order["status"] == "FILLED" and Decimal(order["executedQty"]) == Decimal(AMOUNT)
    assert client.order_market_buy(symbol=S, quoteOrderQty="100")["status"] == "FILLED"
    assert client.order_market_sell(symbol=S, quantity=AMOUNT)["status"] == "FILLED"
    assert order["orderId"] in [row["orderId"] for row in client.get_my_trades(symbol=S)]
    if before is not None:
        assert Decimal(client.get_asset_balance(asset="BTC")["free"]) > before
    assert any(Decimal(row["free"]) > 0 for row in client.get_account()["balances"])


async def errors():
    async def code(expected, work, text=""):
        error = await refused(work, BinanceAPIException, text)
        assert error.code == expected, f"{error.code} instead of {expected}: {error.message}"

    await code(-2010, lambda: client.order_market_sell(symbol=S, quantity="50"), "insufficient balance")
    await code(-1013, lambda: place(quantity="0.04749053"), "Filter failure: LOT_SIZE")
    await code(-1013, lambda: place(quantity=f"{steps['amount']:f}"), "Filter failure: NOTIONAL")
    # The float 0.00001 goes out as 1e-05, which is no number for Binance, and must never be read as 1.
    await code(-1100, lambda: place(quantity=0.00001))
    await code(-2011, lambda: client.cancel_order(symbol=S, orderId=999999999), "Unknown order sent.")
    await code(-2013, lambda: client.get_order(symbol=S, orderId=999999999), "Order does not exist.")
    await code(-1121, lambda: client.get_order_book(symbol="NOSUCHCOIN"), "Invalid symbol.")
    await code(-1022, Client(KEYS[0], "x" * 64).get_account, "Signature for this request is not valid.")


async def blocking(work):
    return await asyncio.get_running_loop().run_in_executor(None, work)


def nudge():
    """Makes a trade happen while a socket is read."""
    other.order_market_buy(symbol=S, quantity=AMOUNT)


async def sockets(manager):
    made = {
        "trade": manager.trade_socket(S),
        "aggTrade": manager.aggtrade_socket(S),
        "kline": manager.kline_socket(S, "1m"),
        "24hrTicker": manager.symbol_ticker_socket(S),
        "24hrMiniTicker": manager.symbol_miniticker_socket(S),
        "depthUpdate": manager.depth_socket(S, interval=100),
        "bookTicker": manager.symbol_book_ticker_socket(S),
        "partial": manager.depth_socket(S, depth="5"),
        "all": manager.miniticker_socket(),
    }

    async def first(name, socket):
        async with socket as stream:
            message = await stream.recv()
        if name == "all":
            assert any(row["s"] == S for row in message) or message, message
        elif name == "partial":
            assert len(message["bids"]) <= 5 and "lastUpdateId" in message, message
        elif name == "bookTicker":
            assert Decimal(message["b"]) < Decimal(message["a"]), message
        else:
            assert message["e"] == name and message["s"] == S, message

    async def keep_trading():
        while True:
            await asyncio.sleep(0.5)
            await blocking(nudge)

    trading = asyncio.ensure_future(keep_trading())
    try:
        await asyncio.gather(*(first(name, socket) for name, socket in made.items()))
    finally:
        trading.cancel()


async def multiplex(manager):
    names = [f"{S.lower()}@trade", f"{S.lower()}@depth@100ms"]
    seen = set()
    async with manager.multiplex_socket(names) as stream:
        await blocking(nudge)
        while seen != set(names):
            seen.add((await stream.recv())["stream"])


async def user_data(manager):
    async with manager.user_socket() as stream:
        order = await blocking(place)
        await blocking(lambda: client.cancel_order(symbol=S, orderId=order["orderId"]))
        states = []
        position = False
        while "CANCELED" not in states or not position:
            event = await stream.recv()
            if event["e"] == "executionReport" and event["i"] == order["orderId"]:
                states.append(event["X"])
            position = position or event["e"] == "outboundAccountPosition"
        assert states == ["NEW", "CANCELED"], states


async def ws_api(asynchronous):
    await asynchronous.ws_ping()
    assert abs((await asynchronous.ws_get_time())["serverTime"] - time.time() * 1_000) < 2_000
    assert (await asynchronous.ws_get_order_book(symbol=S))["bids"]
    price = await blocking(resting_price)
    order = await asynchronous.ws_create_order(
        symbol=S, side="BUY", type="LIMIT", timeInForce="GTC", quantity=AMOUNT, price=price
    )
    assert (await asynchronous.ws_get_order(symbol=S, orderId=order["orderId"]))["status"] == "NEW"
    assert (await asynchronous.ws_cancel_order(symbol=S, orderId=order["orderId"]))["status"] == "CANCELED"


async def depth_cache(asynchronous):
    """The library takes its snapshot before its socket is open, so that it may have to take a second one at the start; after that none."""
    manager = DepthCacheManager(asynchronous, S, ws_interval=100)
    snapshots = 0
    init = manager._init_cache

    async def counted():
        nonlocal snapshots
        snapshots += 1
        await init()

    manager._init_cache = counted
    updates = 0
    async with manager as cache_manager:
        for _ in range(5):
            await cache_manager.recv()
        at_start = snapshots
        assert at_start <= 3, f"{at_start} snapshots at the start"
        until = time.monotonic() + DEPTH_SECONDS
        while time.monotonic() < until:
            cache = await cache_manager.recv()
            updates += 1
            bids, asks = cache.get_bids(), cache.get_asks()
            assert bids[0][0] < asks[0][0], f"crossed: {bids[0]} {asks[0]}"
            assert snapshots == at_start, f"a resync after {updates} updates"
    assert updates > 0
    return f"{updates} updates in {DEPTH_SECONDS} s, {at_start} snapshots at the start, none after it"


async def main():
    await check("ping, time, symbol info", information)
    if not steps:
        finish()
    await check("tickers, trades, klines", market_data)
    await check("get_historical_klines", historical_klines)
    await check("orders: place, query, cancel (form body), cancel all, test", orders)
    await check("market orders, my trades, balances", market_orders)
    await check("error codes and texts", errors)
    asynchronous = await AsyncClient.create(*KEYS)
    manager = BinanceSocketManager(asynchronous)
    try:
        await check("sockets: one message of each kind", lambda: sockets(manager), 60)
        await check("multiplex_socket", lambda: multiplex(manager))
        await check("user_socket", lambda: user_data(manager))
        await check("WebSocket API", lambda: ws_api(asynchronous))
        await check("depth cache without a resync", lambda: depth_cache(asynchronous), DEPTH_SECONDS + 60)
    finally:
        await asynchronous.close_connection()
    finish()


asyncio.run(main())
