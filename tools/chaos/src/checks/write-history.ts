import {
  checkLinearizable,
  type RecordedCall,
  type SequentialModel,
} from '@cloudless/state-store/linearizability';

/** A call of a client about one workload. */
export interface WorkloadCall {
  readonly call: 'create' | 'update' | 'delete' | 'read';
  readonly workload: string;
  /** The value that a creation or an update sets; empty for the other calls. */
  readonly value: string;
}

/** The answer to a call. */
export type WorkloadAnswer =
  | {
      readonly kind: 'shown';
      readonly uid: string;
      readonly generation: bigint;
      readonly value: string;
    }
  | { readonly kind: 'notFound' };

/** A call with its times and its answer; without an answer the outcome is unknown. */
export type RecordedWorkloadCall = RecordedCall<WorkloadCall, WorkloadAnswer>;

/** A workload of one name; undefined: there is none. */
type WorkloadState =
  | {
      /** Empty while only a call with an unknown outcome can have created the workload. */
      readonly uid: string;
      readonly generation: bigint;
      readonly value: string;
      /** From its deletion on, the workload may disappear at any time. */
      readonly isDeleting: boolean;
    }
  | undefined;

/**
 * Checks that there is one order of the calls of all clients, whichever coordinators answered them
 * and however often each was sent. In this order each call takes effect once, between its first
 * attempt and its answer, each update raises the generation by exactly one, and each read shows the
 * write before it. Only for workloads that no other client changes, and linearizable reads.
 * @returns A text for the first workload without such an order; empty when each one has it.
 */
export function findHistoryFaults(calls: readonly RecordedWorkloadCall[]): readonly string[] {
  // a read without an answer says nothing, and has no effect
  const telling = calls.filter(({ input, result }) => input.call !== 'read' || result);
  const result = checkLinearizable(workloads, hideUnseenValues(telling), { describe });
  if (result.kind === 'linearizable') return [];
  return [
    result.kind === 'violation'
      ? `NOT LINEARIZABLE: ${result.message}`
      : `NOT DECIDED whether the writes have one order: ${result.message}`,
  ];
}

/** Value of updates without an answer that no answer shows. */
const UNSEEN = '(unseen)';

/**
 * Gives all updates without an answer whose value no answer shows the same value: which of them took
 * effect at some moment makes no difference, so that the check need not try each one.
 */
function hideUnseenValues(calls: readonly RecordedWorkloadCall[]): readonly RecordedWorkloadCall[] {
  const toKey = (workload: string, value: string): string => `${workload} ${value}`;
  const seen = new Set(
    calls.flatMap(({ input, result }) =>
      result?.output.kind === 'shown' ? [toKey(input.workload, result.output.value)] : [],
    ),
  );
  return calls.map((call) => {
    const { input, result } = call;
    const isUnseen =
      input.call === 'update' &&
      result === undefined &&
      !seen.has(toKey(input.workload, input.value));
    return isUnseen ? { ...call, input: { ...input, value: UNSEEN } } : call;
  });
}

const workloads: SequentialModel<WorkloadState, WorkloadCall, WorkloadAnswer> = {
  initial: undefined,
  objectOf: ({ workload }) => workload,
  toUnknownKey: ({ call, value }) => `${call} ${value}`,
  toKey: (state) =>
    state === undefined
      ? 'no workload'
      : `generation ${state.generation} with ${state.value} of ${state.uid}${state.isDeleting ? ', deleting' : ''}`,
  apply: (state, input, output) => {
    if (output?.kind === 'notFound')
      return input.call === 'read' && (state === undefined || state.isDeleting)
        ? { after: undefined }
        : undefined;
    const after = applyEffect(state, input);
    if (after === undefined || output === undefined) return after && { after };
    const isExplained =
      (after.uid === '' || after.uid === output.uid) &&
      after.generation === output.generation &&
      after.value === output.value;
    return isExplained ? { after: { ...after, uid: output.uid } } : undefined;
  },
};

/** Returns the workload after a call; undefined when the call cannot take effect. */
function applyEffect(state: WorkloadState, { call, value }: WorkloadCall): WorkloadState {
  if (call === 'create')
    return state === undefined || state.isDeleting
      ? { uid: '', generation: 1n, value, isDeleting: false }
      : undefined;
  if (state === undefined) return undefined;
  if (call === 'update') return { ...state, generation: state.generation + 1n, value };
  return call === 'delete' ? { ...state, isDeleting: true } : state;
}

function describe({ input, result }: RecordedWorkloadCall): string {
  const answer = result?.output;
  const text =
    answer?.kind === 'shown'
      ? `generation ${answer.generation} with ${answer.value}`
      : answer?.kind;
  return `${input.call} ${input.value} -> ${text ?? 'no answer'}`;
}
