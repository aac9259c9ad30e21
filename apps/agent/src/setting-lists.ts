/** Key of a label, and name of a custom resource. */
export const LABEL_KEY = /^[A-Za-z0-9]([A-Za-z0-9._/-]{0,251}[A-Za-z0-9])?$/;

/** Splits a list or a comma-separated text; undefined for other values. */
export function parseList(raw: unknown): readonly string[] | undefined {
  if (typeof raw === 'string')
    return raw
      .split(',')
      .map((part) => part.trim())
      .filter((part) => part !== '');
  if (!Array.isArray(raw)) return undefined;
  const parts = raw.map((part: unknown) =>
    typeof part === 'string' ? parseList(part) : undefined,
  );
  return parts.includes(undefined) ? undefined : parts.flatMap((part) => part ?? []);
}

/** Splits pairs such as `disk=ssd` into keys and values; undefined when a part has no "=". */
export function parsePairs(raw: unknown): readonly (readonly [string, string])[] | undefined {
  if (typeof raw === 'object' && raw !== null && !Array.isArray(raw)) {
    return Object.entries(raw).map(([key, value]) => [key, String(value)] as const);
  }
  const parts = parseList(raw);
  if (parts === undefined || parts.some((part) => !part.includes('='))) return undefined;
  return parts.map(
    (part) => [part.slice(0, part.indexOf('=')), part.slice(part.indexOf('=') + 1)] as const,
  );
}
