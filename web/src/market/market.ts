// A market as the console needs it, read from exchangeInfo.

import { stepPlaces, units, type Units } from '../decimal.ts';

export interface Market {
  /** As the server names it: `BTCUSDT`. */
  symbol: string;
  base: string;
  quote: string;
  status: string;
  tick: Units;
  step: Units;
  pricePlaces: number;
  quantityPlaces: number;
  minQuantity: Units;
  maxQuantity: Units;
  minPrice: Units;
  maxPrice: Units;
  minNotional: Units;
  maxNotional: Units;
}

interface Filter {
  filterType: string;
  [field: string]: string | number | boolean;
}

export interface ExchangeInfo {
  symbols: { symbol: string; status: string; baseAsset: string; quoteAsset: string; filters: Filter[] }[];
}

export function marketsOf(info: ExchangeInfo): Market[] {
  return info.symbols.map(symbol => {
    const field = (filter: string, name: string, otherwise: string): string => {
      const found = symbol.filters.find(candidate => candidate.filterType === filter)?.[name];
      return found === undefined ? otherwise : String(found);
    };
    const tick = field('PRICE_FILTER', 'tickSize', '0.01');
    const step = field('LOT_SIZE', 'stepSize', '0.00000001');
    const notional = symbol.filters.some(filter => filter.filterType === 'NOTIONAL') ? 'NOTIONAL' : 'MIN_NOTIONAL';
    return {
      symbol: symbol.symbol,
      base: symbol.baseAsset,
      quote: symbol.quoteAsset,
      status: symbol.status,
      tick: units(tick),
      step: units(step),
      pricePlaces: stepPlaces(tick),
      quantityPlaces: stepPlaces(step),
      minQuantity: units(field('LOT_SIZE', 'minQty', '0')),
      maxQuantity: units(field('LOT_SIZE', 'maxQty', '0')),
      minPrice: units(field('PRICE_FILTER', 'minPrice', '0')),
      maxPrice: units(field('PRICE_FILTER', 'maxPrice', '0')),
      minNotional: units(field(notional, 'minNotional', '0')),
      maxNotional: units(field(notional, 'maxNotional', '0')),
    };
  });
}
