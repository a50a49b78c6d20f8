"""ccxt of PyPI against Hoga: `ccxt` (synchronous) for REST and error classes, `ccxt.pro` for the streams.

HOGA_URL, HOGA_KEY, HOGA_SECRET, HOGA_KEY2, HOGA_SECRET2: a running server and two funded accounts.
"""

import asyncio
import os
import time

import ccxt
import ccxt.pro

from checks import check, finish, refused

B = os.environ["HOGA_URL"]
W = B.replace("http", "ws", 1)
S = os.environ.get("HOGA_MARKET", "BTC/USDT")
BASE, QUOTE = S.split("/")


def client(kind, key, secret):
    ex = kind(
        {
            "apiKey": key,
            "secret": secret,
            "options": {
                "defaultType": "spot",
                "fetchMarkets": {"types": ["spot"]},
                "fetchCurrencies": False,
                "fetchMargins": False,
                "fetchOpenOrders": {"warnWithoutSymbol": False},
            },
        }
    )
    for name in ("public", "private"):
        ex.urls["api"][name] = f"{B}/api/v3"
    ex.urls["api"]["v1"] = f"{B}/api/v1"
    ex.urls["api"]["sapi"] = f"{B}/sapi/v1"
    if "ws" in ex.urls["api"]:
        ex.urls["api"]["ws"]["spot"] = f"{W}/stream"
        ex.urls["api"]["ws"]["ws-api"]["spot"] = f"{W}/ws-api/v3"
    return ex


ex = client(ccxt.binance, os.environ["HOGA_KEY"], os.environ["HOGA_SECRET"])
other = client(ccxt.binance, os.environ["HOGA_KEY2"], os.environ["HOGA_SECRET2"])


def top():
    book = ex.fetch_order_book(S, 5)
    return book["bids"][0][0], book["asks"][0][0]


def rounded(price):
    return float(ex.price_to_precision(S, price))


def resting_price():
    """A price that rests: well below the market."""
    return rounded(top()[0] * 0.98)


def place(price=None, side="buy", **params):
    return ex.create_order(S, "limit", side, amount, resting_price() if price is None else price, params)


def load_markets():
    ex.load_markets()
    other.load_markets()
    assert ex.market(S)["active"] is True
    return f"{len(ex.symbols)} markets"


def book():
    both = ex.fetch_order_book(S, 5)
    assert 0 < len(both["bids"]) <= 5 and 0 < len(both["asks"]) <= 5
    assert both["bids"][0][0] < both["asks"][0][0], "crossed"


def tickers():
    ticker = ex.fetch_ticker(S)
    for field in ("last", "bid", "ask", "open", "high", "low", "baseVolume", "quoteVolume"):
        assert isinstance(ticker[field], float), field
    assert S in ex.fetch_tickers()
    assert list(ex.fetch_tickers([S])) == [S]
    quotes = ex.fetch_bids_asks([S])[S]
    assert quotes["bid"] < quotes["ask"]
    assert ex.fetch_last_prices()[S]["price"] > 0


def candles():
    rows = ex.fetch_ohlcv(S, "1m", limit=10)
    assert 0 < len(rows) <= 10
    assert all(later[0] == row[0] + 60_000 for row, later in zip(rows, rows[1:])), "not ascending by a minute"


def market_trades():
    rows = ex.fetch_trades(S)
    assert rows and all(row["timestamp"] <= later["timestamp"] for row, later in zip(rows, rows[1:]))


def balances():
    balance = ex.fetch_balance()
    assert balance[BASE]["free"] > 9 and balance[QUOTE]["free"] > 500_000


def limit_order():
    order = place()
    assert order["status"] == "open"
    assert ex.fetch_order(order["id"], S)["status"] == "open"
    assert order["id"] in [row["id"] for row in ex.fetch_open_orders(S)]
    assert order["id"] in [row["id"] for row in ex.fetch_open_orders()]
    assert ex.fetch_balance()[QUOTE]["used"] > 0
    assert ex.cancel_order(order["id"], S)["status"] == "canceled"
    assert ex.fetch_order(order["id"], S)["status"] == "canceled"
    assert order["id"] in [row["id"] for row in ex.fetch_orders(S)]


def market_orders():
    bought = ex.create_order(S, "market", "buy", amount)
    assert bought["status"] == "closed" and bought["filled"] == amount
    by_cost = ex.create_market_buy_order_with_cost(S, 100)
    assert by_cost["status"] == "closed" and 0 < by_cost["cost"] <= 100
    sold = ex.create_order(S, "market", "sell", amount)
    mine = ex.fetch_my_trades(S)
    assert {bought["id"], by_cost["id"], sold["id"]} <= {row["order"] for row in mine}
    fees = {row["order"]: row["fee"]["currency"] for row in mine}
    assert fees[bought["id"]] == BASE and fees[sold["id"]] == QUOTE


def order_kinds():
    maker = place(postOnly=True)
    assert maker["status"] == "open" and maker["postOnly"] is True
    ex.cancel_order(maker["id"], S)
    assert place(timeInForce="IOC")["status"] == "expired"
    assert place(price=rounded(top()[1] * 1.01), timeInForce="FOK")["status"] == "closed"
    bid = top()[0]
    stop = ex.create_order(S, "STOP_LOSS_LIMIT", "sell", amount, rounded(bid * 0.95), {"stopPrice": rounded(bid * 0.955)})
    assert stop["status"] == "open"
    ex.cancel_order(stop["id"], S)


def own_ids():
    name = f"own-{time.time_ns()}"
    order = place(clientOrderId=name)
    assert order["clientOrderId"] == name
    assert ex.fetch_order(None, S, {"clientOrderId": name})["id"] == order["id"]
    assert ex.cancel_order(None, S, {"clientOrderId": name})["status"] == "canceled"


def cancel_all():
    for _ in range(3):
        place()
    ex.cancel_all_orders(S)
    assert ex.fetch_open_orders(S) == []


async def errors():
    await refused(lambda: ex.create_order(S, "market", "sell", 50), ccxt.InsufficientFunds, "insufficient balance")
    above = rounded(top()[1] * 1.02)
    await refused(lambda: place(price=above, postOnly=True), ccxt.OrderImmediatelyFillable, "immediately match")
    raw = {"symbol": ex.market(S)["id"], "side": "BUY", "type": "LIMIT", "timeInForce": "GTC", "quantity": str(amount)}
    price = str(resting_price())
    await refused(lambda: ex.private_post_order({**raw, "price": price, "quantity": "0.04749053"}), ccxt.InvalidOrder, "LOT_SIZE")
    step = ex.market(S)["precision"]["amount"]
    small = ex.decimal_to_precision(step, ccxt.ROUND, step, ccxt.TICK_SIZE)
    await refused(lambda: ex.private_post_order({**raw, "price": price, "quantity": small}), ccxt.BadRequest, "NOTIONAL")
    await refused(lambda: ex.private_post_order({**raw, "price": price, "quantity": "1e-05"}), ccxt.BadRequest)
    await refused(lambda: ex.cancel_order("999999999", S), ccxt.OrderNotFound)
    await refused(lambda: ex.fetch_order("999999999", S), ccxt.OrderNotFound)
    await refused(lambda: ex.public_get_depth({"symbol": "NOSUCHCOIN"}), ccxt.BadSymbol)
    ex.options["timeDifference"] = 60_000
    await refused(ex.fetch_balance, ccxt.InvalidNonce)
    ex.options["timeDifference"] = 0
    wrong = client(ccxt.binance, os.environ["HOGA_KEY"], "x" * 64)
    wrong.set_markets(ex.markets)
    await refused(wrong.fetch_balance, ccxt.AuthenticationError)


def nudge():
    """Makes a trade happen while a stream is watched."""
    other.create_order(S, "market", "buy", amount)


async def blocking(work, *arguments):
    return await asyncio.get_running_loop().run_in_executor(None, work, *arguments)


async def watch_order_book(pro):
    before = updates = 0
    while updates < 20:
        both = await pro.watch_order_book(S)
        assert both["bids"][0][0] < both["asks"][0][0], "crossed"
        assert both["nonce"] >= before, "the update id went back"
        updates += both["nonce"] > before
        before = both["nonce"]
    return f"update {before}"


async def watch_trades(pro):
    watching = asyncio.ensure_future(pro.watch_trades(S))
    await asyncio.sleep(0.5)
    await blocking(nudge)
    assert (await watching)[0]["side"] in ("buy", "sell")


async def order_update(pro, wanted):
    while True:
        for order in await pro.watch_orders(S):
            if wanted(order):
                return order


async def watch_orders(pro):
    watching = asyncio.ensure_future(order_update(pro, lambda order: order["status"] == "open"))
    await asyncio.sleep(0.7)
    order = await blocking(place)
    assert (await watching)["id"] == order["id"]
    canceled = lambda row: row["id"] == order["id"] and row["status"] == "canceled"  # noqa: E731
    watching = asyncio.ensure_future(order_update(pro, canceled))
    await blocking(ex.cancel_order, order["id"], S)
    await watching


async def watch_fills(pro):
    closed = lambda row: row["status"] == "closed"  # noqa: E731
    watching = asyncio.gather(pro.watch_my_trades(S), pro.watch_balance(), order_update(pro, closed))
    await asyncio.sleep(0.3)
    order = await blocking(lambda: ex.create_order(S, "market", "buy", amount))
    trades, _, update = await watching
    assert trades[-1]["order"] == order["id"] == update["id"]


async def orders_over_ws(pro):
    price = await blocking(resting_price)
    order = await pro.create_order_ws(S, "limit", "buy", amount, price)
    assert order["status"] == "open"
    assert (await pro.fetch_order_ws(order["id"], S))["status"] == "open"
    assert order["id"] in [row["id"] for row in await pro.fetch_open_orders_ws(S)]
    assert (await pro.cancel_order_ws(order["id"], S))["status"] == "canceled"
    await refused(lambda: pro.cancel_order_ws("999999999", S), ccxt.OrderNotFound)


async def main():
    global amount
    await check("load_markets", load_markets)
    if not ex.markets:
        finish()
    amount = float(ex.amount_to_precision(S, max(ex.market(S)["limits"]["amount"]["min"] or 0, 0.001)))
    await check("fetch_order_book", book)
    await check("market orders, by amount and by cost, my trades and their fees", market_orders)
    await check("fetch_ticker, fetch_tickers, fetch_bids_asks, fetch_last_prices", tickers)
    await check("fetch_ohlcv", candles)
    await check("fetch_trades", market_trades)
    await check("fetch_balance", balances)
    await check("limit order: place, fetch, open orders, cancel, all orders", limit_order)
    await check("post-only, IOC, FOK, stop-limit", order_kinds)
    await check("clientOrderId: place, fetch, cancel", own_ids)
    await check("cancel_all_orders", cancel_all)
    await check("error classes", errors)
    pro = client(ccxt.pro.binance, os.environ["HOGA_KEY"], os.environ["HOGA_SECRET"])
    try:
        await check("pro: load_markets", pro.load_markets)
        await check("watch_order_book: snapshot, then updates without a hole", lambda: watch_order_book(pro), 60)
        await check("watch_trades", lambda: watch_trades(pro))
        await check("watch_orders: placed, canceled", lambda: watch_orders(pro))
        await check("watch_my_trades, watch_balance, watch_orders: filled", lambda: watch_fills(pro))
        await check("create_order_ws, fetch_order_ws, fetch_open_orders_ws, cancel_order_ws", lambda: orders_over_ws(pro))
    finally:
        await pro.close()
    finish()


amount = 0.0
asyncio.run(main())
