/** Lines that follow another line than their predecessor. */
export interface LineFaults {
  /** Lines that never arrived. */
  readonly missing: number;
  /** Lines that arrived again, or after a later line. */
  readonly repeated: number;
  /** The first fault, such as `12 after 9`; empty when there is none. */
  readonly first: string;
}

/**
 * Checks the numbers of a log whose program writes 1, 2, 3, …
 * @param numbers - In the order of arrival. The first number may be any.
 */
export function findLineFaults(numbers: readonly number[]): LineFaults {
  let [missing, repeated, first] = [0, 0, ''];
  let highest = numbers[0] ?? 0;
  for (const number of numbers.slice(1)) {
    if (number === highest + 1) highest = number;
    else {
      if (first === '') first = `${number} after ${highest}`;
      if (number <= highest) repeated += 1;
      else {
        missing += number - highest - 1;
        highest = number;
      }
    }
  }
  return { missing, repeated, first };
}
