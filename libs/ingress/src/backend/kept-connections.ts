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
/** Time before the endpoint's own limit at which an unused connection is closed, milliseconds. */
const IDLE_MARGIN_MS = 500;
/** Connections to one endpoint that carry a request. Further requests wait for one of them. */
const MAX_PER_ENDPOINT = 1_024;
/** Unused connections that are kept to one endpoint. */
const MAX_KEPT_PER_ENDPOINT = 64;
/** Interval at which connections that were unused for too long are closed, milliseconds. */
const CHECK_MS = 1_000;

/** The endpoint accepted no connection, so the endpoint has received nothing. */
export class ConnectFailure extends Error {
  override readonly name = 'ConnectFailure';
}

/** @throws {@link ConnectFailure} when `dial` fails. */
export async function connectOrFail(dial: () => Promise<Duplex>): Promise<Duplex> {
  try {
    return await dial();
  } catch (cause) {
    throw new ConnectFailure('not connected', { cause });
  }
}

/** Options of an HTTP request that {@link KeptConnections} reads. */
export interface PooledRequest {
  /** As {@link toPoolKey} returns it. */
  readonly poolKey: string;
  /** Opens a connection to the endpoint. */
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
  private readonly idleSinceMs = new WeakMap<Duplex, number>();
  /** Limits that endpoints have announced. */
  private readonly idleLimitMs = new WeakMap<Duplex, number>();
  private timer: Timer | undefined;
  private isDraining = false;

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

  /**
   * Notes how long the endpoint keeps an unused connection, from the header Keep-Alive of a
   * response. The connection is closed a little earlier.
   */
  noteResponse(response: IncomingMessage): void {
    const seconds = /timeout=(\d+)/.exec(String(response.headers['keep-alive'] ?? ''))?.[1];
    if (seconds !== undefined)
      this.idleLimitMs.set(response.socket, Number(seconds) * 1_000 - IDLE_MARGIN_MS);
  }

  /** Keeps no connections any longer. Those that carry a request end with the request. */
  drain(): void {
    this.isDraining = true;
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
    void connectOrFail((options as PooledRequest).dial).then(
      (stream) => {
        // The endpoint has closed its half: nothing may be sent any more.
        stream.once('end', () => stream.end());
        callback?.(null, stream);
        process.nextTick(() => stream.resume());
      },
      (failure: ConnectFailure) => callback?.(failure, undefined as unknown as Duplex),
    );
  }

  /** Called by Node when a connection has no request. Returns whether it is kept. */
  override keepSocketAlive(stream: Duplex): boolean {
    if (this.isDraining || stream.destroyed || stream.readableEnded) return false;
    if ((this.idleLimitMs.get(stream) ?? KEPT_IDLE_MS) <= 0) return false;
    this.idleSinceMs.set(stream, this.clock.now());
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
      const limitMs = Math.min(idleMs, this.idleLimitMs.get(stream) ?? idleMs);
      if (nowMs - (this.idleSinceMs.get(stream) ?? 0) > limitMs) stream.destroy();
    }
  }
}
