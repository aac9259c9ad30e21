import { Port_Protocol } from '@cloudless/api';
import type { Timer } from '@cloudless/base';
import type { Link } from '../link/link.js';
import type { LinkStream } from '../link/link-stream.js';
import type { OpenRequest, Refusal } from '../link/open-request.js';
import { toServiceKey } from '../model/network-model.js';
import {
  explainStale,
  identifyEndpoint,
  logAccess,
  type ProxyContext,
} from '../proxy/proxy-context.js';
import type { CarriedConnection } from '../service/connection-table.js';
import type { EndpointTarget } from '../service/service-port.js';
import { DEFAULT_CONNECT_TIMEOUT_MS } from '../service/service-settings.js';
import { Splice } from '../stream/splice.js';
import { UdpExit } from '../udp/udp-exit.js';
import { attestRequest } from './attest-request.js';

/** Time for which a stream waits for an endpoint that this proxy has not heard of yet, ms. */
const LATE_ENDPOINT_MS = 1_000;
/** Streams that wait at a time. */
const MAX_WAITING = 256;
/** Attempts to connect for one peer at a time, including those whose stream was reset meanwhile. */
const MAX_ATTEMPTS_PER_LINK = 512;

interface WaitingStream {
  readonly request: OpenRequest;
  readonly stream: LinkStream;
  readonly link: Link;
  readonly timer: Timer;
}

/**
 * Connects the streams of other nodes to endpoints of this node. A stream names an endpoint and a
 * port, never an address, so that a peer reaches nothing but declared ports of replicas of this node.
 */
export class ExitStreams {
  /** By endpoint. */
  private readonly waiting = new Map<string, Set<WaitingStream>>();
  private waitingCount = 0;
  private isDraining = false;
  private readonly attempts = new WeakMap<Link, number>();

  constructor(private readonly context: ProxyContext) {}

  /** Connects a stream, or refuses with the reason. */
  open(asked: OpenRequest, stream: LinkStream, link: Link): void {
    const request = attestRequest(this.context, asked, link.peerNodeId);
    if (this.isDraining)
      return stream.refuse({
        code: 'draining',
        message: `the proxy of the node "${this.context.nodeId}" is about to stop`,
      });
    const found = this.find(request);
    if (found.kind === 'target') return this.connect(found.target, request, stream, link);
    // The dialler may have heard of a new endpoint first.
    const mayWait = found.isUnknown && this.waitingCount < MAX_WAITING;
    if (mayWait) this.wait(request, stream, link, found.refusal);
    else stream.refuse(found.refusal);
  }

  /** Connects streams whose endpoint has become known. Call after each change of the network. */
  retry(): void {
    for (const [endpointId, streams] of [...this.waiting]) {
      if (!this.context.view.endpoints.has(endpointId)) continue;
      for (const each of [...streams]) {
        this.forget(each);
        if (!each.stream.destroyed) this.open(each.request, each.stream, each.link);
      }
    }
  }

  /** Refuses streams from now on. Attempts to connect that are under way go on. */
  drain(): void {
    this.isDraining = true;
    for (const streams of [...this.waiting.values()])
      for (const each of [...streams]) {
        this.forget(each);
        if (!each.stream.destroyed) this.open(each.request, each.stream, each.link);
      }
  }

  private find(
    request: OpenRequest,
  ):
    | { readonly kind: 'target'; readonly target: EndpointTarget }
    | { readonly kind: 'refused'; readonly refusal: Refusal; readonly isUnknown: boolean } {
    const { view, dialler, nodeId } = this.context;
    const refuse = (message: string, isUnknown = false) => ({
      kind: 'refused' as const,
      refusal: { code: 'unknownEndpoint' as const, message },
      isUnknown,
    });
    const endpoint = view.endpoints.get(request.endpoint);
    if (endpoint === undefined)
      return refuse(`the node "${nodeId}" knows no endpoint "${request.endpoint}"`, true);
    if (endpoint.nodeId === '' || !dialler.isLocal(endpoint.nodeId))
      return refuse(`the endpoint "${request.endpoint}" is not on the node "${nodeId}"`);
    if (this.context.ended.has(endpoint))
      return refuse(`the replica of the endpoint "${request.endpoint}" has ended`);
    const address = endpoint.ports.find(({ name }) => name === request.port);
    const service = view.services.get(toServiceKey(endpoint.namespace, endpoint.service));
    const declared = service?.spec?.ports.find(({ name }) => name === request.port);
    const protocol = declared?.protocol === Port_Protocol.UDP ? 'udp' : 'tcp';
    if (address === undefined || declared === undefined || protocol !== request.protocol)
      return refuse(
        `the endpoint "${request.endpoint}" has no ${request.protocol} port "${request.port}"`,
      );
    const { ip, port } = address;
    return {
      kind: 'target',
      target: { endpoint, portName: request.port, ip, port, isReady: endpoint.ready },
    };
  }

  private connect(
    target: EndpointTarget,
    request: OpenRequest,
    stream: LinkStream,
    link: Link,
  ): void {
    const { context } = this;
    const key = toServiceKey(target.endpoint.namespace, target.endpoint.service);
    const settings = context.services.port(key, request.port)?.settings;
    if (request.protocol === 'udp') return void new UdpExit(context, target, request, stream, link);
    const startMs = context.clock.now();
    const options = {
      timeoutMs: settings?.connectTimeoutMs ?? DEFAULT_CONNECT_TIMEOUT_MS,
      proxyProtocol: settings?.proxyProtocol ?? false,
    };
    const attempts = this.attempts.get(link) ?? 0;
    if (attempts >= MAX_ATTEMPTS_PER_LINK)
      return stream.refuse({
        code: 'limit',
        message: `${attempts} attempts to connect are under way for this connection`,
      });
    this.attempts.set(link, attempts + 1);
    const endOpening = context.connections.noteOpening();
    const span =
      request.trace === undefined
        ? undefined
        : context.tracer.begin(`connect ${target.endpoint.id}`, 'server', request.trace);
    context.dialler.dial(
      target,
      () => request,
      options,
      (dialled) => {
        this.attempts.set(link, (this.attempts.get(link) ?? 1) - 1);
        span?.end(
          { 'cloudless.peer': link.peerNodeId, 'cloudless.path': link.path },
          dialled.kind === 'failed' ? dialled.reason : undefined,
        );
        if (dialled.kind === 'failed') {
          endOpening();
          if (!stream.destroyed)
            stream.refuse({
              code: 'connectFailed',
              message: `the endpoint does not accept the connection: ${dialled.reason}`,
            });
          return;
        }
        const stale = explainStale(context, target);
        if (stream.destroyed || stale !== undefined) {
          dialled.stream.destroy();
          endOpening();
          if (!stream.destroyed) stream.refuse({ code: 'notReady', message: stale ?? '' });
          return;
        }
        stream.accept();
        const carried = new CarriedStream(target, settings?.idleTimeoutMs ?? 0);
        context.connections.add(carried, startMs);
        endOpening();
        carried.splice = new Splice(stream, dialled.stream, (result) => {
          context.connections.remove(carried);
          logAccess(context, { serviceKey: key, name: request.port }, result, () => ({
            startMs,
            protocol: 'tcp',
            side: 'exit',
            client: request.client,
            clientIdentity: `${request.identity} via ${link.peerNodeId}`,
            endpoint: target.endpoint.id,
            endpointIdentity: identifyEndpoint(context, target),
            path: link.path,
            sentBytes: carried.splice?.sentBytes ?? 0,
            receivedBytes: carried.splice?.receivedBytes ?? 0,
            attempts: 1,
            result,
          }));
        });
      },
    );
  }

  private wait(request: OpenRequest, stream: LinkStream, link: Link, refusal: Refusal): void {
    const each: WaitingStream = {
      ...{ request, stream, link },
      timer: this.context.clock.setTimer(LATE_ENDPOINT_MS, () => {
        this.forget(each);
        if (!stream.destroyed) stream.refuse(refusal);
      }),
    };
    let streams = this.waiting.get(request.endpoint);
    if (streams === undefined) this.waiting.set(request.endpoint, (streams = new Set()));
    streams.add(each);
    this.waitingCount += 1;
    stream.once('close', () => this.forget(each));
  }

  private forget(each: WaitingStream): void {
    const streams = this.waiting.get(each.request.endpoint);
    if (streams?.delete(each) !== true) return;
    this.waitingCount -= 1;
    each.timer.cancel();
    if (streams.size === 0) this.waiting.delete(each.request.endpoint);
  }
}

class CarriedStream implements CarriedConnection {
  splice: Splice | undefined;

  constructor(
    private readonly target: EndpointTarget,
    readonly idleTimeoutMs: number,
  ) {}

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
    return (this.splice?.sentBytes ?? 0) + (this.splice?.receivedBytes ?? 0);
  }

  reset(reason: string): void {
    this.splice?.reset(reason);
  }
}
