import type { Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import { definedFields, type SampledSpan } from '@cloudless/base';
import { KEEP_ALIVE_MS, type Dialled } from '../dial/endpoint-dialler.js';
import type { OpenRequest } from '../link/open-request.js';
import {
  explainStale,
  identifyClient,
  identifyEndpoint,
  logAccess,
  type ProxyContext,
} from '../proxy/proxy-context.js';
import type { CarriedConnection } from '../service/connection-table.js';
import type { EndpointTarget, ServicePort } from '../service/service-port.js';
import { formatAddress } from '../stream/proxy-header.js';
import { resetStream, Splice } from '../stream/splice.js';

/** The connection of a client of this node to a service, from its accept to its end. */
export class TcpEntry implements CarriedConnection {
  private readonly startMs: number;
  private readonly clientAddress: string;
  private readonly clientPort: number;
  private excluded: Set<string> | undefined;
  private attempts = 0;
  private lastFailure = '';
  private target: EndpointTarget | undefined;
  private splice: Splice | undefined;
  private path: 'direct' | 'link' | 'relay' | 'none' = 'none';
  private readonly endOpening: () => void;
  /** From the accept until an endpoint carries the connection, or it was refused. */
  private readonly span: SampledSpan | undefined;

  /**
   * @param socket - Paused, and half-open connections are kept.
   * @param virtual - Address and port at which the client reached the service.
   * @param onSettled - Called once: an endpoint carries the connection, or it was refused.
   */
  constructor(
    private readonly context: ProxyContext,
    private readonly port: ServicePort,
    private readonly socket: Socket,
    private readonly virtual: string,
    private readonly onSettled: () => void,
  ) {
    this.startMs = context.clock.now();
    this.endOpening = context.connections.noteOpening();
    this.span = context.tracer.begin(`connect ${port.serviceKey}`, 'client');
    this.clientAddress = socket.remoteAddress ?? '';
    this.clientPort = socket.remotePort ?? 0;
    socket.setNoDelay(true);
    // The connection of a client that went away without closing it would stay for ever.
    socket.setKeepAlive(true, KEEP_ALIVE_MS);
    socket.on('error', () => undefined);
    this.connect();
  }

  get endpointId(): string {
    return this.target?.endpoint.id ?? '';
  }

  get replicaId(): string {
    return this.target?.endpoint.replicaId ?? '';
  }

  get nodeId(): string {
    return this.target?.endpoint.nodeId ?? '';
  }

  get carriedBytes(): number {
    return (this.splice?.sentBytes ?? 0) + (this.splice?.receivedBytes ?? 0);
  }

  get idleTimeoutMs(): number {
    return this.port.settings.idleTimeoutMs;
  }

  reset(reason: string): void {
    this.splice?.reset(reason);
  }

  private connect(): void {
    if (this.socket.destroyed) return this.refuse('the client closed the connection');
    const { clock, limits, dialler } = this.context;
    const choice = this.port.balancer.choose({
      clientAddress: this.clientAddress,
      nowMs: clock.now(),
      ...(this.excluded === undefined ? {} : { exclude: this.excluded }),
    });
    if (choice.kind === 'refused')
      return this.refuse(this.attempts === 0 ? choice.reason : this.lastFailure);
    const target = this.port.target(choice.endpointId);
    if (target === undefined || this.attempts >= limits.maxAttempts)
      return this.refuse(this.lastFailure || 'noEndpoints');
    this.attempts += 1;
    this.port.balancer.opened(choice.endpointId);
    const { connectTimeoutMs, proxyProtocol } = this.port.settings;
    const options = { timeoutMs: connectTimeoutMs, proxyProtocol };
    dialler.dial(
      target,
      () => this.describe(target),
      options,
      (dialled) => this.onDialled(target, dialled),
    );
  }

  private get client(): string {
    return formatAddress({ address: this.clientAddress, port: this.clientPort });
  }

  private describe({ endpoint, portName }: EndpointTarget): OpenRequest {
    return {
      endpoint: endpoint.id,
      port: portName,
      protocol: 'tcp',
      client: this.client,
      virtual: this.virtual,
      identity: identifyClient(this.context, this.clientAddress),
      ...definedFields({ trace: this.span?.traceparent }),
    };
  }

  private onDialled(target: EndpointTarget, dialled: Dialled): void {
    const { balancer } = this.port;
    const { id } = target.endpoint;
    const nowMs = this.context.clock.now();
    const counts = this.port.countsOf(id);
    // The endpoint may have gone while it was connected.
    const stale = explainStale(this.context, target);
    if (dialled.kind === 'failed' || stale !== undefined) {
      balancer.closed(id);
      if (dialled.kind === 'failed') {
        balancer.reportFailed(id, nowMs);
        counts.failures += 1;
        this.lastFailure = dialled.reason;
      } else {
        resetStream(dialled.stream);
        this.lastFailure = stale ?? '';
      }
      this.excluded ??= new Set();
      this.excluded.add(id);
      return this.connect();
    }
    balancer.reportConnected(id, nowMs);
    counts.connections += 1;
    this.carry(target, dialled.stream, dialled.path);
  }

  private carry(target: EndpointTarget, stream: Duplex, path: typeof this.path): void {
    this.target = target;
    this.path = path;
    this.onSettled();
    this.endSpan();
    this.context.connections.add(this, this.startMs);
    this.endOpening();
    this.port.openConnections += 1;
    this.splice = new Splice(this.socket, stream, (result) => this.end(target, result));
  }

  private end(target: EndpointTarget, result: string): void {
    const { id } = target.endpoint;
    this.context.connections.remove(this);
    this.port.openConnections -= 1;
    this.port.balancer.closed(id);
    const counts = this.port.countsOf(id);
    counts.sentBytes += this.splice?.sentBytes ?? 0;
    counts.receivedBytes += this.splice?.receivedBytes ?? 0;
    this.log(result);
  }

  private refuse(result: string): void {
    this.onSettled();
    this.endSpan(result);
    this.endOpening();
    this.port.countRefusal(this.attempts === 0 ? result : 'connectFailed');
    resetStream(this.socket);
    this.log(result);
  }

  private endSpan(failure?: string): void {
    this.span?.end(
      {
        'client.address': this.clientAddress,
        'cloudless.service': this.port.serviceKey,
        'cloudless.port': this.port.name,
        'cloudless.endpoint': this.endpointId,
        'cloudless.path': this.path,
        'cloudless.attempts': this.attempts,
      },
      failure,
    );
  }

  private log(result: string): void {
    const { context, target } = this;
    logAccess(context, this.port, result, () => ({
      startMs: this.startMs,
      protocol: 'tcp',
      side: 'entry',
      client: this.client,
      clientIdentity: identifyClient(context, this.clientAddress),
      endpoint: this.endpointId,
      endpointIdentity: target === undefined ? '' : identifyEndpoint(context, target),
      path: this.path,
      sentBytes: this.splice?.sentBytes ?? 0,
      receivedBytes: this.splice?.receivedBytes ?? 0,
      attempts: this.attempts,
      result,
    }));
  }
}
