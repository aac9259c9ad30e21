import { create, type DescMethod } from '@bufbuild/protobuf';
import { timestampFromMs } from '@bufbuild/protobuf/wkt';
import {
  RefusedCallSchema,
  formatCode,
  parseTraceId,
  toCode,
  toReasonEnum,
  type RefusedCall,
} from '@cloudless/api';
import {
  CloudlessError,
  Throttle,
  errorFields,
  type Clock,
  type Counter,
  type Log,
  type Meter,
} from '@cloudless/base';
import type { ClusterState } from '@cloudless/cluster-state';
import { RefusedCallError, type RefusalCause } from './refusal.js';
import { recordRefusedCalls } from './refused-calls.js';

/**
 * Refusals with the same cause and principal that get one record each; later refusals are merged
 * into at most one record every {@link MERGE_MS}. Anybody can send calls that are refused, so
 * neither the addresses nor the requests of refused clients may multiply the records.
 */
const BURST = 20;
const MERGE_MS = 10_000;

/** Lets the leader record a call that this coordinator has refused while it follows. */
export type ReportRefusal = (call: RefusedCall) => Promise<void>;

/** Counts refused calls, and records them in the audit log. */
export class RefusalLog {
  private readonly throttle: Throttle;
  private readonly counter: Counter;
  private readonly unrecorded: Counter;

  constructor(
    private readonly deps: {
      readonly state: ClusterState;
      readonly clock: Clock;
      readonly log: Log;
      readonly meter: Meter;
      readonly reportRefusal?: ReportRefusal | undefined;
    },
  ) {
    this.throttle = new Throttle({ clock: deps.clock, burst: BURST, everyMs: MERGE_MS });
    this.counter = deps.meter.counter({
      name: 'cloudless_calls_refused_total',
      help: 'Calls that were refused before their request was read, by cause: a missing or invalid credential, or a missing role.',
      labels: ['cause'],
    });
    this.unrecorded = deps.meter.counter({
      name: 'cloudless_refused_calls_unrecorded_total',
      help: 'Refused calls without an audit record, because no leader or no store was reached in time, or too many records waited.',
    });
  }

  /**
   * Records a refused call. The audit record is written in the background, because a refused client
   * must not cost more than the refusal.
   */
  record(method: DescMethod, address: string, header: Headers, reason: unknown): void {
    if (!(reason instanceof CloudlessError) || reason.kind === 'internal') return;
    const { refused, refusalCause: cause } = toRefusal(reason);
    this.counter.add(1, { cause });
    const principal = refused.principal ?? 'unauthenticated';
    const throttled = this.throttle.take(`${cause} ${principal}`);
    if (!throttled.passes) return;
    const { suppressed } = throttled;
    const { log } = this.deps;
    const call = create(RefusedCallSchema, {
      audit: {
        rpc: `${method.parent.typeName}/${method.name}`,
        address,
        traceId: parseTraceId(header),
        principal,
        credentialId: refused.credentialId ?? '',
        cause,
        result: formatCode(toCode(reason.kind)),
      },
      errorReason: toReasonEnum(reason.reason),
      ...(suppressed === undefined
        ? {}
        : { count: suppressed.count + 1, firstTime: timestampFromMs(suppressed.sinceMs) }),
    });
    this.write(call).catch((failure: unknown) => {
      this.unrecorded.add(1 + (suppressed?.count ?? 0));
      // The log is then the only trace of the refusal.
      log.warn('refused call not recorded', {
        ...{ rpc: method.name, cause, principal, address },
        ...errorFields(failure),
      });
    });
  }

  /** A coordinator that follows cannot commit: it leaves the record to the leader. */
  private async write(call: RefusedCall): Promise<void> {
    const { state, reportRefusal } = this.deps;
    if (!state.isLeading && reportRefusal !== undefined) return reportRefusal(call);
    await recordRefusedCalls(state, [call]);
  }
}

function toRefusal(reason: CloudlessError): {
  readonly refusalCause: RefusalCause;
  readonly refused: RefusedCallError['refused'];
} {
  if (reason instanceof RefusedCallError) return reason;
  if (reason.kind === 'invalid') return { refusalCause: 'token beside a certificate', refused: {} };
  const principal = reason.metadata?.['principal'];
  return { refusalCause: 'missing role', refused: principal === undefined ? {} : { principal } };
}
