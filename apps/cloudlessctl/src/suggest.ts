/**
 * Returns the candidate most similar to `word`; undefined when none is similar enough. Case,
 * hyphens and underscores do not count as differences.
 */
export function findSimilar(word: string, candidates: Iterable<string>): string | undefined {
  let best: string | undefined;
  let bestDistance = Math.max(1, Math.floor(word.length * MAX_DIFFERENCE)) + 1;
  const simplified = simplify(word);
  for (const candidate of candidates) {
    const distance = editDistance(simplified, simplify(candidate), bestDistance);
    if (distance < bestDistance) {
      best = candidate;
      bestDistance = distance;
    }
  }
  return best;
}

/**
 * Returns the end of an error message: `; did you mean x?`, or an empty text without a similar
 * candidate.
 */
export function suggestSimilar(word: string, candidates: Iterable<string>): string {
  const found = findSimilar(word, candidates);
  return found === undefined ? '' : `; did you mean ${found}?`;
}

/**
 * Returns the end of an error message about an unknown key: the most similar known key, or else all
 * known keys when they are few.
 * @param help - Names the command that lists the known keys, when they are many.
 */
export function suggestKnown(word: string, known: Iterable<string>, help: string): string {
  const names = [...known];
  const similar = suggestSimilar(word, names);
  if (similar !== '') return similar;
  return names.length <= MAX_LISTED ? `; known: ${names.join(', ')}` : `; ${help}`;
}

/** Largest number of known keys in a message. */
const MAX_LISTED = 12;

/** Maximum share of the letters that may differ. One letter may always differ. */
const MAX_DIFFERENCE = 0.4;

function simplify(word: string): string {
  return word.toLowerCase().replaceAll(/[_-]/g, '');
}

/**
 * Damerau-Levenshtein distance (insertions, deletions, replacements and swaps of neighbours),
 * bounded by `limit`. Keeps only the last three rows of the distance matrix.
 */
function editDistance(a: string, b: string, limit: number): number {
  if (Math.abs(a.length - b.length) >= limit) return limit;
  let beforePrevious: number[] = [];
  let previous = Array.from({ length: b.length + 1 }, (_, column) => column);
  for (let row = 1; row <= a.length; row += 1) {
    const current = [row];
    for (let column = 1; column <= b.length; column += 1) {
      const isSame = a[row - 1] === b[column - 1];
      let cost = Math.min(
        valueAt(previous, column) + 1,
        valueAt(current, column - 1) + 1,
        valueAt(previous, column - 1) + (isSame ? 0 : 1),
      );
      if (row > 1 && column > 1 && a[row - 1] === b[column - 2] && a[row - 2] === b[column - 1]) {
        cost = Math.min(cost, valueAt(beforePrevious, column - 2) + 1);
      }
      current.push(cost);
    }
    beforePrevious = previous;
    previous = current;
  }
  return Math.min(limit, valueAt(previous, b.length));
}

function valueAt(row: readonly number[], column: number): number {
  return row[column] ?? Number.MAX_SAFE_INTEGER;
}
