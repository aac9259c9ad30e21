/** Hash of a text, 32 bits (FNV-1a with the finaliser of MurmurHash3). */
export function hashText(text: string): number {
  let hash = 0x811c9dc5;
  for (let index = 0; index < text.length; index += 1) {
    hash = Math.imul(hash ^ text.charCodeAt(index), 0x01000193);
  }
  return mix(hash);
}

/** Hash of two hashes as a number in (0, 1). */
export function hashPair(left: number, right: number): number {
  return (mix(Math.imul(left, 0x9e3779b1) ^ right) + 0.5) / 0x1_0000_0000;
}

/** Finaliser of MurmurHash3: every bit of the input changes half of the bits of the result. */
function mix(value: number): number {
  let hash = value ^ (value >>> 16);
  hash = Math.imul(hash, 0x85ebca6b);
  hash ^= hash >>> 13;
  hash = Math.imul(hash, 0xc2b2ae35);
  return (hash ^ (hash >>> 16)) >>> 0;
}

/**
 * Chooses by weighted rendezvous hashing: an item that joins or leaves moves only the keys it gets
 * or had, and an item of weight w gets keys in proportion to w. No tables, so that all proxies
 * choose alike from the same set.
 * @see Thaler, Ravishankar, "Using name-based mappings to increase hit rates", 1998; Schindelhauer,
 *   Schomaker, "Weighted distributed hash tables", 2005
 */
export function chooseByHash<Item extends { readonly hash: number; readonly weight: number }>(
  items: readonly Item[],
  key: number,
): Item | undefined {
  let best: Item | undefined;
  let bestScore = Infinity;
  for (const item of items) {
    const score = -Math.log(hashPair(key, item.hash)) / item.weight;
    if (score < bestScore) {
      best = item;
      bestScore = score;
    }
  }
  return best;
}
