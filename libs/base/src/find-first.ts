/**
 * Returns the index of the first item that meets a condition, or the length of the list, by binary
 * search.
 * @param items - Ordered so that all items after the first such item meet the condition too.
 */
export function findFirst<Item>(items: readonly Item[], meets: (item: Item) => boolean): number {
  let low = 0;
  let high = items.length;
  while (low < high) {
    const middle = (low + high) >>> 1;
    if (meets(items[middle] as Item)) high = middle;
    else low = middle + 1;
  }
  return low;
}
