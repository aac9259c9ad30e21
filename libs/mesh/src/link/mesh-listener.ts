import type { Server, Socket } from 'node:net';
import {
  backoffDelayMs,
  CloudlessError,
  errorMessageOf,
  type BackoffPolicy,
  type Clock,
  type Log,
  type Random,
  type Timer,
} from '@cloudless/base';
import type { ListeningSockets, MeshAddressSource, NetworkProxyOptions } from '../ports.js';
import { formatAddress } from '../stream/proxy-header.js';

/** Delay before an address is searched again, or tried again. */
const RETRY: BackoffPolicy = { firstMs: 1_000, maxMs: 60_000, jitter: 0.2 };
/** Interval at which the listener looks whether the machine still has its address, milliseconds. */
const CHECK_MS = 5_000;
/**
 * Longest wait of a start for an address, milliseconds: the name of a coordinator may have to be
 * resolved, and clients wait for a proxy that starts.
 */
const FIRST_WAIT_MS = 500;

export interface MeshListenerOptions {
  readonly sockets: Pick<ListeningSockets, 'listenTcp'>;
  readonly onConnection: (socket: Socket) => void;
  readonly clock: Clock;
  readonly random: Random;
  readonly log: Log;
}

/** Listens for the proxies of other nodes. */
export class MeshListener {
  private server: Server | undefined;
  private source: MeshAddressSource | undefined;
  private lastProblem: string | undefined;
  private failures = 0;
  private timer: Timer | undefined;
  private isClosed = false;

  constructor(private readonly options: MeshListenerOptions) {}

  /** Address at which other proxies connect, with the actual port; undefined: at none. */
  get address(): { readonly address: string; readonly port: number } | undefined {
    const address = this.server?.address();
    return typeof address === 'object' && address !== null ? address : undefined;
  }

  /** Why {@link follow} does not listen, as text for people; undefined: nothing is wrong. */
  get problem(): string | undefined {
    return this.lastProblem;
  }

  /**
   * Listens as the options of a proxy say; without both, never.
   * @throws as {@link listen}.
   */
  async start({
    meshListen,
    meshAddressSource,
  }: Pick<NetworkProxyOptions, 'meshListen' | 'meshAddressSource'>): Promise<void> {
    if (meshListen !== undefined) await this.listen(meshListen);
    else if (meshAddressSource !== undefined) await this.follow(meshAddressSource);
  }

  /**
   * Listens at an address.
   * @throws as `ListeningSockets.listenTcp`.
   */
  async listen({ host, port }: { readonly host: string; readonly port: number }): Promise<void> {
    const server = await this.options.sockets.listenTcp(host, port);
    if (this.isClosed) return void server.close();
    server.on('connection', (socket) => {
      socket.setNoDelay(true);
      this.options.onConnection(socket);
    });
    server.on('error', () => undefined);
    this.server = server;
  }

  /**
   * Listens at the address that a source finds, for as long as the machine has the address; then at
   * the next one. Tries again later when no address is found or the port is taken. Resolves after the
   * first attempt, or after 500 ms. Never rejects.
   */
  async follow(source: MeshAddressSource): Promise<void> {
    this.source = source;
    await new Promise<void>((resolve) => {
      const timer = this.options.clock.setTimer(FIRST_WAIT_MS, resolve);
      void this.attempt().then(() => {
        timer.cancel();
        resolve();
      });
    });
  }

  /** Accepts no further connections. Open ones stay. */
  close(): void {
    this.isClosed = true;
    this.timer?.cancel();
    this.server?.close();
    this.server = undefined;
  }

  private async attempt(): Promise<void> {
    const { source } = this;
    if (source === undefined || this.isClosed) return;
    const { random, log } = this.options;
    let delayMs = CHECK_MS;
    try {
      const found = await source.find();
      if (this.isClosed) return;
      if (found === undefined) delayMs = RETRY.maxMs;
      else {
        await this.listenAt(found);
        log.info('listening for the proxies of other nodes', { ...this.address });
      }
      this.failures = 0;
      this.lastProblem = undefined;
    } catch (reason) {
      this.failures += 1;
      this.lastProblem = `no listener for the proxies of other nodes, which use the relay of the leader: ${errorMessageOf(reason)}`;
      if (this.failures === 1)
        log.warn('no listener for other nodes; trying again', { error: errorMessageOf(reason) });
      delayMs = backoffDelayMs(RETRY, this.failures, random);
    }
    this.wait(delayMs);
  }

  private async listenAt(at: { readonly host: string; readonly port: number }): Promise<void> {
    try {
      await this.listen(at);
    } catch (cause) {
      const address = formatAddress({ address: at.host, port: at.port });
      throw new CloudlessError(
        'unavailable',
        `${address} is not available (${errorMessageOf(cause)}): free the port, or start the agent with --mesh-listen HOST:PORT or --mesh-listen none`,
        { cause },
      );
    }
  }

  private wait(ms: number): void {
    if (this.isClosed) return;
    this.timer = this.options.clock.setTimer(ms, () => {
      if (this.hasAddress()) this.wait(CHECK_MS);
      else void this.attempt();
    });
  }

  /** Closes the listener when the machine does not have its address any more. */
  private hasAddress(): boolean {
    const { address } = this;
    if (address === undefined) return false;
    if (this.source?.has(address.address) !== false) return true;
    this.options.log.warn('the address for other nodes is gone', { ...address });
    this.server?.close();
    this.server = undefined;
    return false;
  }
}
