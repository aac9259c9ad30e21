import type { RecordedCall } from './history.js';

/** A sequential specification: what one call does to a state, when no other call runs. */
export interface SequentialModel<State, Input, Output> {
  readonly initial: State;
  /**
   * Applies one call.
   * @param output - The recorded output; undefined when the outcome is unknown, which allows every
   *   output with an effect.
   * @returns The state after the call; undefined when the call cannot have this output.
   */
  apply(
    state: State,
    input: Input,
    output: Output | undefined,
  ): { readonly after: State } | undefined;
  /** Returns equal texts for equal states, and different texts for different states. */
  toKey(state: State): string;
  /**
   * Returns the name of the independent object to which a call belongs. Objects are checked one by
   * one: a history is linearizable exactly when the history of each object is. Default: all calls
   * belong to one object.
   */
  objectOf?(input: Input): string;
  /**
   * Returns equal texts for inputs that do the same to every state while their outcome is unknown:
   * of such calls, the search tries only the earliest one. Without that, the time of a search grows
   * exponentially with the number of calls with an unknown outcome. Default: all inputs differ.
   */
  toUnknownKey?(input: Input): string;
}

/** Result of {@link checkLinearizable}. */
export type LinearizabilityResult =
  | { readonly kind: 'linearizable' }
  /** The message names the object and the first call for which no order was found. */
  | { readonly kind: 'violation'; readonly message: string }
  /** The search was given up after `maxSteps` steps. */
  | { readonly kind: 'undecided'; readonly message: string };

export interface CheckOptions<Input, Output> {
  /** Most applications of the model per object before the search is given up. Default 1 000 000. */
  readonly maxSteps?: number;
  /** Formats a call for messages. Default: JSON. */
  readonly describe?: (call: RecordedCall<Input, Output>) => string;
}

/**
 * Decides whether there is one order of all calls that the model allows and in which every call
 * takes effect between its call and its return. A call with an unknown outcome takes effect at any
 * time after its call, or never.
 *
 * The algorithm is the search of Wing and Gong with the cache of Lowe: each pair of a set of ordered
 * calls and a state is visited once. Independent objects are checked separately (Horn and Kroening).
 * @see J. M. Wing, C. Gong, "Testing and Verifying Concurrent Objects", JPDC 17, 1993
 * @see G. Lowe, "Testing for linearizability", Concurrency and Computation 29(4), 2017
 */
export function checkLinearizable<State, Input, Output>(
  model: SequentialModel<State, Input, Output>,
  calls: Iterable<RecordedCall<Input, Output>>,
  options: CheckOptions<Input, Output> = {},
): LinearizabilityResult {
  const callsByObject = new Map<string, RecordedCall<Input, Output>[]>();
  for (const call of calls) {
    const object = model.objectOf?.(call.input) ?? '';
    const ofObject = callsByObject.get(object);
    if (ofObject === undefined) callsByObject.set(object, [call]);
    else ofObject.push(call);
  }
  for (const [object, ofObject] of callsByObject) {
    const result = new Search(model, ofObject, options).run();
    if (result.kind !== 'linearizable')
      return object === '' ? result : { ...result, message: `${object}: ${result.message}` };
  }
  return { kind: 'linearizable' };
}

/** A point of the search: the calls that are ordered so far lead to this state. */
interface Step<State> {
  readonly state: State;
  /** Number of the call that was ordered last; undefined at the start. */
  readonly ordered: number | undefined;
  /** Calls that may come next, best first. */
  readonly candidates: readonly number[];
  nextCandidate: number;
}

const DEFAULT_MAX_STEPS = 1_000_000;

/** The search over the calls of one object. */
class Search<State, Input, Output> {
  /** Calls with a known outcome in the order of their calls, then those with an unknown outcome. */
  private readonly calls: readonly RecordedCall<Input, Output>[];
  private readonly knownCount: number;
  private readonly isOrdered: boolean[];
  /**
   * For each call with an unknown outcome the number of the latest earlier one that does the same;
   * undefined: there is none.
   */
  private readonly sameBefore = new Map<number, number>();
  /** All known calls before this number are ordered. */
  private firstOpen = 0;
  /** Number of ordered calls with a known outcome. */
  private orderedCount = 0;
  private readonly visited = new Set<string>();
  private steps = 0;
  /** The largest number of ordered calls with a known outcome, and the call that blocked there. */
  private deepest = { known: -1, blocking: 0, stateKey: '' };

  constructor(
    private readonly model: SequentialModel<State, Input, Output>,
    calls: readonly RecordedCall<Input, Output>[],
    private readonly options: CheckOptions<Input, Output>,
  ) {
    const byCall = [...calls].sort((a, b) => a.calledAt - b.calledAt);
    const known = byCall.filter(({ result }) => result !== undefined);
    this.knownCount = known.length;
    this.calls = [...known, ...byCall.filter(({ result }) => result === undefined)];
    this.isOrdered = this.calls.map(() => false);
    this.linkEqualCalls();
  }

  private linkEqualCalls(): void {
    const { toUnknownKey } = this.model;
    if (toUnknownKey === undefined) return;
    const last = new Map<string, number>();
    for (let index = this.knownCount; index < this.calls.length; index += 1) {
      const key = toUnknownKey(this.callAt(index).input);
      const before = last.get(key);
      if (before !== undefined) this.sameBefore.set(index, before);
      last.set(key, index);
    }
  }

  run(): LinearizabilityResult {
    const path: Step<State>[] = [this.startStep(this.model.initial, undefined)];
    for (;;) {
      const step = path.at(-1);
      if (step === undefined) return { kind: 'violation', message: this.explain() };
      if (this.firstOpen === this.knownCount) return { kind: 'linearizable' };
      const candidate = step.candidates[step.nextCandidate];
      if (candidate === undefined) {
        path.pop();
        if (step.ordered !== undefined) this.setOrdered(step.ordered, false);
        continue;
      }
      step.nextCandidate += 1;
      if ((this.steps += 1) > (this.options.maxSteps ?? DEFAULT_MAX_STEPS))
        return { kind: 'undecided', message: `given up after ${this.steps - 1} steps` };
      const next = this.tryCandidate(step.state, candidate);
      if (next !== undefined) path.push(next);
    }
  }

  /** Orders a call next, unless the model forbids the call or the same point was visited before. */
  private tryCandidate(state: State, candidate: number): Step<State> | undefined {
    const { input, result } = this.callAt(candidate);
    const applied = this.model.apply(state, input, result?.output);
    if (applied === undefined) return undefined;
    const { after } = applied;
    this.setOrdered(candidate, true);
    const key = `${this.orderedKey()}|${this.model.toKey(after)}`;
    if (!this.visited.has(key)) {
      this.visited.add(key);
      return this.startStep(after, candidate);
    }
    this.setOrdered(candidate, false);
    return undefined;
  }

  /**
   * Lists the calls that may come next: those that began before the first return among the calls
   * that are not ordered yet. Calls with a known outcome come first, because the effect of a call
   * with an unknown outcome is needed only when nothing else explains a result.
   */
  private startStep(state: State, ordered: number | undefined): Step<State> {
    let firstReturn = Number.POSITIVE_INFINITY;
    let blocking = this.firstOpen;
    const open: number[] = [];
    for (let index = this.firstOpen; index < this.knownCount; index += 1) {
      const { calledAt, result } = this.callAt(index);
      if (calledAt > firstReturn) break;
      if (this.isOrdered[index] === true) continue;
      open.push(index);
      const returnedAt = result?.returnedAt ?? Number.POSITIVE_INFINITY;
      if (returnedAt < firstReturn) [firstReturn, blocking] = [returnedAt, index];
    }
    this.recordDepth(blocking, state);
    for (let index = this.knownCount; index < this.calls.length; index += 1)
      if (this.isOrdered[index] === false && this.isFirstOfItsKind(index)) open.push(index);
    const candidates = open.filter((index) => this.callAt(index).calledAt < firstReturn);
    return { state, ordered, candidates, nextCandidate: 0 };
  }

  /**
   * Returns false for a call whose place an earlier one with the same effect can take: a call with an
   * unknown outcome may take effect at any time after its call.
   */
  private isFirstOfItsKind(index: number): boolean {
    const before = this.sameBefore.get(index);
    return before === undefined || this.isOrdered[before] === true;
  }

  private setOrdered(index: number, isOrdered: boolean): void {
    this.isOrdered[index] = isOrdered;
    if (index >= this.knownCount) return;
    this.orderedCount += isOrdered ? 1 : -1;
    if (!isOrdered) this.firstOpen = Math.min(this.firstOpen, index);
    else
      while (this.firstOpen < this.knownCount && this.isOrdered[this.firstOpen] === true)
        this.firstOpen += 1;
  }

  /** A short text for the set of ordered calls: all before `firstOpen`, and those after it. */
  private orderedKey(): string {
    const later: number[] = [];
    const { result } = this.calls[this.firstOpen] ?? {};
    for (let index = this.firstOpen; index < this.knownCount; index += 1) {
      // No call that began after the first open call returned can be ordered.
      if (this.callAt(index).calledAt > (result?.returnedAt ?? 0)) break;
      if (this.isOrdered[index] === true) later.push(index);
    }
    for (let index = this.knownCount; index < this.calls.length; index += 1)
      if (this.isOrdered[index] === true) later.push(index);
    return `${this.firstOpen}:${later.join(',')}`;
  }

  private recordDepth(blocking: number, state: State): void {
    if (this.orderedCount > this.deepest.known)
      this.deepest = { known: this.orderedCount, blocking, stateKey: this.model.toKey(state) };
  }

  private explain(): string {
    const { describe = describeAsJson } = this.options;
    const { known, blocking, stateKey } = this.deepest;
    const { client } = this.callAt(blocking);
    return `no order explains ${describe(this.callAt(blocking))} of ${client}; the ${known} calls before it lead to ${stateKey}`;
  }

  private callAt(index: number): RecordedCall<Input, Output> {
    return this.calls[index] as RecordedCall<Input, Output>;
  }
}

function describeAsJson({ input, result }: RecordedCall<unknown, unknown>): string {
  const toText = (value: unknown): string =>
    JSON.stringify(value, (_key, field: unknown) =>
      typeof field === 'bigint' ? String(field) : field,
    );
  return `${toText(input)} -> ${toText(result?.output)}`;
}
