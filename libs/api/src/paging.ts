import { InvalidInputError } from '@cloudless/base';
import { DEFAULTS } from './defaults.js';

/** One page of a list. */
export interface Page<Item> {
  readonly items: readonly Item[];
  /** Empty on the last page. */
  readonly nextPageToken: string;
}

/**
 * Cuts one page out of items that are sorted by a key. A token names the last key it showed, so concurrent changes
 * neither repeat nor skip what stays.
 * @param sorted - All items, in the order that `compare` gives to their keys; no key twice.
 * @param request - `pageSize`: 0 to 1000, 0 means 100.
 * @param compare - Order of two keys; default ascending by code unit.
 * @throws {@link InvalidInputError} for a token that no list of this API made, or another page size.
 */
export function pageOf<Item>(
  sorted: readonly Item[],
  keyOf: (item: Item) => string,
  request: { readonly pageSize: number; readonly pageToken: string },
  compare: (a: string, b: string) => number = (a, b) => (a < b ? -1 : a > b ? 1 : 0),
): Page<Item> {
  const size = pageSizeOf(request.pageSize);
  const after = request.pageToken === '' ? undefined : parsePageToken(request.pageToken);
  const start = after === undefined ? 0 : firstAfter(sorted, keyOf, after, compare);
  const items = sorted.slice(start, start + size);
  const last = items.at(-1);
  const more = last !== undefined && start + size < sorted.length;
  return { items, nextPageToken: more ? toPageToken(keyOf(last)) : '' };
}

function pageSizeOf(asked: number): number {
  if (!Number.isInteger(asked) || asked < 0 || asked > DEFAULTS.maxPageSize) {
    throw new InvalidInputError([{ field: 'page_size', message: `must be from 0 to ${DEFAULTS.maxPageSize}` }]);
  }
  return asked === 0 ? DEFAULTS.pageSize : asked;
}

function firstAfter<Item>(
  sorted: readonly Item[],
  keyOf: (item: Item) => string,
  after: string,
  compare: (a: string, b: string) => number,
): number {
  let low = 0;
  let high = sorted.length;
  while (low < high) {
    const middle = (low + high) >>> 1;
    const item = sorted[middle];
    if (item !== undefined && compare(keyOf(item), after) <= 0) low = middle + 1;
    else high = middle;
  }
  return low;
}

const TOKEN_PREFIX = 'p1.';

function toPageToken(key: string): string {
  return `${TOKEN_PREFIX}${encodeURIComponent(key)}`;
}

function parsePageToken(token: string): string {
  const refuse = (): never => {
    throw new InvalidInputError([
      { field: 'page_token', message: 'is not one this server made; pass next_page_token of the last page unchanged' },
    ]);
  };
  if (!token.startsWith(TOKEN_PREFIX)) return refuse();
  try {
    return decodeURIComponent(token.slice(TOKEN_PREFIX.length));
  } catch {
    return refuse();
  }
}
