// One line for each check, the count at the end, an exit code that says whether all passed.

import assert from 'node:assert/strict';

const LIMIT_MS = 30_000;
let passed = 0;
let failed = 0;

/** Runs one check; a failure is printed and counted, and the next check runs all the same. */
export async function check(name, work, limit = LIMIT_MS) {
  let timer;
  const late = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Error(`not done after ${limit / 1_000} s`)), limit);
  });
  try {
    const note = await Promise.race([work(), late]);
    passed += 1;
    console.log(`ok    ${name}${typeof note === 'string' ? `: ${note}` : ''}`);
  } catch (error) {
    failed += 1;
    console.log(`FAIL  ${name}: ${error?.constructor?.name ?? ''} ${String(error?.message ?? error).split('\n').slice(0, 6).join(' | ')}`);
  } finally {
    clearTimeout(timer);
  }
}

/** Checks that `work` is refused with exactly this class of error, and that its text holds `text`. */
export async function refused(work, type, text = '') {
  try {
    await work();
  } catch (error) {
    assert.equal(error.constructor.name, type.name, `${error.constructor.name}: ${error.message}`);
    assert.ok(error.message.includes(text), `${error.message} does not hold ${JSON.stringify(text)}`);
    return;
  }
  assert.fail(`not refused; ${type.name} was expected`);
}

/** Prints the closing line and ends the process. */
export function finish() {
  console.log(`${passed} passed, ${failed} failed`);
  process.exit(failed === 0 ? 0 : 1);
}
