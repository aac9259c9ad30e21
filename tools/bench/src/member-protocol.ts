/** Commands of the benchmark to the process of the agents. */
export type AgentsCommand =
  | { readonly kind: 'start'; readonly coordinator: string; readonly count: number }
  /** Indexes of agents that fail now. */
  | { readonly kind: 'fail'; readonly agents: readonly number[]; readonly how: 'reset' | 'silence' }
  | { readonly kind: 'count' };

/** Replies of that process, in the order of the commands. */
export type AgentsReport =
  | { readonly kind: 'started' }
  /** Wall-clock milliseconds, which both processes share. */
  | { readonly kind: 'failed'; readonly atMs: number }
  | { readonly kind: 'counted'; readonly connected: number; readonly memoryBytes: number };
