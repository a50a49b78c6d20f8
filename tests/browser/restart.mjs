// A page that stays open while the server is restarted: it says so, comes back by itself, and nothing that was acknowledged is missing.
//   HOGA_URL: a running server. HOGA_RESTART: the file that tells when it is to `stop` and to `start`. HOGA_NPM, HOGA_CHROMIUM, SCREENSHOTS.

import assert from 'node:assert/strict';
import { writeFileSync } from 'node:fs';
import { check, finish } from '../clients/checks.mjs';
import { launch, number, test, until } from './page.mjs';

const LIMIT_MS = 90_000;
const browser = await launch();
const page = await browser.newPage({ viewport: { width: 1280, height: 800 }, colorScheme: 'dark', locale: 'en-GB' });
page.setDefaultTimeout(20_000);
const state = name => test(page, name).textContent();
const plantAnswers = [];
page.on('response', answer => new URL(answer.url()).pathname === '/api/v1/plant' && plantAnswers.push(answer.status()));
const openOrders = () => test(page, 'open-orders').locator('tbody tr').count();

await check('before the restart: logged in, an order rests', async () => {
  await page.goto(process.env.HOGA_URL);
  await test(page, 'sign-in').click();
  await test(page, 'paper-account').click();
  await test(page, 'start-trading').click();
  await until(() => state('account-state'), text => text === 'Live', 'the account stream');
  const last = await number(test(page, 'last-price'));
  await page.locator('#order-price').fill((last * 0.95).toFixed(2));
  await page.locator('#order-amount').fill('0.1');
  await test(page, 'submit-order').click();
  await until(openOrders, count => count === 1, 'open orders');
}, LIMIT_MS);

await check('a server without a tick plant: the status bar has no item for one', async () => {
  assert.deepEqual(plantAnswers, [404], 'asked once: the next time is half a minute away');
  assert.equal(await test(page, 'plant').isVisible(), false);
}, LIMIT_MS);

writeFileSync(process.env.HOGA_RESTART, 'stop');
await check('while the server is away the page says so', async () => {
  for (const name of ['market-state', 'account-state']) await until(() => state(name), text => text.startsWith('Connection lost'), name);
  await page.screenshot({ path: `${process.env.SCREENSHOTS}/1280-dark-away.png` });
}, LIMIT_MS);

writeFileSync(process.env.HOGA_RESTART, 'start');
await check('after it both streams are live, the book moves, the session and the order are still there', async () => {
  for (const name of ['market-state', 'account-state']) await until(() => state(name), text => text === 'Live', name, 60_000);
  assert.equal(await openOrders(), 1);
  const book = () => test(page, 'asks').textContent();
  const before = await book();
  await until(book, now => now !== before, 'the book stands still');
  assert.deepEqual([await state('gaps'), await state('resyncs'), await state('stale-candles')], ['0', '1', '0']);
  await page.getByRole('button', { name: /^Cancel \d+$/ }).click();
  await until(openOrders, count => count === 0, 'open orders');
}, LIMIT_MS);

await browser.close();
finish();
