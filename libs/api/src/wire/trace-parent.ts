/** Value of the `traceparent` header (W3C Trace Context, section 3.2). */
const TRACE_PARENT =
  /^(?!ff)[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}(?:-|$)/;

/** Returns the trace id of a call, 32 hex digits; empty without a valid `traceparent` header. */
export function parseTraceId(header: { get(name: string): string | null }): string {
  return TRACE_PARENT.exec(header.get('traceparent') ?? '')?.[1] ?? '';
}
