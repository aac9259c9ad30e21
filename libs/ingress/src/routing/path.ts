const UNRESERVED = /^[A-Za-z0-9._~-]$/;

/**
 * Returns a path in the spelling in which prefixes are compared: without the query, and with those
 * characters decoded that never need an encoding, so that "/%61dmin" is "/admin".
 * @returns Undefined for a path that may mean another one to the endpoint: a malformed encoding, or
 *   a segment "." or "..", also encoded or behind a backslash.
 * @see RFC 3986, sections 3.3 and 6.2.2.2
 */
export function normalisePath(target: string): string | undefined {
  const [raw = ''] = target.split('?', 1);
  if (!raw.startsWith('/') || /%(?![0-9a-fA-F]{2})|[#\s]/.test(raw)) return undefined;
  const path = raw.replace(/%[0-9a-fA-F]{2}/g, (encoded) => {
    const decoded = String.fromCharCode(parseInt(encoded.slice(1), 16));
    return UNRESERVED.test(decoded) ? decoded : encoded.toUpperCase();
  });
  return /(?:^|\/|\\|%2F|%5C)\.{1,2}(?:$|\/|\\|;|%2F|%5C)/.test(path) ? undefined : path;
}

/** Returns true when a path is the prefix itself or below it, by whole segments. */
export function isBelow(path: string, prefix: string): boolean {
  const stem = prefix.endsWith('/') ? prefix.slice(0, -1) : prefix;
  return path === stem || path.startsWith(`${stem}/`);
}
