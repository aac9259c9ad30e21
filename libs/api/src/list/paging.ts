import { InvalidInputError } from '@cloudless/base';
import { DEFAULTS } from '../spec/defaults.js';

/** One page of a list. */
export interface Page<Item> {
  readonly items: readonly Item[];
  /** Empty on the last page. */
  readonly nextPageToken: string;
}

/** Identifies a list. */
export interface PagedList {
  /** Name, filter and order of the list. A page token is valid only for the same values. */
  readonly filter: readonly (string | boolean)[];
  /** Order of two keys. Default: ascending by code unit. */
  readonly compare?: (a: string, b: string) => number;
}

/**
 * Returns one page of items that are sorted by a key. A page token contains the last key of its
 * page, so concurrent changes neither repeat nor skip items that stay, and any server can read the
 * token.
 * @param sorted - All items, in the order that `compare` gives to their keys, without duplicate
 *   keys.
 * @param request - `pageSize`: 0 to 1000, 0 means 100.
 * @throws {@link InvalidInputError} for a page size out of range, and for a token that this API did
 *   not make or that belongs to a list with another filter.
 * @example
 * ```ts
 * const { items, nextPageToken } = paginate(nodes, ({ id }) => id, request, { filter: ['nodes'] });
 * ```
 */
export function paginate<Item>(
  sorted: readonly Item[],
  keyOf: (item: Item) => string,
  request: { readonly pageSize: number; readonly pageToken: string },
  { filter, compare = (a, b) => (a < b ? -1 : a > b ? 1 : 0) }: PagedList,
): Page<Item> {
  const size = resolvePageSize(request.pageSize);
  const scope = hashText(JSON.stringify(filter));
  const after = request.pageToken === '' ? undefined : parsePageToken(request.pageToken, scope);
  const start = after === undefined ? 0 : findFirstAfter(sorted, keyOf, after, compare);
  const items = sorted.slice(start, start + size);
  const last = items.at(-1);
  const more = last !== undefined && start + size < sorted.length;
  return { items, nextPageToken: more ? toPageToken(scope, keyOf(last)) : '' };
}

function resolvePageSize(asked: number): number {
  if (!Number.isInteger(asked) || asked < 0 || asked > DEFAULTS.maxPageSize) {
    throw new InvalidInputError([
      { field: 'page_size', message: `must be from 0 to ${DEFAULTS.maxPageSize}` },
    ]);
  }
  return asked === 0 ? DEFAULTS.pageSize : asked;
}

function findFirstAfter<Item>(
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

/** Version of the token format. The filter hash follows. */
const TOKEN_PREFIX = 'p2';

function toPageToken(scope: string, key: string): string {
  return `${TOKEN_PREFIX}.${scope}.${encodeURIComponent(key)}`;
}

function parsePageToken(token: string, scope: string): string {
  const refuse = (message: string): never => {
    throw new InvalidInputError([{ field: 'page_token', message }]);
  };
  const unknown =
    'is not a token of this server; pass next_page_token of the previous page unchanged';
  const [, given, text] = /^p2\.([0-9a-f]{16})\.(.*)$/s.exec(token) ?? refuse(unknown);
  const key = tryDecode(text ?? '') ?? refuse(unknown);
  if (given !== scope)
    return refuse(
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
