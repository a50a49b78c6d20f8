// The tick plant's panel in Chromium against Hoga with --feed: both groups side by side, and an operator who shows the other one.
//   HOGA_URL: a running server. HOGA_ADMIN_TOKEN: its operator's token. HOGA_NPM, HOGA_CHROMIUM, SCREENSHOTS as for console.mjs.

import assert from 'node:assert/strict';
import { check, finish } from '../clients/checks.mjs';
import { launch, number, test, until } from './page.mjs';

const { HOGA_URL: url, HOGA_ADMIN_TOKEN: token, SCREENSHOTS: folder } = process.env;
const LIMIT_MS = 90_000;
const SIZES = [
  { viewport: { width: 1280, height: 800 }, theme: 'dark' },
  { viewport: { width: 390, height: 844 }, theme: 'light' },
];

const browser = await launch();

for (const { viewport, theme } of SIZES) {
  const label = `${viewport.width} ${theme}: plant`;
  const context = await browser.newContext({ viewport, colorScheme: theme, locale: 'en-GB' });
  const page = await context.newPage();
  page.setDefaultTimeout(20_000);
  const complaints = [];
  page.on('pageerror', error => complaints.push(error.message));
  const picture = name => page.screenshot({ path: `${folder}/${viewport.width}-${theme}-${name}.png` });
  const isShown = group => test(page, `plant-shown-${group}`).isVisible();
  const bothLead = () => Promise.all(['a', 'b'].map(group => test(page, `plant-leader-${group}`).textContent()));
  const dialogs = page.locator('dialog');
  const tokenField = page.locator('#operator-token');
  // On a busy machine a group may be without a leader for a moment: then it is refused, or traffic moves by itself. So it is asked for again.
  const show = group =>
    until(
      async () => {
        if (!(await isShown(group))) await test(page, `plant-show-${group}`).click({ timeout: 2_000 }).catch(() => {});
        return isShown(group);
      },
      Boolean,
      `${group} is shown`,
    );
  const switches = () => test(page, 'plant-switches').locator('li').allTextContents();

  await check(`${label}: the panel has the feed's rate and both groups with their leaders, one of them shown`, async () => {
    await page.goto(url);
    await test(page, 'plant').click();
    await until(() => number(test(page, 'plant-rate')), rate => rate > 0, 'ticks a second');
    await until(bothLead, leaders => leaders.every(leader => leader && leader !== 'no leader'), 'leaders');
    assert.equal([await isShown('a'), await isShown('b')].filter(Boolean).length, 1);
    await until(() => test(page, 'plant-panel').locator('meter').count(), count => count > 0, 'loops');
  }, LIMIT_MS);

  await check(`${label}: nothing is wider than its panel`, async () => {
    const [content, room] = await test(page, 'plant-panel').evaluate(panel => [panel.scrollWidth, panel.clientWidth]);
    assert.ok(content <= room, `${content} > ${room}`);
  }, LIMIT_MS);

  await check(`${label}: the groups put out the same, and the list of differences says so`, async () => {
    assert.equal(await test(page, 'plant-differs').textContent(), '0');
    await test(page, 'plant-differences').click();
    await test(page, 'plant-diff').getByText('The groups put out the same.').waitFor();
    await page.keyboard.press('Escape');
    await until(() => dialogs.count(), count => count === 1, 'dialogs');
  }, LIMIT_MS);

  await check(`${label}: without the operator's token nothing moves; with it B is shown, and it is asked for once`, async () => {
    const to = (await isShown('a')) ? 'b' : 'a';
    await test(page, `plant-show-${to}`).click();
    await page.keyboard.press('Escape');
    await until(() => dialogs.count(), count => count === 1, 'dialogs');
    await test(page, `plant-show-${to}`).click();
    await tokenField.fill('not-the-token');
    await page.keyboard.press('Enter');
    await page.locator('dialog .fault').getByText('not authorized').waitFor();
    assert.equal(await isShown(to), false);
    await tokenField.fill(token);
    await page.keyboard.press('Enter');
    await until(() => dialogs.count(), count => count === 1, 'dialogs');
    await show(to);
    // Each way once, with no dialog in between.
    await show('a');
    await show('b');
    await picture('plant');
    assert.ok((await switches()).some(text => /^[AB] → [AB]: by command$/.test(text)), (await switches()).join('; '));
    assert.equal(await tokenField.count(), 0);
    const stored = await page.evaluate(() => JSON.stringify([{ ...localStorage }, { ...sessionStorage }]));
    assert.ok(!stored.includes(token), 'the token is in the storage');
  }, LIMIT_MS);

  await check(`${label}: what the server refuses is said, and is forced only in a step of its own`, async () => {
    await show('a');
    const asked = [];
    const reason = 'group b differs from a in 3 symbols';
    await page.route('**/api/v1/admin/plant/switch', async route => {
      const body = route.request().postDataJSON();
      asked.push(body);
      if (body.force) await route.continue();
      else await route.fulfill({ status: 409, contentType: 'application/json', body: JSON.stringify({ code: -2010, msg: reason }) });
    });
    await test(page, 'plant-show-b').click();
    await page.locator('.toast').getByText(reason).waitFor();
    await test(page, 'plant-refusal').getByText(reason).waitFor();
    await picture('plant-refused');
    assert.deepEqual(asked, [{ to: 'b' }]);
    await test(page, 'plant-force').click();
    await until(() => isShown('b'), Boolean, 'B is shown');
    assert.deepEqual(asked, [{ to: 'b' }, { to: 'b', force: true }]);
    assert.equal(await test(page, 'plant-refusal').isVisible(), false);
    await page.unroute('**/api/v1/admin/plant/switch');
    await show('a');
  }, LIMIT_MS);

  await check(`${label}: closed, the status bar says which group is shown; the page has no complaint`, async () => {
    await page.keyboard.press('Escape');
    await until(() => dialogs.count(), count => count === 0, 'dialogs');
    await until(() => test(page, 'plant-state').textContent(), text => /^[AB] shown/.test(text), 'the status bar');
    await picture('plant-status');
    assert.deepEqual(complaints, []);
  }, LIMIT_MS);
  await context.close();
}
await browser.close();
finish();
