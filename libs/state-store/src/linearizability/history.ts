/**
 * One call of one client. Times are numbers of one common order, such as a counter or the monotonic
 * clock of one machine: a call that returned at 5 was over before a call that began at 6.
 */
export interface RecordedCall<Input, Output> {
  /** Name of the client, for messages. */
  readonly client: string;
  readonly input: Input;
  readonly calledAt: number;
  /**
   * Absent when the outcome is unknown, for example after a timeout: the call may have taken effect
   * once at any time after `calledAt`, even after the end of the history, or never.
   */
  readonly result?: { readonly output: Output; readonly returnedAt: number };
}

/** Records the calls of concurrent clients in one process, in the order of calls and returns. */
export class HistoryRecorder<Input, Output> {
  private readonly recorded: RecordedCall<Input, Output>[] = [];
  private events = 0;

  /** All recorded calls, including those that are still running, in the order of their calls. */
  get calls(): readonly RecordedCall<Input, Output>[] {
    return this.recorded;
  }

  /**
   * Records one call.
   * @param perform - Makes the call. A rejection leaves the outcome unknown; a refusal that has
   *   certainly had no effect is an output.
   * @returns The result of `perform`.
   */
  async record(client: string, input: Input, perform: () => Promise<Output>): Promise<Output> {
    const index = this.recorded.length;
    const call = { client, input, calledAt: (this.events += 1) };
    this.recorded.push(call);
    const output = await perform();
    this.recorded[index] = { ...call, result: { output, returnedAt: (this.events += 1) } };
    return output;
  }
}
