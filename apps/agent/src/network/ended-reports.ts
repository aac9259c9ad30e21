import type { ControlRequest } from './control-messages.js';

/** Most replicas that are repeated: the newest. */
const MAX_REPORTED = 10_000;
/** Replicas in one request, whose line is limited. */
const BATCH_SIZE = 500;

/** Sends a request to the proxy. */
type Send = (request: Omit<Extract<ControlRequest, { type: 'ended' }>, 'id'>) => Promise<unknown>;

/**
 * Reports to the proxy about replicas that have ended. The proxy hears everything again at each
 * connection: the process may be another one, and the coordinator may not have removed the
 * endpoints.
 */
export class EndedReports {
  private readonly ids = new Set<string>();
  private send: Send | undefined;

  /** Reports replicas now, and again to each later proxy. */
  note(replicaIds: readonly string[]): void {
    const added = replicaIds.filter((id) => !this.ids.has(id));
    for (const id of added) this.ids.add(id);
    for (const id of this.ids) {
      if (this.ids.size <= MAX_REPORTED) break;
      this.ids.delete(id);
    }
    this.report(added);
  }

  /** Begins to report to a proxy, with everything that is known. */
  connect(send: Send): void {
    this.send = send;
    this.report([...this.ids]);
  }

  disconnect(): void {
    this.send = undefined;
  }

  private report(replicaIds: readonly string[]): void {
    for (let start = 0; start < replicaIds.length; start += BATCH_SIZE)
      // A lost request is repeated at the next connection.
      void this.send?.({
        type: 'ended',
        replicaIds: replicaIds.slice(start, start + BATCH_SIZE),
      }).catch(() => undefined);
  }
}
