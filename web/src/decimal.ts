// Money as whole numbers of 10⁻⁸ in a bigint, the same scale as the server's. Nothing here goes through a float.

export type Units = bigint;

export const DECIMALS = 8;
export const ONE: Units = 100_000_000n;

/** Reads a plain decimal (`12`, `-0.5`, `.5`, `50000.10`). Null for anything else, and for more than eight places that are not zero. */
export function parseUnits(text: string): Units | null {
  const match = /^(-?)(\d*)(?:\.(\d*))?$/.exec(text.trim());
  if (!match) return null;
  const [, sign, whole = '', fraction = ''] = match;
  if (whole === '' && fraction === '') return null;
  if (/[^0]/.test(fraction.slice(DECIMALS))) return null;
  const units = BigInt(whole || '0') * ONE + BigInt(fraction.slice(0, DECIMALS).padEnd(DECIMALS, '0'));
  return sign ? -units : units;
}

/** Reads a number that the server sent; a text that is not one is a broken promise, not an input to be polite about. */
export function units(text: string): Units {
  const value = parseUnits(text);
  if (value === null) throw new Error(`not a decimal number: ${JSON.stringify(text)}`);
  return value;
}

/** Writes `value` with exactly `places` decimal places, cut towards zero, with commas between thousands where asked for. */
export function formatUnits(value: Units, places: number, grouped = false): string {
  const negative = value < 0n;
  const digits = (negative ? -value : value).toString().padStart(DECIMALS + 1, '0');
  let whole = digits.slice(0, -DECIMALS);
  if (grouped) whole = whole.replace(/\B(?=(\d{3})+$)/g, ',');
  const fraction = digits.slice(-DECIMALS).slice(0, places).padEnd(places, '0');
  const text = places > 0 ? `${whole}.${fraction}` : whole;
  return negative && /[1-9]/.test(text) ? `-${text}` : text;
}

/** Writes `value` exactly, without zeros at the end. */
export function plain(value: Units): string {
  const text = formatUnits(value, DECIMALS);
  return text.replace(/\.?0+$/, '');
}

/** Writes a large amount in short: 1.23K, 4.56M, 7.89B. Below one thousand: two places. */
export function short(value: Units): string {
  const size = value < 0n ? -value : value;
  for (const [suffix, power] of [['B', 1_000_000_000n], ['M', 1_000_000n], ['K', 1_000n]] as const) {
    if (size >= power * ONE) return formatUnits(value / power, 2) + suffix;
  }
  return formatUnits(value, 2);
}

/** Decimal places that a step needs: `0.01000000` → 2, `1.00000000` → 0. */
export function stepPlaces(step: string): number {
  return (step.split('.')[1] ?? '').replace(/0+$/, '').length;
}

/** The largest multiple of `step` that is not above `value`. */
export function floorTo(value: Units, step: Units): Units {
  if (step <= 0n) return value;
  const rest = value % step;
  return value - (rest < 0n ? rest + step : rest);
}

/** The smallest multiple of `step` that is not below `value`. */
export function ceilTo(value: Units, step: Units): Units {
  const floor = floorTo(value, step);
  return floor === value ? value : floor + step;
}

/** `price × quantity`, cut to 10⁻⁸. */
export function product(price: Units, quantity: Units): Units {
  return (price * quantity) / ONE;
}

/** How much `amount` buys at `price`, cut to 10⁻⁸. Zero when the price is zero. */
export function quotient(amount: Units, price: Units): Units {
  return price === 0n ? 0n : (amount * ONE) / price;
}

/** `part / whole` in basis points (0 … 10,000), for bars: a width, not money. */
export function basisPoints(part: Units, whole: Units): number {
  return whole <= 0n ? 0 : Number((part * 10_000n) / whole);
}
