/** A request of the traffic client, after its end. */
export interface TrafficRequest {
  /** `new`: over a connection of its own; `kept`: over a connection that is used again. */
  readonly kind: 'new' | 'kept';
  /** Time of the wall clock, milliseconds. */
  readonly sentAtMs: number;
  /** Time until the answer or the failure, with the repetition, milliseconds. */
  readonly tookMs: number;
  /** Version and id of the replica that answered; empty after a failure. */
  readonly version: string;
  readonly replica: string;
  /** Replica that answered before on the same connection; empty when unknown. */
  readonly before: string;
  /** Reason for which a used connection broke before any answer; the request was repeated then. */
  readonly broken: string;
  /** Reason of the failure; empty when the request was answered. */
  readonly reason: string;
}

/** Failures of clients that an event allows. */
export interface Allowance {
  /** Time of the fault that breaks connections, milliseconds; absent: no request may fail. */
  readonly brokenAtMs?: number;
  /**
   * Returns true when the event ends the connections of this replica. Default: those of all.
   * Judged where the replica is known: on kept connections.
   */
  readonly endsReplica?: (replicaId: string) => boolean;
}

/** Counts of an event, and what is wrong. */
export interface Verdict {
  readonly requests: number;
  /** Requests without an answer. */
  readonly failedNew: number;
  readonly failedKept: number;
  /** Requests that were answered after a repetition, because a used connection was closed. */
  readonly repeated: number;
  /** Requests that the client did not send, because it still waited for earlier ones. */
  readonly notSent: number;
  /** Answers that took more than a second. */
  readonly slow: number;
  /** Time from the fault until the newest request was sent that failed, milliseconds. */
  readonly recoveredMs: number | undefined;
  readonly p99Ms: number;
  readonly slowestMs: number;
  readonly violations: readonly string[];
}

/** An answer that takes longer is slow, milliseconds. */
const SLOW_MS = 1_000;
/** Time after a fault in which requests must succeed again, milliseconds. */
const RECOVERED_WITHIN_MS = 1_000;
/** Reason of requests that the client did not send. */
const NOT_SENT = 'not sent';
/** Reasons of failures that are printed. */
const SHOWN = 5;

/**
 * Compares the requests of an event with what the event allows.
 * @param planned - Requests that were due, also those that the client did not send.
 * @param isTimed - True: an answer that takes more than a second counts as missing until then, and a
 *   request that was not sent as failed; for a machine that does nothing else.
 */
export function judge(
  planned: readonly TrafficRequest[],
  allowed: Allowance,
  isTimed: boolean,
): Verdict {
  // A request was not sent because the client waited for an earlier request, which is judged.
  const requests = isTimed ? planned : planned.filter(({ reason }) => reason !== NOT_SENT);
  const failed = requests.filter(({ reason }) => reason !== '');
  const took = requests.map(({ tookMs }) => tookMs).sort((a, b) => a - b);
  const { brokenAtMs } = allowed;
  const slow = requests.filter(({ reason, tookMs }) => reason === '' && tookMs > SLOW_MS);
  const bad = isTimed ? [...failed, ...slow] : failed;
  const lastBadMs = Math.max(...bad.map(({ sentAtMs }) => sentAtMs));
  const recoveredMs =
    brokenAtMs === undefined || bad.length === 0 ? undefined : lastBadMs - brokenAtMs;
  return {
    requests: requests.length,
    failedNew: failed.filter(({ kind }) => kind === 'new').length,
    failedKept: failed.filter(({ kind }) => kind === 'kept').length,
    repeated: requests.filter(({ broken, reason }) => broken !== '' && reason === '').length,
    recoveredMs: recoveredMs === undefined ? undefined : Math.max(0, recoveredMs),
    notSent: planned.filter(({ reason }) => reason === NOT_SENT).length,
    slow: slow.length,
    p99Ms: took[Math.floor(took.length * 0.99)] ?? 0,
    slowestMs: took.at(-1) ?? 0,
    violations: findViolations(requests, bad, allowed),
  };
}

function findViolations(
  requests: readonly TrafficRequest[],
  bad: readonly TrafficRequest[],
  { brokenAtMs, endsReplica = () => true }: Allowance,
): readonly string[] {
  if (requests.length === 0) return ['the client sent no request'];
  const ofOthers = requests.filter(
    ({ kind, before, broken, reason }) =>
      kind === 'kept' && before !== '' && broken + reason !== '' && !endsReplica(before),
  );
  const onOthers = describe(
    ofOthers,
    'on a connection to a replica that was not hit',
    brokenAtMs ?? 0,
  );
  if (brokenAtMs === undefined) return [...describe(bad, 'without a reason', 0), ...onOthers];
  const isEarly = ({ sentAtMs, tookMs }: TrafficRequest): boolean => sentAtMs + tookMs < brokenAtMs;
  const isLate = ({ sentAtMs }: TrafficRequest): boolean =>
    sentAtMs > brokenAtMs + RECOVERED_WITHIN_MS;
  return [
    ...describe(bad.filter(isEarly), 'before the fault', brokenAtMs),
    ...describe(bad.filter(isLate), 'more than 1 s after the fault', brokenAtMs),
    ...onOthers,
  ];
}

/** Returns one text for the requests; none when there are none. */
function describe(
  requests: readonly TrafficRequest[],
  what: string,
  fromMs: number,
): readonly string[] {
  if (requests.length === 0) return [];
  const first = fromMs === 0 ? (requests[0]?.sentAtMs ?? 0) : fromMs;
  const examples = requests.slice(0, SHOWN).map(({ kind, sentAtMs, tookMs, reason, broken }) => {
    const text = reason || broken || 'slow';
    return `${kind} at ${Math.round(sentAtMs - first)} ms: ${text} after ${Math.round(tookMs)} ms`;
  });
  return [`${requests.length} requests failed or were slow ${what}: ${examples.join('; ')}`];
}

/**
 * Returns the percentage of answers that come from a version, among the answered requests over new
 * connections that were sent in a period.
 */
export function measurePercent(
  requests: readonly TrafficRequest[],
  version: string,
  fromMs: number,
  toMs: number,
): number {
  const answered = requests.filter(
    ({ kind, sentAtMs, reason }) =>
      kind === 'new' && reason === '' && sentAtMs >= fromMs && sentAtMs < toMs,
  );
  const own = answered.filter((each) => each.version === version).length;
  return (100 * own) / Math.max(1, answered.length);
}
