/** Largest number of clients that one service port remembers; the oldest are forgotten first. */
export const MAX_AFFINITY_CLIENTS = 65_536;

interface KeptEndpoint {
  readonly endpointId: string;
  readonly untilMs: number;
}

/** Remembers which endpoint each client used last. Bounded: see {@link MAX_AFFINITY_CLIENTS}. */
export class SessionAffinity {
  /** In the order of the last use, because each use deletes and adds the entry. */
  private readonly clients = new Map<string, KeptEndpoint>();

  constructor(private readonly maxClients = MAX_AFFINITY_CLIENTS) {}

  /** Number of clients that are remembered. */
  get size(): number {
    return this.clients.size;
  }

  /** Returns the endpoint that the client used last, unless its time is over. */
  endpointOf(clientAddress: string, nowMs: number): string | undefined {
    const kept = this.clients.get(clientAddress);
    return kept !== undefined && nowMs < kept.untilMs ? kept.endpointId : undefined;
  }

  /** Keeps the endpoint for the client until `nowMs + timeoutMs`. */
  keep(clientAddress: string, endpointId: string, nowMs: number, timeoutMs: number): void {
    this.clients.delete(clientAddress);
    this.clients.set(clientAddress, { endpointId, untilMs: nowMs + timeoutMs });
    for (const [oldest, { untilMs }] of this.clients) {
      if (this.clients.size <= this.maxClients && nowMs < untilMs) break;
      this.clients.delete(oldest);
    }
  }

  /** Forgets all clients. */
  clear(): void {
    this.clients.clear();
  }
}
