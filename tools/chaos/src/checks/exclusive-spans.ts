/** Time in which a replica ran, by its own heartbeats, milliseconds of the wall clock. */
export interface Span {
  readonly id: string;
  readonly fromMs: number;
  readonly toMs: number;
}

/**
 * Reads heartbeats.
 * @param text - Lines `<replica id> <milliseconds>`; an incomplete last line is skipped.
 * @returns One span for each replica, in the order of the starts.
 */
export function readSpans(text: string): readonly Span[] {
  const spans = new Map<string, Span>();
  for (const line of text.split('\n').slice(0, -1)) {
    const [id = '', at = ''] = line.split(' ');
    const atMs = Number(at);
    const { fromMs, toMs } = spans.get(id) ?? { fromMs: atMs, toMs: atMs };
    spans.set(id, { id, fromMs: Math.min(fromMs, atMs), toMs: Math.max(toMs, atMs) });
  }
  return [...spans.values()].sort((a, b) => a.fromMs - b.fromMs);
}

/** Returns a text for each pair of replicas that ran at the same time. */
export function findOverlaps(spans: readonly Span[]): readonly string[] {
  return spans.flatMap((span, index) =>
    spans
      .slice(0, index)
      .filter(({ toMs }) => toMs >= span.fromMs)
      .map(({ id, toMs }) => `${id} and ${span.id} ran together for ${toMs - span.fromMs} ms`),
  );
}
