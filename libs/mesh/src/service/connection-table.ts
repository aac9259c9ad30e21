/** A connection or UDP session that the proxy carries. */
export interface CarriedConnection {
  /** Id of the endpoint. */
  readonly endpointId: string;
  /** Id of the replica; empty outside the cluster. */
  readonly replicaId: string;
  /** Id of the node of the endpoint; empty outside the cluster. */
  readonly nodeId: string;
  /** Bytes in both directions so far. */
  readonly carriedBytes: number;
  /** Time without bytes after which the connection ends; 0: never. */
  readonly idleTimeoutMs: number;
  /** True when this is a UDP session. Default: false. */
  readonly isDatagram?: boolean;
  reset(reason: string): void;
}

/** All connections that the proxy carries, by endpoint. */
export class ConnectionTable {
  private readonly byEndpoint = new Map<string, Set<CarriedConnection>>();
  /** Bytes and time at the last check, of connections that may become idle. */
  private readonly lastSeen = new Map<CarriedConnection, { bytes: number; atMs: number }>();
  private count = 0;
  /** Connections that are being opened. */
  private opening = 0;
  private readonly onEmpty: (() => void)[] = [];

  get size(): number {
    return this.count;
  }

  add(connection: CarriedConnection, nowMs: number): void {
    let siblings = this.byEndpoint.get(connection.endpointId);
    if (siblings === undefined) this.byEndpoint.set(connection.endpointId, (siblings = new Set()));
    siblings.add(connection);
    this.count += 1;
    if (connection.idleTimeoutMs > 0) this.lastSeen.set(connection, { bytes: 0, atMs: nowMs });
  }

  remove(connection: CarriedConnection): void {
    const siblings = this.byEndpoint.get(connection.endpointId);
    if (siblings?.delete(connection) !== true) return;
    if (siblings.size === 0) this.byEndpoint.delete(connection.endpointId);
    this.lastSeen.delete(connection);
    this.count -= 1;
    this.checkEmpty();
  }

  /**
   * Counts a connection that is being opened, for {@link empty}.
   * @returns A function that ends this; calls after the first do nothing. Call it after `add`.
   */
  noteOpening(): () => void {
    this.opening += 1;
    let isOpening = true;
    return () => {
      if (!isOpening) return;
      isOpening = false;
      this.opening -= 1;
      this.checkEmpty();
    };
  }

  /** Resets the connections to an endpoint, or only its UDP sessions. */
  resetEndpoint(endpointId: string, reason: string, onlyDatagrams = false): void {
    for (const connection of [...(this.byEndpoint.get(endpointId) ?? [])])
      if (!onlyDatagrams || connection.isDatagram === true) connection.reset(reason);
  }

  /** Resets the connections for which `matches` is true. */
  resetWhere(matches: (connection: CarriedConnection) => boolean, reason: string): void {
    for (const siblings of [...this.byEndpoint.values()])
      for (const connection of [...siblings]) if (matches(connection)) connection.reset(reason);
  }

  /** Ends connections that have carried nothing for longer than their service allows. */
  endIdle(nowMs: number): void {
    for (const [connection, seen] of [...this.lastSeen]) {
      const bytes = connection.carriedBytes;
      if (bytes !== seen.bytes) this.lastSeen.set(connection, { bytes, atMs: nowMs });
      else if (nowMs - seen.atMs >= connection.idleTimeoutMs)
        connection.reset('the idle timeout of the service has passed');
    }
  }

  /** Resolves when there is no connection, and none is being opened. */
  empty(): Promise<void> {
    return new Promise((resolve) => {
      this.onEmpty.push(resolve);
      this.checkEmpty();
    });
  }

  private checkEmpty(): void {
    if (this.count === 0 && this.opening === 0)
      for (const resolve of this.onEmpty.splice(0)) resolve();
  }
}
