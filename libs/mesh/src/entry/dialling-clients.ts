/** Share of all connections that one client address may have under way. */
const SHARE_OF_CLIENT = 0.1;
/** Connections under way that each client address may have at least. */
const MIN_SHARE = 64;

/**
 * Counts connections of clients from their accept until an endpoint has accepted them, so that
 * clients of an endpoint that never answers cannot use up the sockets of the machine.
 */
export class DiallingClients {
  private readonly byClient = new Map<string, number>();
  private count = 0;

  /** @param maxConnections - Bound of the connections that are carried or under way. */
  constructor(private readonly maxConnections: number) {}

  /** Connections that wait for an endpoint. */
  get size(): number {
    return this.count;
  }

  /**
   * Counts a further connection. Call {@link end} once afterwards.
   * @param carried - Connections that are carried at the moment.
   * @returns False when the connection exceeds a bound and is not counted.
   */
  begin(client: string, carried: number): boolean {
    const own = this.byClient.get(client) ?? 0;
    const share = Math.max(MIN_SHARE, this.maxConnections * SHARE_OF_CLIENT);
    if (own >= share || this.count + carried >= this.maxConnections) return false;
    this.byClient.set(client, own + 1);
    this.count += 1;
    return true;
  }

  /** Counts a connection no longer, because it is carried now or was refused. */
  end(client: string): void {
    const own = this.byClient.get(client) ?? 0;
    if (own > 1) this.byClient.set(client, own - 1);
    else this.byClient.delete(client);
    this.count -= 1;
  }
}
