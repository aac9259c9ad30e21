/** Commands of the benchmark to the process of the light agents. */
export type AgentsCommand =
  | {
      readonly kind: 'start';
      /** Base URL, in plaintext. */
      readonly coordinator: string;
      /** Number of agents, `node-1` and so on; agent n is in zone n modulo {@link ZONES}. */
      readonly agents: number;
      /** Largest number of replicas that each agent announces. */
      readonly maxReplicas: number;
    }
  /** Breaks the connections of all agents of a zone; these agents never return. */
  | { readonly kind: 'loseZone'; readonly zone: number }
  | { readonly kind: 'count' };

/** Number of zones; agents are spread evenly. */
export const ZONES = 3;

/** Counts of all agents since the start of the process. */
export interface AgentCounts {
  /** Sessions that the coordinator has admitted and that are open now. */
  readonly admitted: number;
  readonly connections: number;
  /** Replicas that run on agents that are not lost; each has been reported as ready. */
  readonly running: number;
  /** The same by version of the replica template. */
  readonly runningByVersion: Readonly<Record<number, number>>;
  /** Replicas that run on the agent with the most replicas. */
  readonly mostOnOneAgent: number;
  readonly startOrders: number;
  readonly stopOrders: number;
  readonly forgetOrders: number;
  /** Orders that the agent held already, part of the above. */
  readonly repeatedOrders: number;
  readonly reports: number;
  readonly bytesReceived: number;
  readonly bytesSent: number;
  /** CPU time of the process, seconds. */
  readonly cpuSeconds: number;
  /** Resident memory of the process, bytes. */
  readonly memoryBytes: number;
  /**
   * Longest time since the last count for which the main loop of the process stood still, so that no
   * agent sent a ping, milliseconds.
   */
  readonly longestStallMs: number;
}

/** Replies of the process, in the order of the commands. */
export type AgentsReply =
  | { readonly kind: 'started' }
  | { readonly kind: 'zoneLost' }
  | { readonly kind: 'counted'; readonly counts: AgentCounts };
