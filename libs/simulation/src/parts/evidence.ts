/** What was known of the nodes when a transaction was decided. */
export interface Evidence {
  readonly alive: ReadonlySet<string>;
  readonly draining: ReadonlySet<string>;
  readonly cordoned: ReadonlySet<string>;
  /** The coordinator's wall clock, milliseconds. */
  readonly wallMs?: number;
  /** How long it had known each ready replica to be so, milliseconds; absent: for long enough. */
  readonly readyForMs?: ReadonlyMap<string, number>;
}
