import { readFileSync } from 'node:fs';
import type { Socket as UdpSocket } from 'node:dgram';
import type { Server } from 'node:net';
import { errorFields, errorMessageOf, type Clock, type Log } from '@cloudless/base';
import type { NetworkChanges, NetworkView } from '../model/network-model.js';
import type { ListeningSockets } from '../ports.js';
import { DnsServer, type DnsCounts } from './dns-server.js';
import { createLocalClients } from './local-clients.js';
import { parseResolvers, type Resolver } from './resolvers.js';
import { ZoneFeed } from './zone-feed.js';

/** Port of DNS, and the port that is used where DNS's own is taken or forbidden. */
export const DNS_PORTS = [53, 5353] as const;
/** Time for which the list of resolvers of the host is used, milliseconds. */
const RESOLVERS_REFRESH_MS = 5_000;

/** Options of a {@link NetworkDns}. */
export interface NetworkDnsOptions {
  readonly view: NetworkView;
  readonly sockets: ListeningSockets;
  readonly clock: Clock;
  readonly log: Log;
  /** Returns true when the replicas of a node run on this machine. */
  readonly isLocalNode: (nodeId: string) => boolean;
  /**
   * Returns true when a client runs on this machine. Default: own addresses and networks of
   * bridges.
   */
  readonly isLocalClient?: ((address: string) => boolean) | undefined;
  /** File with the resolvers of the host. Default: `/etc/resolv.conf`. */
  readonly resolvConf?: string | undefined;
  /** Ports to listen at, the first that is free. Default: {@link DNS_PORTS}. */
  readonly ports?: readonly number[] | undefined;
}

/** Address at which the DNS server listens, by UDP and TCP. */
export interface DnsAddress {
  readonly address: string;
  readonly port: number;
}

/**
 * The DNS server of a node with its sockets: follows the network of the proxy and listens at the
 * DNS address of the cluster by UDP and TCP.
 */
export class NetworkDns {
  private readonly feed: ZoneFeed;
  private readonly server: DnsServer;
  private udp: UdpSocket | undefined;
  private tcp: Server | undefined;
  private listeningAt: DnsAddress | undefined;
  private lastProblem: string | undefined;
  private isAtFirstPort = false;
  private listening: Promise<void> = Promise.resolve();
  private isClosed = false;

  constructor(private readonly options: NetworkDnsOptions) {
    const { view, clock, log, isLocalNode } = options;
    this.feed = new ZoneFeed(view, isLocalNode);
    const range = (): ZoneFeed['range'] => this.feed.range;
    this.server = new DnsServer({
      zone: () => this.feed.zone,
      range,
      resolvers: this.createResolvers(options.resolvConf ?? '/etc/resolv.conf'),
      isLocalClient: options.isLocalClient ?? createLocalClients(clock),
      clock,
      log,
    });
  }

  /** Address at which the server listens; undefined while it does not. */
  get address(): DnsAddress | undefined {
    return this.listeningAt;
  }

  /** Reason why the server does not listen, as a text for people. */
  get problem(): string | undefined {
    return this.lastProblem;
  }

  get counts(): Readonly<DnsCounts> {
    return this.server.counts;
  }

  /** Takes over changes of the view. See {@link ZoneFeed.apply}. */
  apply(changes: NetworkChanges, isComplete: boolean): void {
    this.feed.apply(changes, isComplete);
  }

  /** Notes that other nodes are local now. */
  noteLocalNodes(isComplete: boolean): void {
    this.feed.rebuild();
    if (isComplete) this.feed.zone?.markComplete();
  }

  /**
   * Listens at the DNS address of the settings, once the virtual addresses are reachable. Call it
   * again when the settings have changed, and from time to time: a server at another port moves to
   * the port of DNS when that is free. Never rejects: see `problem`.
   */
  listen(): Promise<void> {
    this.listening = this.listening.then(() => this.listenNow());
    return this.listening;
  }

  private async listenNow(): Promise<void> {
    const address = this.options.view.settings?.dnsAddress ?? '';
    if (address === '' || this.isClosed) return;
    if (this.listeningAt?.address === address) return this.moveToFirstPort(address);
    this.closeSockets();
    const failures: string[] = [];
    for (const port of this.options.ports ?? DNS_PORTS) {
      try {
        await this.listenAt(address, port);
        this.isAtFirstPort = failures.length === 0;
        this.lastProblem = undefined;
        if (failures.length > 0) {
          this.options.log.warn('the DNS server listens at another port', {
            address,
            port,
            error: failures.join('; '),
          });
        }
        return;
      } catch (reason) {
        failures.push(`port ${port}: ${errorMessageOf(reason)}`);
      }
    }
    const isKnown = this.lastProblem !== undefined;
    this.lastProblem = `DNS does not listen at ${address}: ${failures.join('; ')}`;
    if (isKnown) return;
    this.options.log.warn('the DNS server does not listen', {
      address,
      error: failures.join('; '),
    });
  }

  /**
   * Stops listening. Questions that wait are answered while the sockets are still open elsewhere.
   */
  close(): void {
    this.isClosed = true;
    this.closeSockets();
  }

  private async moveToFirstPort(address: string): Promise<void> {
    const [first] = this.options.ports ?? DNS_PORTS;
    if (this.isAtFirstPort || first === undefined) return;
    const { udp, tcp } = this;
    try {
      await this.listenAt(address, first);
    } catch {
      return; // the port is still taken
    }
    this.isAtFirstPort = true;
    udp?.close();
    tcp?.close();
    this.options.log.info('the DNS server listens at its own port now', { address, port: first });
  }

  private async listenAt(address: string, port: number): Promise<void> {
    const { sockets } = this.options;
    const udp = await sockets.bindUdp(address, port);
    try {
      const boundPort = udp.address().port;
      const tcp = await sockets.listenTcp(address, boundPort);
      if (this.isClosed) {
        tcp.close();
        throw new Error('the proxy stops');
      }
      this.logFailures(tcp);
      this.server.serveUdp(udp);
      this.server.serveTcp(tcp);
      this.udp = udp;
      this.tcp = tcp;
      this.listeningAt = { address, port: boundPort };
    } catch (reason) {
      udp.close();
      throw reason;
    }
  }

  /**
   * Logs the failures of a listener, which may repeat every second while the listener waits for its
   * address: the first, each new reason, and once that the listener works again.
   */
  private logFailures(tcp: Server): void {
    const { log } = this.options;
    let failure: string | undefined;
    tcp.on('error', (error) => {
      if (error.message === failure) return;
      failure = error.message;
      log.warn('the DNS listener failed', errorFields(error));
    });
    tcp.on('listening', () => {
      if (failure !== undefined) log.info('the DNS listener works again');
      failure = undefined;
    });
  }

  private closeSockets(): void {
    this.udp?.close();
    this.tcp?.close();
    this.udp = undefined;
    this.tcp = undefined;
    this.listeningAt = undefined;
  }

  /** Reads the file again after a while, because DHCP and VPN clients change the file. */
  private createResolvers(file: string): () => readonly Resolver[] {
    const { clock, log } = this.options;
    let readAtMs = -Infinity;
    let resolvers: readonly Resolver[] = [];
    let isWarned = false;
    return () => {
      if (clock.now() - readAtMs < RESOLVERS_REFRESH_MS) return resolvers;
      readAtMs = clock.now();
      try {
        resolvers = parseResolvers(readFileSync(file, 'utf8'), this.feed.range);
      } catch (reason) {
        log.debug('the resolvers of the host are not known', { file, ...errorFields(reason) });
        resolvers = [];
      }
      if (resolvers.length === 0 && !isWarned) {
        isWarned = true;
        log.warn('names outside the cluster are not resolved: the host has no resolver', { file });
      }
      return resolvers;
    };
  }
}
