import assert from 'node:assert/strict';
import test from 'node:test';
import {
  basisPoints,
  ceilTo,
  floorTo,
  formatUnits,
  parseUnits,
  plain,
  product,
  quotient,
  short,
  stepPlaces,
} from '../src/decimal.ts';

const u = (text: string): bigint => {
  const value = parseUnits(text);
  assert.notEqual(value, null, text);
  return value!;
};

test('plain decimals are read exactly', () => {
  const rows: [string, bigint | null][] = [
    ['0', 0n],
    ['1', 100_000_000n],
    ['0.00000001', 1n],
    ['-0.5', -50_000_000n],
    ['.5', 50_000_000n],
    ['5.', 500_000_000n],
    ['64123.45000000', 6_412_345_000_000n],
    ['0.100000000000', 10_000_000n],
    ['92233720368.54775807', 9_223_372_036_854_775_807n],
    ['0.000000001', null],
    ['1e-05', null],
    ['1,000', null],
    ['', null],
    ['.', null],
    ['-', null],
    ['NaN', null],
    ['1.2.3', null],
  ];
  for (const [text, value] of rows) assert.equal(parseUnits(text), value, JSON.stringify(text));
});

test('what a float would get wrong comes out right', () => {
  assert.equal(plain(u('0.1') + u('0.2')), '0.3');
  assert.equal(plain(product(u('64123.45'), u('0.00123'))), '78.8718435');
  assert.equal(formatUnits(u('9007199254.740993'), 6), '9007199254.740993');
});

test('written with fixed places, cut and never rounded up', () => {
  const rows: [string, number, boolean, string][] = [
    ['1234567.891', 2, true, '1,234,567.89'],
    ['1234567.891', 2, false, '1234567.89'],
    ['999.999', 2, true, '999.99'],
    ['0', 2, true, '0.00'],
    ['12', 0, true, '12'],
    ['-1234.5', 1, true, '-1,234.5'],
    ['-0.001', 2, true, '0.00'],
    ['0.00000001', 8, false, '0.00000001'],
  ];
  for (const [text, places, commas, want] of rows) assert.equal(formatUnits(u(text), places, commas), want);
});

test('plain text has no zeros at the end', () => {
  assert.equal(plain(u('100.00')), '100');
  assert.equal(plain(u('0.10')), '0.1');
  assert.equal(plain(0n), '0');
});

test('large amounts in short', () => {
  const rows = [
    ['999.5', '999.50'],
    ['1000', '1.00K'],
    ['1234567', '1.23M'],
    ['7890000000', '7.89B'],
    ['-2500', '-2.50K'],
  ] as const;
  for (const [text, want] of rows) assert.equal(short(u(text)), want);
});

test('steps', () => {
  assert.equal(stepPlaces('0.01000000'), 2);
  assert.equal(stepPlaces('1.00000000'), 0);
  assert.equal(stepPlaces('10'), 0);
  assert.equal(plain(floorTo(u('0.00078565'), u('0.00001'))), '0.00078');
  assert.equal(plain(ceilTo(u('0.00078565'), u('0.00001'))), '0.00079');
  assert.equal(plain(ceilTo(u('0.5'), u('0.5'))), '0.5');
  assert.equal(floorTo(u('1.5'), 0n), u('1.5'));
});

test('dividing by nothing gives nothing', () => {
  assert.equal(quotient(u('100'), 0n), 0n);
  assert.equal(plain(quotient(u('100'), u('3'))), '33.33333333');
  assert.equal(basisPoints(1n, 0n), 0);
  assert.equal(basisPoints(u('1'), u('4')), 2_500);
});
