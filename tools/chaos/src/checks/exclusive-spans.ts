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

/**
 * Describes how a replica was replaced, such as `after the separation, only-1 ended at 12.3 s, only-2
 * began at 26.0 s`.
 * @param spans - In the order of the starts.
 * @param fromMs - Time at which the replica was separated from the cluster, Unix milliseconds.
 */
export function describeHandover(spans: readonly Span[], id: string, fromMs: number): string {
  const index = spans.findIndex((span) => span.id === id);
  const [span, next] = [spans[index], spans[index + 1]];
  const toText = (atMs: number): string => `${((atMs - fromMs) / 1_000).toFixed(1)} s`;
  const begin = next === undefined ? 'none began' : `${next.id} began at ${toText(next.fromMs)}`;
  return `after the separation, ${id} ended at ${toText(span?.toMs ?? Number.NaN)}, ${begin}`;
}
