import type { RemoteInfo, Socket } from 'node:dgram';
import {
  identifyClient,
  identifyEndpoint,
  logAccess,
  type ProxyContext,
} from '../proxy/proxy-context.js';
import type { CarriedConnection } from '../service/connection-table.js';
import type { EndpointTarget, ServicePort } from '../service/service-port.js';
import { formatAddress } from '../stream/proxy-header.js';
import { CLOSED } from '../stream/splice.js';
import { SessionTable } from './session-table.js';
import { openStreamPeer, openUdpPeer, type UdpPeer } from './udp-peer.js';

/** Datagrams of one session that wait while it is opened. Further ones are dropped. */
const MAX_WAITING_DATAGRAMS = 16;

/** Carries the datagrams that clients of this node send to one address of a service. */
export class UdpEntry {
  /** By address and port of the client. */
  private readonly sessions: SessionTable<UdpSession>;

  /**
   * @param port - Returns the port of the service as it is at the moment.
   * @param accepts - Returns true for a client that is served. Default: every client.
   */
  constructor(
    private readonly context: ProxyContext,
    private readonly port: () => ServicePort | undefined,
    private readonly socket: Socket,
    private readonly virtual: string,
    private readonly accepts: (clientAddress: string) => boolean = () => true,
  ) {
    this.sessions = new SessionTable(context.limits.maxUdpSessions);
    socket.on('message', (datagram, client) => this.receive(datagram, client));
    socket.on('error', () => undefined);
  }

  get sessionCount(): number {
    return this.sessions.size;
  }

  /** Ends sessions without datagrams. */
  endIdle(nowMs: number): void {
    for (const session of this.sessions.sessions())
      if (nowMs - session.lastMs >= this.context.limits.udpIdleMs) session.end(CLOSED);
  }

  close(): void {
    for (const session of this.sessions.sessions()) session.end('the proxy stops');
  }

  private receive(datagram: Buffer, client: RemoteInfo): void {
    if (!this.accepts(client.address)) return;
    const key = `${client.address} ${client.port}`;
    const known = this.sessions.use(key);
    if (known !== undefined) return known.send(datagram);
    const port = this.port();
    if (port === undefined) return;
    this.sessions.findReplaced(client.address)?.end('replaced by the session of another client');
    const choice = port.balancer.choose({
      clientAddress: client.address,
      nowMs: this.context.clock.now(),
    });
    const target = choice.kind === 'endpoint' ? port.target(choice.endpointId) : undefined;
    if (target === undefined)
      return port.countRefusal(choice.kind === 'refused' ? choice.reason : 'noEndpoints');
    const session = new UdpSession(this.context, port, target, {
      client: formatAddress(client),
      clientAddress: client.address,
      virtual: this.virtual,
      reply: (answer) => {
        this.sessions.noteAnswer(key);
        this.socket.send(answer, client.port, client.address, () => undefined);
      },
      onEnd: () => this.sessions.delete(key),
    });
    this.sessions.add(key, client.address, session);
    session.open();
    session.send(datagram);
  }
}

interface SessionClient {
  readonly client: string;
  readonly clientAddress: string;
  readonly virtual: string;
  readonly reply: (datagram: Buffer) => void;
  readonly onEnd: () => void;
}

/** The datagrams of one client. They all go to one endpoint, until it leaves. */
class UdpSession implements CarriedConnection {
  readonly idleTimeoutMs = 0;
  readonly isDatagram = true;
  lastMs: number;
  private readonly startMs: number;
  private waiting: Buffer[] | undefined = [];
  private peer: UdpPeer | undefined;
  private sentBytes = 0;
  private receivedBytes = 0;
  private hasEnded = false;
  private path: 'direct' | 'link' | 'relay' | 'none' = 'none';

  constructor(
    private readonly context: ProxyContext,
    private readonly port: ServicePort,
    private readonly target: EndpointTarget,
    private readonly from: SessionClient,
  ) {
    this.startMs = this.lastMs = context.clock.now();
    context.connections.add(this, this.startMs);
    port.openConnections += 1;
    port.balancer.opened(target.endpoint.id);
  }

  get endpointId(): string {
    return this.target.endpoint.id;
  }

  get replicaId(): string {
    return this.target.endpoint.replicaId;
  }

  get nodeId(): string {
    return this.target.endpoint.nodeId;
  }

  get carriedBytes(): number {
    return this.sentBytes + this.receivedBytes;
  }

  open(): void {
    const { context, target } = this;
    const handlers = {
      onOpen: () => this.onOpen(),
      onDatagram: (datagram: Buffer) => {
        this.receivedBytes += datagram.length;
        this.lastMs = context.clock.now();
        this.from.reply(datagram);
      },
      onEnd: (reason: string) => this.fail(reason),
    };
    const route = context.dialler.route(target);
    if (route.kind === 'refused') return this.fail(route.reason);
    if (route.kind === 'direct') {
      this.path = 'direct';
      this.peer = openUdpPeer(target.ip, target.port, handlers);
      return;
    }
    const request = {
      endpoint: target.endpoint.id,
      port: target.portName,
      protocol: 'udp' as const,
      client: this.from.client,
      virtual: this.from.virtual,
      identity: identifyClient(context, this.from.clientAddress),
    };
    const options = { timeoutMs: this.port.settings.connectTimeoutMs, proxyProtocol: false };
    context.dialler.dial(
      target,
      () => request,
      options,
      (dialled) => {
        if (dialled.kind === 'failed') return this.fail(dialled.reason);
        if (this.hasEnded) return void dialled.stream.destroy();
        this.path = dialled.path;
        this.peer = openStreamPeer(dialled.stream, handlers);
        this.onOpen();
      },
    );
  }

  send(datagram: Buffer): void {
    this.lastMs = this.context.clock.now();
    this.sentBytes += datagram.length;
    if (this.waiting === undefined) this.peer?.send(datagram);
    else if (this.waiting.length < MAX_WAITING_DATAGRAMS) this.waiting.push(datagram);
  }

  reset(reason: string): void {
    this.end(reason);
  }

  end(result: string): void {
    if (this.hasEnded) return;
    this.hasEnded = true;
    this.peer?.close();
    const { context, port, target } = this;
    const { id } = target.endpoint;
    context.connections.remove(this);
    port.openConnections -= 1;
    port.balancer.closed(id);
    const counts = port.countsOf(id);
    counts.sentBytes += this.sentBytes;
    counts.receivedBytes += this.receivedBytes;
    this.from.onEnd();
    logAccess(context, port, result, () => ({
      startMs: this.startMs,
      protocol: 'udp',
      side: 'entry',
      client: this.from.client,
      clientIdentity: identifyClient(context, this.from.clientAddress),
      endpoint: id,
      endpointIdentity: identifyEndpoint(context, target),
      path: this.path,
      sentBytes: this.sentBytes,
      receivedBytes: this.receivedBytes,
      attempts: 1,
      result,
    }));
  }

  private onOpen(): void {
    const { waiting = [] } = this;
    this.waiting = undefined;
    this.port.countsOf(this.endpointId).connections += 1;
    this.port.balancer.reportConnected(this.endpointId, this.context.clock.now());
    for (const datagram of waiting) this.peer?.send(datagram);
  }

  /** The next datagram of the client begins another session. */
  private fail(reason: string): void {
    if (this.hasEnded) return;
    this.port.countsOf(this.endpointId).failures += 1;
    this.port.balancer.reportFailed(this.endpointId, this.context.clock.now());
    this.end(reason);
  }
}
