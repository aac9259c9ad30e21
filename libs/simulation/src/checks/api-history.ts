import type { Workload } from '@cloudless/api';
import {
  HistoryRecorder,
  checkLinearizable,
  type RecordedCall,
  type SequentialModel,
} from '@cloudless/state-store/linearizability';

/** A call about one workload. */
export interface ApiInput {
  readonly call: 'create' | 'change' | 'delete' | 'read';
  readonly workload: string;
}

/** The answer to a call; a refusal has had no effect. */
export type ApiOutput =
  | { readonly kind: 'shown'; readonly uid: string; readonly generation: bigint }
  | { readonly kind: 'notFound' }
  | { readonly kind: 'exists' }
  | { readonly kind: 'refused' };

/** A workload of one name; undefined: there is none. */
type ApiState =
  | {
      /** Empty while only a call with an unknown outcome can have created the workload. */
      readonly uid: string;
      readonly generation: bigint;
      /** From its deletion on, the workload may disappear at any time. */
      readonly isDeleting: boolean;
    }
  | undefined;

/** First words of user calls that change a workload, beside `create` and `delete`. */
const CHANGES = ['scale', 'update', 'pause', 'resume', 'promote', 'undo', 'restart'];

/**
 * Invariant 3: the calls of all users, whichever coordinators answered them and however often each
 * was repeated with its request id, have one order. Each call took effect once, between its first
 * attempt and its answer, and no answer shows an older generation than an earlier answer.
 */
export class ApiHistory {
  private readonly recorder = new HistoryRecorder<ApiInput, ApiOutput>();

  /**
   * Records a call and all its repetitions.
   * @param description - Begins with the call and the name of the workload, as `scale one to 3`.
   * @param perform - Resolves with the answer; undefined for calls that are not about a workload.
   */
  async record(description: string, perform: () => Promise<ApiOutput | undefined>): Promise<void> {
    const [verb = '', workload = ''] = description.split(' ');
    const call = CHANGES.includes(verb) ? 'change' : verb;
    if (call !== 'create' && call !== 'change' && call !== 'delete' && call !== 'read')
      return void (await perform());
    await this.recorder.record(`request ${description}`, { call, workload }, async () => {
      const output = await perform();
      // An undo also answers NOT_FOUND for a version that does not exist.
      const saysNothing = verb === 'undo' && output?.kind === 'notFound';
      return output === undefined || saysNothing ? { kind: 'refused' } : output;
    });
  }

  /** Returns the violations, at most one for each workload. */
  check(): readonly string[] {
    return checkApiHistory(this.recorder.calls);
  }
}

/** Checks recorded calls. */
export function checkApiHistory(
  calls: readonly RecordedCall<ApiInput, ApiOutput>[],
): readonly string[] {
  const result = checkLinearizable(workloads, calls);
  return result.kind === 'linearizable' ? [] : [`3: the calls of users: ${result.message}`];
}

/** What an answer shows of a workload. */
export function toShown({ uid, generation }: Workload): ApiOutput {
  return { kind: 'shown', uid, generation };
}

const workloads: SequentialModel<ApiState, ApiInput, ApiOutput> = {
  initial: undefined,
  objectOf: ({ workload }) => workload,
  toKey: (state) =>
    state === undefined
      ? 'no workload'
      : `${state.uid} generation ${state.generation}${state.isDeleting ? ' deleting' : ''}`,
  apply: (state, input, output) => {
    if (output?.kind === 'refused') return { after: state };
    if (output?.kind === 'exists') return state === undefined ? undefined : { after: state };
    if (output?.kind === 'notFound')
      return state === undefined || state.isDeleting ? { after: undefined } : undefined;
    return applyEffect(state, input, output);
  },
};

function applyEffect(
  state: ApiState,
  { call }: ApiInput,
  shown: Extract<ApiOutput, { kind: 'shown' }> | undefined,
): { readonly after: ApiState } | undefined {
  if (call === 'create') {
    if (state !== undefined && !state.isDeleting) return undefined;
    const { uid, generation } = shown ?? { uid: '', generation: 1n };
    return { after: { uid, generation, isDeleting: false } };
  }
  if (state === undefined) return undefined;
  if (shown === undefined)
    return {
      after: call === 'delete' ? { ...state, isDeleting: true } : state,
    };
  const { uid, generation } = shown;
  if (state.uid !== '' && state.uid !== uid) return undefined;
  // Rollbacks raise the generation too, without a call.
  if (generation < state.generation) return undefined;
  return { after: { uid, generation, isDeleting: state.isDeleting || call === 'delete' } };
}
