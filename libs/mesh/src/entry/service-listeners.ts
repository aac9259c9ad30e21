import type { Socket as UdpSocket } from 'node:dgram';
import type { Server } from 'node:net';
import {
  backoffDelayMs,
  errorCodeOf,
  errorMessageOf,
  type BackoffPolicy,
  type Timer,
} from '@cloudless/base';
import type { ListeningSockets } from '../ports.js';
import type { ProxyContext } from '../proxy/proxy-context.js';
import type { ServicePort } from '../service/service-port.js';
import { formatAddress } from '../stream/proxy-header.js';
import { resetStream } from '../stream/splice.js';
import { UdpEntry } from '../udp/udp-entry.js';
import { DiallingClients } from './dialling-clients.js';
import {
  listenerKey,
  planListeners,
  type PlannedListener,
  type ReservableListener,
} from './plan-listeners.js';
import { TcpEntry } from './tcp-entry.js';

/** Delay before an address that could not be listened at is tried again. */
const RETRY: BackoffPolicy = { firstMs: 200, maxMs: 30_000, jitter: 0.2 };

/**
 * Delay before another attempt at an external address that the machine does not have, milliseconds.
 * There may be thousands of such addresses, and not all are among those of the interfaces.
 */
export const EXTERNAL_CHECK_MS = 5_000;

interface Listener {
  readonly planned: PlannedListener;
  /** True while the machine does not have the external address. */
  awaitsAddress: boolean;
  failures: number;
  problem?: string;
  tcp?: Server;
  udp?: UdpEntry;
  udpSocket?: UdpSocket;
  retry?: Timer;
  isClosed: boolean;
}

export interface ServiceListenersOptions {
  readonly context: ProxyContext;
  readonly sockets: ListeningSockets;
  /** Returns the addresses at which node ports listen. Call `updateNodePorts` after a change. */
  readonly nodePortAddresses: () => readonly string[];
  /** As in `NetworkProxyOptions`. The answer for a listener never changes. */
  readonly explainReserved: (listener: ReservableListener) => string | undefined;
  /** Returns true when a client may use virtual addresses. */
  readonly mayUseVirtual: (clientAddress: string) => boolean;
}

/**
 * Listens at the addresses of services that have a ready endpoint, so that clients of other
 * services are refused by the kernel at once.
 */
export class ServiceListeners {
  private readonly listeners = new Map<string, Listener>();
  private readonly byService = new Map<string, Set<string>>();
  /** Services that wait for an address of another service, by address. */
  private readonly waiting = new Map<string, string>();
  private readonly dialling: DiallingClients;
  private isVirtualServed = false;
  private isStarted = false;

  constructor(private readonly options: ServiceListenersOptions) {
    this.dialling = new DiallingClients(options.context.limits.maxConnections);
  }

  /** Open listeners. */
  get openCount(): number {
    let count = 0;
    for (const { tcp, udp } of this.listeners.values()) if (tcp ?? udp) count += 1;
    return count;
  }

  /**
   * Addresses at which the proxy cannot listen, with the causes, as texts for people: one text for
   * all addresses of one scope of a port of a service, with the first address and its cause.
   */
  get problems(): readonly string[] {
    const byPort = new Map<string, { at: string; problem: string; others: number }>();
    for (const { planned, problem } of this.listeners.values()) {
      if (problem === undefined) continue;
      const port = JSON.stringify([planned.serviceKey, planned.portName, planned.scope]);
      const known = byPort.get(port);
      if (known === undefined) byPort.set(port, { at: listenerKey(planned), problem, others: 0 });
      else known.others += 1;
    }
    return [...byPort.values()].map(({ at, problem, others }) => {
      const more = others > 0 ? ` and ${others} more` : '';
      return `cannot listen at ${at}${more}: ${problem}`;
    });
  }

  /** Begins to listen at external addresses and node ports. */
  start(): void {
    this.isStarted = true;
    this.updateAll();
  }

  /** Listens at virtual addresses, or ends that. */
  serveVirtual(isServed: boolean): void {
    if (this.isVirtualServed === isServed) return;
    this.isVirtualServed = isServed;
    this.updateAll();
  }

  /** Opens and closes listeners of services that have changed. */
  update(serviceKeys: Iterable<string>): void {
    if (!this.isStarted) return;
    for (const key of serviceKeys) this.updateService(key);
  }

  /** Opens and closes listeners after a change of the addresses of the machine. */
  updateNodePorts(): void {
    this.updateAll();
    const addresses = new Set(this.options.nodePortAddresses());
    for (const listener of this.listeners.values()) {
      if (!listener.awaitsAddress || !addresses.has(listener.planned.address)) continue;
      listener.retry?.cancel();
      void this.open(listener);
    }
  }

  /** Ends UDP sessions without datagrams. */
  endIdle(nowMs: number): void {
    for (const { udp } of this.listeners.values()) udp?.endIdle(nowMs);
  }

  /** Accepts no further connections. UDP sessions go on while `keepsSessions`. */
  close(keepsSessions: boolean): void {
    this.isStarted = false;
    for (const [key, listener] of this.listeners) {
      if (keepsSessions && listener.udp !== undefined && listener.udp.sessionCount > 0) continue;
      this.listeners.delete(key);
      this.closeListener(listener);
    }
  }

  private updateAll(): void {
    this.update([...this.byService.keys(), ...this.options.context.view.services.keys()]);
  }

  private updateService(serviceKey: string): void {
    const wanted = new Map(
      this.plan(serviceKey).map((planned) => [listenerKey(planned), planned] as const),
    );
    const held = this.byService.get(serviceKey) ?? new Set<string>();
    for (const key of [...held]) {
      const listener = this.listeners.get(key);
      const planned = wanted.get(key);
      if (planned !== undefined && planned.portName === listener?.planned.portName) continue;
      held.delete(key);
      this.listeners.delete(key);
      if (listener !== undefined) this.closeListener(listener);
      const next = this.waiting.get(key);
      this.waiting.delete(key);
      if (next !== undefined && next !== serviceKey) queueMicrotask(() => this.update([next]));
    }
    for (const [key, planned] of wanted) {
      const other = this.listeners.get(key);
      if (other !== undefined) {
        if (other.planned.serviceKey !== serviceKey) this.waiting.set(key, serviceKey);
        continue;
      }
      held.add(key);
      const listener: Listener = { planned, awaitsAddress: false, failures: 0, isClosed: false };
      this.listeners.set(key, listener);
      void this.open(listener);
    }
    if (held.size === 0) this.byService.delete(serviceKey);
    else this.byService.set(serviceKey, held);
  }

  private plan(serviceKey: string): readonly PlannedListener[] {
    const { context, nodePortAddresses } = this.options;
    const entry = context.view.services.get(serviceKey);
    if (entry === undefined) return [];
    return planListeners(serviceKey, entry, nodePortAddresses()).filter(
      ({ portName, scope }) =>
        (this.isVirtualServed || scope !== 'virtual') &&
        context.services.port(serviceKey, portName)?.hasReady === true,
    );
  }

  private async open(listener: Listener): Promise<void> {
    const { planned } = listener;
    const { address, port, protocol } = planned;
    const { sockets, context, explainReserved } = this.options;
    listener.awaitsAddress = false;
    const reserved = protocol === 'tcp' ? explainReserved(planned) : undefined;
    if (reserved !== undefined) return this.refuse(listener, reserved);
    try {
      if (protocol === 'tcp') {
        const server = await sockets.listenTcp(address, port);
        if (listener.isClosed) return void server.close();
        this.serveTcp(listener, server);
      } else {
        const socket = await sockets.bindUdp(address, port);
        if (listener.isClosed) return void socket.close();
        listener.udpSocket = socket;
        const virtual = formatAddress({ address, port });
        const find = (): ServicePort | undefined => this.portOf(planned);
        listener.udp = new UdpEntry(context, find, socket, virtual, this.acceptsOf(planned));
      }
      delete listener.problem;
      listener.failures = 0;
    } catch (reason) {
      if (listener.isClosed) return;
      if (planned.scope === 'external' && errorCodeOf(reason) === 'EADDRNOTAVAIL')
        this.awaitAddress(listener);
      else this.retryLater(listener, errorMessageOf(reason));
    }
  }

  private refuse(listener: Listener, reserved: string): void {
    const { serviceKey, scope } = listener.planned;
    const other = scope === 'node' ? 'node port' : 'address or port';
    listener.problem = `${reserved}; give service "${serviceKey}" another ${other}`;
    this.options.context.log.warn('an address of a service belongs to another server', {
      ...{ address: listenerKey(listener.planned), service: serviceKey, reserved },
    });
  }

  /** Other machines may have an external address, and this machine may get the address from them. */
  private awaitAddress(listener: Listener): void {
    delete listener.problem;
    listener.failures = 0;
    listener.awaitsAddress = true;
    listener.retry = this.options.context.clock.setTimer(
      EXTERNAL_CHECK_MS,
      () => void this.open(listener),
    );
  }

  private retryLater(listener: Listener, problem: string): void {
    const { clock, random, log } = this.options.context;
    listener.problem = problem;
    listener.failures += 1;
    if (listener.failures === 1)
      log.warn('cannot listen at an address of a service; trying again', {
        ...{ address: listenerKey(listener.planned), service: listener.planned.serviceKey },
        error: problem,
      });
    const delayMs = backoffDelayMs(RETRY, listener.failures, random);
    listener.retry = clock.setTimer(delayMs, () => void this.open(listener));
  }

  private serveTcp(listener: Listener, server: Server): void {
    const { context } = this.options;
    const { address, port: at } = listener.planned;
    const virtual = formatAddress({ address, port: at });
    listener.tcp = server;
    const accepts = this.acceptsOf(listener.planned);
    server.on('connection', (socket) => {
      if (!accepts(socket.remoteAddress ?? '')) {
        this.portOf(listener.planned)?.countRefusal('foreignClient');
        return resetStream(socket);
      }
      const port = this.portOf(listener.planned);
      const client = socket.remoteAddress ?? '';
      if (port === undefined || !this.dialling.begin(client, context.connections.size)) {
        port?.countRefusal('tooManyConnections');
        resetStream(socket);
        return;
      }
      void new TcpEntry(context, port, socket, virtual, () => this.dialling.end(client));
    });
    server.on('error', () => undefined);
  }

  private acceptsOf({ scope }: PlannedListener): (clientAddress: string) => boolean {
    return scope === 'virtual' ? this.options.mayUseVirtual : () => true;
  }

  private portOf({ serviceKey, portName }: PlannedListener): ServicePort | undefined {
    return this.options.context.services.port(serviceKey, portName);
  }

  private closeListener(listener: Listener): void {
    listener.isClosed = true;
    listener.retry?.cancel();
    listener.tcp?.close();
    listener.udp?.close();
    listener.udpSocket?.close();
  }
}
