/** Starts agents. */
export interface StartCommand {
  readonly kind: 'start';
  /** Addresses, separated by commas. */
  readonly coordinator: string;
  /** Index of the first agent. */
  readonly first: number;
  readonly count: number;
  /** Present for a cluster with TLS. */
  readonly joinToken?: string;
  /** True to start a few agents after the other, each group once the earlier one has sessions. */
  readonly paced: boolean;
}

/** Commands of the benchmark to a process of agents. */
export type AgentsCommand =
  | StartCommand
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
