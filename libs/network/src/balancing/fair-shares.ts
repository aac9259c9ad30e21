/**
 * Something that is chosen in turn, in proportion to a weight. `turn` is the virtual time of the
 * next choice; each choice adds `1 / weight`, and the smallest turn is next. Over N choices among
 * items that stay, an item with weight w of a sum W is chosen N * w / W times, with a difference of
 * at most 1 + n * w / W for n items.
 */
export interface FairItem {
  weight: number;
  turn: number;
}

/** Takes the item whose turn is next. `items` must not be empty; weights must be above 0. */
export function takeNext<Item extends FairItem>(items: readonly Item[]): Item | undefined {
  let next: Item | undefined;
  for (const item of items) if (next === undefined || item.turn < next.turn) next = item;
  if (next !== undefined) next.turn += 1 / next.weight;
  return next;
}

/**
 * Prepares items for {@link takeNext} after a change of the set: an item that was away neither
 * catches up on the choices it missed nor waits longer than one of its turns.
 * @param present - Items that were in the set before.
 * @param joining - Items that were not.
 * @param spread - Number in [0, 1): which part of its turn a joining item waits, so that proxies
 *   that learn of an endpoint at the same time do not all choose the same endpoint first.
 */
export function joinTurns(
  present: readonly FairItem[],
  joining: readonly FairItem[],
  spread: () => number,
): void {
  let base = Infinity;
  for (const { turn } of present) base = Math.min(base, turn);
  if (base === Infinity) base = 0;
  for (const item of joining) item.turn = base + spread() / item.weight;
}

/** Changes the weight of an item and, in proportion, the rest of its wait. */
export function changeWeight(item: FairItem, weight: number, nextTurn: number): void {
  const waiting = Math.max(0, item.turn - nextTurn);
  item.turn = nextTurn + (waiting * item.weight) / weight;
  item.weight = weight;
}
