import { Agent, type ClientRequest, type IncomingMessage } from 'node:http';
import { Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import type { Clock, Timer } from '@cloudless/base';
import type { ChosenBackend, IngressClient } from './backends.js';

/** Time for which an unused connection to an endpoint is kept, milliseconds. */
const KEPT_IDLE_MS = 4_000;
/**
 * Longest time without use of a connection that carries a request which cannot be repeated,
 * milliseconds: an endpoint may close an idle connection just when the request arrives.
 */
const FRESH_IDLE_MS = 500;
/** Connections to one endpoint that carry a request. Further requests wait for one of them. */
const MAX_PER_ENDPOINT = 1_024;
/** Unused connections that are kept to one endpoint. */
const MAX_KEPT_PER_ENDPOINT = 64;
/** Interval at which unused connections are looked at, milliseconds. */
const CHECK_MS = 1_000;

/** The endpoint accepted no connection, so the endpoint has received nothing. */
export class ConnectFailure extends Error {
  override readonly name = 'ConnectFailure';
}

/** Options of a request that {@link KeptConnections} reads. */
export interface PooledRequest {
  readonly poolKey: string;
  readonly dial: () => Promise<Duplex>;
}

/** Returns the key under which connections may carry each other's requests. */
export function toPoolKey(
  { endpoint, isShareable }: ChosenBackend,
  port: number,
  client: IngressClient,
): string {
  return isShareable
    ? `${endpoint} ${port}`
    : `${endpoint} ${port} ${client.address} ${client.port}`;
}

/** Connections to endpoints over HTTP/1.1, kept for further requests. */
export class KeptConnections extends Agent {
  private readonly idleSince = new WeakMap<Duplex, number>();
  private readonly idleLimit = new WeakMap<Duplex, number>();
  private timer: Timer | undefined;
  private keeps = true;

  constructor(private readonly clock: Clock) {
    super({
      keepAlive: true,
      maxSockets: MAX_PER_ENDPOINT,
      maxFreeSockets: MAX_KEPT_PER_ENDPOINT,
    });
  }

  /** Closes the connections of a key that are too old for the next request. */
  prepare(poolKey: string, isRepeatable: boolean): void {
    this.closeOlder(poolKey, isRepeatable ? KEPT_IDLE_MS : FRESH_IDLE_MS);
  }

  /** Closes the unused connections of a key. */
  closeUnused(poolKey: string): void {
    this.closeOlder(poolKey, -1);
  }

  /** Notes how long the endpoint keeps an unused connection. */
  noteResponse(response: IncomingMessage): void {
    const hint = /timeout=(\d+)/.exec(String(response.headers['keep-alive'] ?? ''))?.[1];
    if (hint !== undefined) this.idleLimit.set(response.socket, Number(hint) * 1_000 - 500);
  }

  /** Keeps no connections any longer. Those that carry a request end with the request. */
  drain(): void {
    this.keeps = false;
    this.timer?.cancel();
    for (const key of Object.keys(this.freeSockets)) this.closeUnused(key);
  }

  override getName(options?: object): string {
    return (options as PooledRequest | undefined)?.poolKey ?? '';
  }

  /** Called by Node for a request that no kept connection carries. */
  override createConnection(
    options: object,
    callback?: (reason: Error | null, stream: Duplex) => void,
  ): undefined {
    void (options as PooledRequest).dial().then(
      (stream) => {
        // The endpoint has closed its half: nothing may be sent any more.
        stream.once('end', () => stream.end());
        callback?.(null, stream);
        process.nextTick(() => stream.resume());
      },
      (cause: unknown) =>
        callback?.(new ConnectFailure('not connected', { cause }), undefined as unknown as Duplex),
    );
  }

  /** Called by Node when a connection has no request. Returns whether it is kept. */
  override keepSocketAlive(stream: Duplex): boolean {
    if (!this.keeps || stream.destroyed || stream.readableEnded) return false;
    if ((this.idleLimit.get(stream) ?? KEPT_IDLE_MS) <= 0) return false;
    this.idleSince.set(stream, this.clock.now());
    this.timer ??= this.clock.setTimer(CHECK_MS, () => this.check());
    return true;
  }

  /** Called by Node when a kept connection gets a request. */
  override reuseSocket(stream: Duplex, request: ClientRequest): void {
    // Node guards a kept socket against unsolicited data, and removes the guard here (from 24.21 on).
    if (stream instanceof Socket) super.reuseSocket(stream, request);
    else request.reusedSocket = true;
  }

  private check(): void {
    this.timer = undefined;
    const keys = Object.keys(this.freeSockets);
    for (const key of keys) this.closeOlder(key, KEPT_IDLE_MS);
    if (keys.length > 0) this.timer = this.clock.setTimer(CHECK_MS, () => this.check());
  }

  private closeOlder(poolKey: string, idleMs: number): void {
    const nowMs = this.clock.now();
    for (const stream of [...(this.freeSockets[poolKey] ?? [])]) {
      const limitMs = Math.min(idleMs, this.idleLimit.get(stream) ?? idleMs);
      if (nowMs - (this.idleSince.get(stream) ?? 0) > limitMs) stream.destroy();
    }
  }
}
