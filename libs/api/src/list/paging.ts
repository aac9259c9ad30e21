import { InvalidInputError } from '@cloudless/base';
import { DEFAULTS } from '../spec/defaults.js';

/** One page of a list, with the token of the next page. */
export interface Page<Item> {
  readonly items: readonly Item[];
  /** Empty on the last page. */
  readonly nextPageToken: string;
}

/** The list to which a page token belongs. */
export interface PagedList {
  /**
   * Name of the list, values of its filter, and order. A page token is valid only for a list with
   * the same values.
   */
  readonly filter: readonly (string | boolean)[];
  /** Order of two keys. Default: ascending by code unit. */
  readonly compare?: (a: string, b: string) => number;
  /**
   * Most items that one page examines. A page that reaches the limit ends there, with fewer items
   * than asked for. Default: no limit.
   */
  readonly maxExamined?: number;
}

/**
 * Returns one page of items that are sorted by a key. A page token contains the key of the last
 * item of its page. Items that are added or removed between two pages therefore neither repeat nor
 * skip other items, and any server can continue the list.
 * @param sorted - All items, in the order that `compare` gives to their keys, without duplicate
 *   keys.
 * @param getKey - Returns the key of an item.
 * @param request - `pageSize`: 0 to 1000, 0 means 100. `pageToken`: empty for the first page.
 * @throws {@link InvalidInputError} for a page size out of range, and for a token that this API did
 *   not make or that belongs to a list with another filter.
 * @example
 * ```ts
 * const { items, nextPageToken } = paginate(nodes, ({ id }) => id, request, { filter: ['nodes'] });
 * ```
 */
export function paginate<Item>(
  sorted: readonly Item[],
  getKey: (item: Item) => string,
  request: { readonly pageSize: number; readonly pageToken: string },
  list: PagedList,
): Page<Item> {
  return paginateIndex(
    (after) => iterateAfter(sorted, getKey, after, list.compare),
    getKey,
    request,
    list,
  );
}

/**
 * Returns one page of a list that is read from a sorted index. Reads only the items of the page, the
 * items in between that do not match, and the items until the next match, which decides whether there
 * is another page. The pages are those of {@link paginate} for the matching items.
 * @param listAfter - Lists the items after a key, or all items without a key, in the order of the
 *   list. May contain items that do not match.
 * @param matches - Returns true for items that belong to the list. Default: all.
 * @throws the errors of {@link paginate}.
 */
export function paginateIndex<Item>(
  listAfter: (after: string | undefined) => Iterable<Item>,
  getKey: (item: Item) => string,
  request: { readonly pageSize: number; readonly pageToken: string },
  { filter, maxExamined = Infinity }: Pick<PagedList, 'filter' | 'maxExamined'>,
  matches: (item: Item) => boolean = () => true,
): Page<Item> {
  const size = resolvePageSize(request.pageSize);
  const scope = hashText(JSON.stringify(filter));
  const after = request.pageToken === '' ? undefined : parsePageToken(request.pageToken, scope);
  const items: Item[] = [];
  let examined = 0;
  let before: Item | undefined;
  for (const item of listAfter(after)) {
    if (examined === maxExamined && before !== undefined)
      return { items, nextPageToken: toPageToken(scope, getKey(before)) };
    examined += 1;
    before = item;
    if (!matches(item)) continue;
    const last = items.at(-1);
    if (items.length === size && last !== undefined)
      return { items, nextPageToken: toPageToken(scope, getKey(last)) };
    items.push(item);
  }
  return { items, nextPageToken: '' };
}

const compareAscending = (a: string, b: string): number => (a < b ? -1 : a > b ? 1 : 0);

/**
 * Iterates over the items of a sorted array whose key is after a key, found by binary search.
 * @param after - Undefined: all items.
 * @param compare - Order of two keys in the array. Default: ascending by code unit.
 */
export function* iterateAfter<Item>(
  sorted: readonly Item[],
  getKey: (item: Item) => string,
  after: string | undefined,
  compare: (a: string, b: string) => number = compareAscending,
): Generator<Item, void> {
  let index = after === undefined ? 0 : findFirstAfter(sorted, getKey, after, compare);
  for (; index < sorted.length; index += 1) yield sorted[index] as Item;
}

/**
 * Iterates backwards over the items of an array that is sorted by ascending keys.
 * @param before - Only items with a key below this one. Undefined: all items.
 */
export function* iterateBefore<Item>(
  sorted: readonly Item[],
  getKey: (item: Item) => string,
  before: string | undefined,
): Generator<Item, void> {
  let index = sorted.length;
  if (before !== undefined) {
    const first = findFirstAfter(sorted, getKey, before, compareAscending);
    const previous = sorted[first - 1];
    index = previous !== undefined && getKey(previous) === before ? first - 1 : first;
  }
  for (index -= 1; index >= 0; index -= 1) yield sorted[index] as Item;
}

function resolvePageSize(requested: number): number {
  if (!Number.isInteger(requested) || requested < 0 || requested > DEFAULTS.maxPageSize) {
    throw new InvalidInputError([
      { field: 'page_size', message: `must be from 0 to ${DEFAULTS.maxPageSize}` },
    ]);
  }
  return requested === 0 ? DEFAULTS.pageSize : requested;
}

/** Returns the index of the first item whose key is after `after`, by binary search. */
function findFirstAfter<Item>(
  sorted: readonly Item[],
  getKey: (item: Item) => string,
  after: string,
  compare: (a: string, b: string) => number,
): number {
  let low = 0;
  let high = sorted.length;
  while (low < high) {
    const middle = (low + high) >>> 1;
    const item = sorted[middle];
    if (item !== undefined && compare(getKey(item), after) <= 0) low = middle + 1;
    else high = middle;
  }
  return low;
}

/** Begin of each token: the version of its format. The hash of the filter and the key follow. */
const TOKEN_PREFIX = 'p2';

function toPageToken(scope: string, key: string): string {
  return `${TOKEN_PREFIX}.${scope}.${encodeURIComponent(key)}`;
}

/**
 * Returns the key in a page token.
 * @throws {@link InvalidInputError} for a malformed token, or one of another list.
 */
function parsePageToken(token: string, scope: string): string {
  const reject = (message: string): never => {
    throw new InvalidInputError([{ field: 'page_token', message }]);
  };
  const unknown =
    'is not a token of this server; pass next_page_token of the previous page unchanged';
  const [, tokenScope, text] = /^p2\.([0-9a-f]{16})\.(.*)$/s.exec(token) ?? reject(unknown);
  const key = tryDecode(text ?? '') ?? reject(unknown);
  if (tokenScope !== scope)
    return reject(
      'belongs to a list with another filter; repeat the filter of the first page, or start without a token',
    );
  return key;
}

function tryDecode(text: string): string | undefined {
  try {
    return decodeURIComponent(text);
  } catch {
    return undefined;
  }
}

/** FNV-1a of 64 bits over code units. Not safe against deliberate collisions. */
function hashText(text: string): string {
  let hash = 0xcbf29ce484222325n;
  for (let index = 0; index < text.length; index += 1) {
    hash = BigInt.asUintN(64, (hash ^ BigInt(text.charCodeAt(index))) * 0x100000001b3n);
  }
  return hash.toString(16).padStart(16, '0');
}
