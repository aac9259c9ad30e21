/**
 * Creates a search for secret texts that have leaked, in plain text, base64 or hex.
 * @param texts - The secret texts, at least 12 characters each. Read at each search, so that texts
 *   may be added.
 */
export function createLeakSearch(
  texts: Iterable<string>,
): (haystack: Uint8Array | string) => boolean {
  return (haystack) => {
    const buffer = Buffer.from(haystack as Uint8Array);
    return [...texts].some((text) => listForms(text).some((form) => buffer.includes(form)));
  };
}

function listForms(text: string): readonly string[] {
  // Base64 of a text depends on its offset: the middle of each of the three forms is the same.
  const base64s = [0, 1, 2].flatMap((pad) => {
    const padded = Buffer.from(' '.repeat(pad) + text);
    return [padded.toString('base64'), padded.toString('base64url')].map((form) =>
      form.slice(4, -4),
    );
  });
  return [text, Buffer.from(text).toString('hex'), ...base64s];
}
