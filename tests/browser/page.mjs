// What the browser tests share: the browser, and reading the console's page.

import assert from 'node:assert/strict';
import { createRequire } from 'node:module';

/** Debian's Chromium (HOGA_CHROMIUM), driven by playwright-core out of HOGA_NPM. */
export function launch() {
  const { chromium } = createRequire(`${process.env.HOGA_NPM}/package.json`)('playwright-core');
  return chromium.launch({
    executablePath: process.env.HOGA_CHROMIUM,
    // A test's browser has nobody to call.
    args: ['--disable-quic', '--disable-background-networking', '--disable-component-update', '--disable-sync'],
  });
}

/** An element by its data-test name. */
export const test = (page, name) => page.locator(`[data-test=${name}]`);
/** The number that an element shows. */
export const number = async locator => Number((await locator.textContent()).replaceAll(/[^0-9.]/g, ''));
/** Waits until `read` gives something that `wanted` takes. */
export async function until(read, wanted, what, limit = 20_000) {
  const end = Date.now() + limit;
  for (;;) {
    const value = await read();
    if (wanted(value)) return value;
    assert.ok(Date.now() < end, `${what}: still ${JSON.stringify(value)}`);
    await new Promise(resolve => setTimeout(resolve, 50));
  }
}
