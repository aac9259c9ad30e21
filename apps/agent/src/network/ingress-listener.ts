import { isIPv6, type Server } from 'node:net';
import {
  backoffDelayMs,
  errorCodeOf,
  errorMessageOf,
  type BackoffPolicy,
  type Clock,
  type Log,
  type Random,
  type Timer,
} from '@cloudless/base';
import type { ListeningSockets } from '@cloudless/mesh';
import { acceptsAt, isSameAddress, isWildcard } from './tcp-server.js';

/** Delay before another attempt to listen at an address. */
const RETRY: BackoffPolicy = { firstMs: 500, maxMs: 30_000, jitter: 0.2 };

/**
 * Time for which an address may refuse listeners with EADDRNOTAVAIL before that is a problem,
 * milliseconds: the system checks for a second or two whether others have a new IPv6 address (RFC
 * 4862, section 5.4), and an address may be gone since the addresses were listed.
 */
const SETTLE_MS = 5_000;
/** Delay before another attempt within this time, milliseconds. */
const SETTLE_RETRY_MS = 500;
const LINK_LOCAL = /^fe[89ab][0-9a-f]:/i;

/** Arguments of {@link IngressListener}. */
export interface IngressListenerOptions {
  /** Name of the setting in logs and problems, such as `--ingress-http`. */
  readonly flag: string;
  /** Host and port of the setting. An IPv6 address may have brackets. */
  readonly at: { readonly host: string; readonly port: number };
  /**
   * Returns the IPv4 and IPv6 addresses of the machine without those of services. Call
   * {@link IngressListener.update} after a change.
   */
  readonly machineAddresses: () => readonly string[];
  /** Receives each server that listens. */
  readonly serve: (server: Server) => void;
  readonly sockets: Pick<ListeningSockets, 'listenTcp'>;
  readonly clock: Clock;
  readonly random: Random;
  readonly log: Log;
}

/**
 * Returns true when an ingress with the setting `host` listens at `address`, unless a service has the
 * address: 0.0.0.0 stands for every IPv4 address, and [::] for every address but link-local ones. A
 * name stands for no address.
 */
export function listensAt(host: string, address: string): boolean {
  if (!isWildcard(host)) return isSameAddress(host, address);
  return acceptsAt(host, address) && !LINK_LOCAL.test(address);
}

/** A server at one address, or the attempts to listen there. */
interface Attempt {
  readonly beganMs: number;
  failures: number;
  problem?: string;
  server?: Server;
  retry?: Timer;
  isClosed: boolean;
}

/**
 * Listens at the address of a setting. For the hosts 0.0.0.0 and [::], single listeners at the
 * addresses of the machine leave the port free at the addresses of services, which a wildcard socket
 * would take as well.
 */
export class IngressListener {
  private readonly attempts = new Map<string, Attempt>();

  constructor(private readonly options: IngressListenerOptions) {}

  /** Why the setting is not served at every address, for people; undefined when it is. */
  get problem(): string | undefined {
    const { flag, at } = this.options;
    const prefix = `${flag} ${at.host}:${at.port}`;
    if (this.attempts.size === 0)
      return `${prefix}: no address of this machine is known that no service has at this port`;
    const failed = [...this.attempts].filter(([, { problem }]) => problem !== undefined);
    const [first] = failed;
    if (first === undefined) return undefined;
    const [address, { problem = '' }] = first;
    const others = failed.length > 1 ? ` and ${failed.length - 1} more` : '';
    const where = address === at.host ? '' : ` at ${address}${others}`;
    return `${prefix}: cannot listen${where}: ${problem}`;
  }

  /**
   * Opens and closes listeners after a change of the addresses of the machine; the first call begins
   * to listen. Resolves when each new address was tried once; failed attempts are repeated.
   */
  async update(): Promise<void> {
    const wanted = new Set(this.listAddresses());
    for (const [address, attempt] of this.attempts) {
      if (wanted.has(address)) continue;
      this.attempts.delete(address);
      closeAttempt(attempt);
    }
    const added = [...wanted].filter((address) => !this.attempts.has(address));
    const beganMs = this.options.clock.now();
    for (const address of added)
      this.attempts.set(address, { beganMs, failures: 0, isClosed: false });
    await Promise.all(added.map((address) => this.listen(address)));
  }

  /** Ends the attempts to listen. Servers that listen belong to their receiver. */
  close(): void {
    for (const attempt of this.attempts.values()) {
      attempt.isClosed = true;
      attempt.retry?.cancel();
    }
  }

  private listAddresses(): readonly string[] {
    const { at, machineAddresses } = this.options;
    // The system chooses one port for all addresses only for a wildcard socket.
    if (at.port === 0) return [at.host];
    if (!isWildcard(at.host)) return [at.host];
    return machineAddresses().filter((address) => listensAt(at.host, address));
  }

  private async listen(address: string): Promise<void> {
    const attempt = this.attempts.get(address);
    if (attempt === undefined || attempt.isClosed) return;
    const { flag, at, serve, sockets, log } = this.options;
    try {
      const server = await sockets.listenTcp(address, at.port);
      if (attempt.isClosed) return void server.close();
      delete attempt.problem;
      attempt.server = server;
      serve(server);
      const bound = server.address();
      const port = typeof bound === 'object' ? bound?.port : undefined;
      log.info('HTTP routes are served', { flag, host: address, port });
    } catch (reason) {
      if (attempt.isClosed) return;
      if (this.isSettling(address, attempt, reason))
        this.retryIn(SETTLE_RETRY_MS, address, attempt);
      else this.retryLater(address, attempt, errorMessageOf(reason));
    }
  }

  /** Returns true when an address is expected to accept listeners, or to be gone, soon. */
  private isSettling(address: string, { beganMs }: Attempt, reason: unknown): boolean {
    const { at, clock } = this.options;
    if (errorCodeOf(reason) !== 'EADDRNOTAVAIL') return false;
    // An IPv4 address of the setting works at once, or the setting is wrong.
    const mayChange = address !== at.host || isIPv6(address.replace(/[[\]]/g, ''));
    return mayChange && clock.now() - beganMs < SETTLE_MS;
  }

  private retryIn(delayMs: number, address: string, attempt: Attempt): void {
    attempt.retry = this.options.clock.setTimer(delayMs, () => void this.listen(address));
  }

  private retryLater(address: string, attempt: Attempt, problem: string): void {
    const { flag, random, log } = this.options;
    attempt.problem = problem;
    attempt.failures += 1;
    if (attempt.failures === 1)
      log.warn('HTTP routes are not served; trying again', { flag, host: address, problem });
    this.retryIn(backoffDelayMs(RETRY, attempt.failures, random), address, attempt);
  }
}

function closeAttempt(attempt: Attempt): void {
  attempt.isClosed = true;
  attempt.retry?.cancel();
  attempt.server?.close();
}
