/** Commands of the benchmark to a process of agents. */
export type AgentsCommand =
  /**
   * `coordinator`: addresses, separated by commas. `first`: index of the first agent. `joinToken`:
   * present for a cluster with TLS.
   */
  | {
      readonly kind: 'start';
      readonly coordinator: string;
      readonly first: number;
      readonly count: number;
      readonly joinToken?: string;
    }
  /** `agents`: indexes of the agents that fail now. */
  | {
      readonly kind: 'fail';
      readonly agents: readonly number[];
      readonly failure: 'reset' | 'silence';
    }
  | { readonly kind: 'count' };

/** Replies of a process of agents, in the order of the commands. */
export type AgentsReport =
  | { readonly kind: 'started' }
  /** `atMs`: wall-clock milliseconds, because both processes share the wall clock. */
  | { readonly kind: 'failed'; readonly atMs: number }
  | { readonly kind: 'counted'; readonly connected: number; readonly memoryBytes: number };
