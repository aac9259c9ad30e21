import { InvalidInputError } from '@cloudless/base';
import { DEFAULTS } from './defaults.js';

/** One page of a list. */
export interface Page<Item> {
  readonly items: readonly Item[];
  /** Empty on the last page. */
  readonly nextPageToken: string;
}

/** Which list is paged through. */
export interface PagedList {
  /**
   * What selects and orders the items, and the name of the list: a token is good for the same only.
   */
  readonly filter: readonly (string | boolean)[];
  /** Order of two keys; default ascending by code unit. */
  readonly compare?: (a: string, b: string) => number;
}

/**
 * Cuts one page out of items that are sorted by a key. A token names the last key it showed, so
 * concurrent changes neither repeat nor skip what stays, and any server understands it.
 * @param sorted - All items, in the order that `compare` gives to their keys; no key twice.
 * @param request - `pageSize`: 0 to 1000, 0 means 100.
 * @throws {@link InvalidInputError} for a token that no list of this API made, or one with another
 *   filter, or another page size.
 */
export function pageOf<Item>(
  sorted: readonly Item[],
  keyOf: (item: Item) => string,
  request: { readonly pageSize: number; readonly pageToken: string },
  { filter, compare = (a, b) => (a < b ? -1 : a > b ? 1 : 0) }: PagedList,
): Page<Item> {
  const size = pageSizeOf(request.pageSize);
  const scope = hashOf(JSON.stringify(filter));
  const after = request.pageToken === '' ? undefined : parsePageToken(request.pageToken, scope);
  const start = after === undefined ? 0 : firstAfter(sorted, keyOf, after, compare);
  const items = sorted.slice(start, start + size);
  const last = items.at(-1);
  const more = last !== undefined && start + size < sorted.length;
  return { items, nextPageToken: more ? toPageToken(scope, keyOf(last)) : '' };
}

function pageSizeOf(asked: number): number {
  if (!Number.isInteger(asked) || asked < 0 || asked > DEFAULTS.maxPageSize) {
    throw new InvalidInputError([
      { field: 'page_size', message: `must be from 0 to ${DEFAULTS.maxPageSize}` },
    ]);
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

/** Of the second form: it begins with a mark of the filter. */
const TOKEN_PREFIX = 'p2';

function toPageToken(scope: string, key: string): string {
  return `${TOKEN_PREFIX}.${scope}.${encodeURIComponent(key)}`;
}

function parsePageToken(token: string, scope: string): string {
  const refuse = (message: string): never => {
    throw new InvalidInputError([{ field: 'page_token', message }]);
  };
  const unknown = 'is not one this server made; pass next_page_token of the last page unchanged';
  const [, given, text] = /^p2\.([0-9a-f]{16})\.(.*)$/s.exec(token) ?? refuse(unknown);
  const key = decoded(text ?? '') ?? refuse(unknown);
  if (given !== scope)
    return refuse(
      'is of a list with another filter; repeat the filter of the first page, or begin without a token',
    );
  return key;
}

function decoded(text: string): string | undefined {
  try {
    return decodeURIComponent(text);
  } catch {
    return undefined;
  }
}

/** FNV-1a of 64 bits over code units: tells filters apart that were not made to collide. */
function hashOf(text: string): string {
  let hash = 0xcbf29ce484222325n;
  for (let index = 0; index < text.length; index += 1) {
    hash = BigInt.asUintN(64, (hash ^ BigInt(text.charCodeAt(index))) * 0x100000001b3n);
  }
  return hash.toString(16).padStart(16, '0');
}
