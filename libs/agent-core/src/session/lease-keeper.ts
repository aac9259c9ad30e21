/** The session whose lease a {@link LeaseKeeper} keeps. */
export interface KeptSession {
  /** Base address of the coordinator: `http://127.0.0.1:8080`. */
  readonly address: string;
  readonly nodeId: string;
  /** `session_id` of the Welcome. The coordinator renews no lease for another session. */
  readonly sessionId: string;
  /** Interval at which the agent pings. */
  readonly pingIntervalMs: number;
  /** Time without a ping after which the lease ends. */
  readonly leaseMs: number;
}

/**
 * Renews the lease of this node with RenewLease while the main loop of the agent does not turn and
 * therefore sends no PING. An implementation must not need the main loop for that, and must not
 * renew while the whole process stands still.
 *
 * The leases of exclusive replicas do not depend on this: they are renewed only by answered PINGs of
 * the main loop, so they end no later than the coordinator assumes.
 */
export interface LeaseKeeper {
  /** Begins to watch over an admitted session, instead of an earlier one. */
  keep(session: KeptSession): void;
  /** The session has ended, or the agent has said goodbye: no renewal is sent any more. */
  release(): void;
}
