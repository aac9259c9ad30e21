/** Largest number of characters of a refused text that a message repeats. */
const MAX_QUOTED_LENGTH = 100;

/** Returns a text from outside in quotes for a message, shortened to 100 characters. */
export function quote(text: string): string {
  return JSON.stringify(
    text.length > MAX_QUOTED_LENGTH ? `${text.slice(0, MAX_QUOTED_LENGTH)}...` : text,
  );
}
