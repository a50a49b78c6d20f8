// The console in Chromium against Hoga: a newcomer's first minutes, at both widths and in both themes.
//   HOGA_URL: a running server. HOGA_NPM: where playwright-core is installed. HOGA_CHROMIUM: the browser. SCREENSHOTS: where pictures go.

import assert from 'node:assert/strict';
import { check, finish } from '../clients/checks.mjs';
import { launch, number, test, until } from './page.mjs';

const { HOGA_URL: url, SCREENSHOTS: folder } = process.env;
const LIMIT_MS = 90_000;
const SIZES = { wide: { width: 1280, height: 800 }, narrow: { width: 390, height: 844 } };

const browser = await launch();

for (const [size, viewport] of Object.entries(SIZES)) {
  for (const theme of ['dark', 'light']) {
    const label = `${viewport.width} ${theme}`;
    const context = await browser.newContext({ viewport, colorScheme: theme, locale: 'en-GB' });
    const page = await context.newPage();
    page.setDefaultTimeout(20_000);
    const complaints = [];
    page.on('console', message => message.type() === 'error' && complaints.push(message.text()));
    page.on('pageerror', error => complaints.push(error.message));
    const narrow = size === 'narrow';
    const view = async name => narrow && (await page.locator(`.view-tab[data-view=${name}]`).click());
    const picture = name => page.screenshot({ path: `${folder}/${viewport.width}-${theme}-${name}.png` });

    await check(`${label}: the page opens on a live book, chart and tape`, async () => {
      await page.goto(url);
      await page.locator('.dot.live').first().waitFor();
      await view('chart');
      await until(() => page.locator('.chart-canvas').getAttribute('data-candles'), count => Number(count) > 0, 'candles');
      await page.locator('.chart-canvas canvas').first().waitFor();
      await until(() => page.locator('.tape-row:not(.blank):not(.tape-head)').count(), count => count > 0, 'trades');
      const price = await test(page, 'last-price').textContent();
      assert.match(price, /^[\d,]+\.?\d*$/);
      await view('trade');
      for (const side of ['asks', 'bids']) {
        await until(() => test(page, side).locator('.ladder-row:not(.blank)').count(), count => count >= 5, side);
      }
      const book = () => test(page, 'asks').textContent();
      const before = await book();
      await until(book, now => now !== before, 'the book stands still');
      await view('chart');
      await picture('market');
    }, LIMIT_MS);

    await check(`${label}: the theme is the system's, and the button switches it`, async () => {
      assert.equal(await page.locator('html').getAttribute('data-theme'), theme);
      const background = () => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
      const before = await background();
      await test(page, 'theme').click();
      assert.notEqual(await page.locator('html').getAttribute('data-theme'), theme);
      assert.notEqual(await background(), before);
      await test(page, 'theme').click();
      assert.equal(await background(), before);
    }, LIMIT_MS);

    await check(`${label}: nothing is wider than the screen`, async () => {
      const [content, screen] = await page.evaluate(() => [document.documentElement.scrollWidth, innerWidth]);
      assert.ok(content <= screen, `${content} > ${screen}`);
    }, LIMIT_MS);

    await check(`${label}: an interval of one second, and another market, and back`, async () => {
      await page.getByRole('button', { name: '1s', exact: true }).click();
      await until(() => page.locator('.chart-canvas').getAttribute('data-candles'), count => Number(count) > 0, 'candles');
      await view('markets');
      const markets = page.locator('.market-row');
      const first = await page.locator('.market-row[aria-pressed=true]').getAttribute('data-symbol');
      const another = await markets.evaluateAll(
        (rows, current) => rows.map(row => row.dataset.symbol).find(symbol => symbol !== current) ?? current,
        first,
      );
      await page.locator(`[data-symbol=${another}]`).click();
      await page.locator('.dot.live').first().waitFor();
      await until(() => page.locator('.tape-row:not(.blank):not(.tape-head)').count(), count => count > 0, 'trades');
      await view('markets');
      await page.locator(`[data-symbol=${first}]`).click();
      await page.getByRole('button', { name: '1m', exact: true }).click();
      await page.locator('.dot.live').first().waitFor();
    }, LIMIT_MS);

    if (theme === 'dark') {
      await check(`${label}: one click makes a paper account`, async () => {
        await test(page, 'sign-in').click();
        await picture('sign-in');
        await test(page, 'paper-account').click();
        await test(page, 'start-trading').click();
        await until(() => test(page, 'account-state').textContent(), text => text === 'Live', 'the account stream');
      }, LIMIT_MS);
    } else {
      await check(`${label}: sign up with a name, deposit, log out, log in`, async () => {
        const name = `browser-${size}-${Date.now()}`;
        const fill = async () => {
          await test(page, 'sign-in').click();
          await page.locator('#sign-in-name').fill(name);
          await page.locator('#sign-in-password').fill('a long enough password');
        };
        await fill();
        await test(page, 'sign-up').click();
        await test(page, 'log-out').waitFor();
        await test(page, 'log-out').click();
        await fill();
        await page.locator('dialog button[type=submit]').click();
        await test(page, 'log-out').waitFor();
        await view('account');
        await page.locator('[data-tab=balances]').click();
        for (const [asset, amount] of [['USDT', '50000'], ['BTC', '2']]) {
          await page.getByRole('button', { name: 'Deposit', exact: true }).click();
          await page.locator('#deposit-asset').selectOption(asset);
          await page.locator('#deposit-amount').fill(amount);
          await page.locator('dialog button[type=submit]').click();
          await page.locator('dialog').waitFor({ state: 'detached' });
          await test(page, 'balances').getByText(asset, { exact: true }).waitFor();
        }
      }, LIMIT_MS);
    }

    await check(`${label}: an order that cannot be is explained`, async () => {
      await view('trade');
      await page.getByRole('button', { name: 'Limit', exact: true }).click();
      await page.locator('#order-amount').fill('0');
      await test(page, 'submit-order').click();
      await page.locator('#order-amount-fault').getByText('Enter an amount').waitFor();
    }, LIMIT_MS);

    await check(`${label}: a limit order rests, shows among the open orders, and is canceled`, async () => {
      await view('trade');
      const last = await number(test(page, 'last-price'));
      await page.locator('#order-price').fill((last * 0.97).toFixed(2));
      await page.locator('#order-amount').fill('0.01');
      await picture('form');
      await test(page, 'submit-order').click();
      await view('account');
      await page.locator('[data-tab=open]').click();
      const rows = test(page, 'open-orders').locator('tbody tr');
      await until(() => rows.count(), count => count === 1, 'open orders');
      await picture('open-order');
      await page.getByRole('button', { name: /^Cancel \d+$/ }).click();
      await until(() => rows.count(), count => count === 0, 'open orders');
      await page.locator('[data-tab=history]').click();
      await test(page, 'order-history').getByText('CANCELED').first().waitFor();
    }, LIMIT_MS);

    await check(`${label}: a market order fills, and the balances change`, async () => {
      await view('account');
      await page.locator('[data-tab=balances]').click();
      const free = () => test(page, 'balances').locator('tr', { hasText: 'BTC' }).locator('td').nth(1).textContent();
      const before = await until(free, text => Boolean(text), 'the balance');
      await view('trade');
      await page.getByRole('button', { name: 'Market', exact: true }).click();
      await page.locator('#order-amount').fill('0.01');
      await test(page, 'submit-order').click();
      await view('account');
      await until(free, text => text !== before, 'the balance');
      await picture('balances');
      await page.locator('[data-tab=fills]').click();
      await test(page, 'fills').locator('tbody tr').first().waitFor();
      await page.locator('[data-tab=history]').click();
      await test(page, 'order-history').getByText('FILLED', { exact: true }).first().waitFor();
      await picture('filled');
      await view('chart');
      await picture('trading');
    }, LIMIT_MS);

    await check(`${label}: no gap, no resync, no candle that went back; the page has no complaint`, async () => {
      for (const figure of ['gaps', 'resyncs', 'stale-candles']) {
        assert.equal(await test(page, figure).textContent(), '0', figure);
      }
      assert.deepEqual(complaints, []);
    }, LIMIT_MS);
    await context.close();
  }
}
await browser.close();
finish();
