/** Returns a part of the cluster that must exist. */
export function requireItem<Item>(item: Item | undefined): Item {
  if (item === undefined) throw new Error('a part of the cluster is missing');
  return item;
}
