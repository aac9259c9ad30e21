import type { Link } from '../link/link.js';
import type { LinkStream } from '../link/link-stream.js';
import type { OpenRequest } from '../link/open-request.js';
import { toServiceKey } from '../model/network-model.js';
import { identifyEndpoint, logAccess, type ProxyContext } from '../proxy/proxy-context.js';
import type { CarriedConnection } from '../service/connection-table.js';
import type { EndpointTarget } from '../service/service-port.js';
import { CLOSED } from '../stream/splice.js';
import { openStreamPeer, openUdpPeer, type UdpPeer } from './udp-peer.js';

/** The UDP session of a client of another node, for an endpoint of this node. */
export class UdpExit implements CarriedConnection {
  readonly idleTimeoutMs = 0;
  readonly isDatagram = true;
  private readonly startMs: number;
  private sentBytes = 0;
  private receivedBytes = 0;
  private readonly stream: UdpPeer;
  private readonly endpoint: UdpPeer;
  private hasEnded = false;

  constructor(
    private readonly context: ProxyContext,
    private readonly target: EndpointTarget,
    private readonly request: OpenRequest,
    stream: LinkStream,
    private readonly link: Pick<Link, 'peerNodeId' | 'path'>,
  ) {
    this.startMs = context.clock.now();
    this.endpoint = openUdpPeer(target.ip, target.port, {
      onOpen: () => stream.accept(),
      onDatagram: (datagram) => {
        this.receivedBytes += datagram.length;
        this.stream.send(datagram);
      },
      onEnd: (reason) => this.reset(reason),
    });
    this.stream = openStreamPeer(stream, {
      onOpen: () => undefined,
      onDatagram: (datagram) => {
        this.sentBytes += datagram.length;
        this.endpoint.send(datagram);
      },
      onEnd: () => this.reset(CLOSED),
    });
    context.connections.add(this, context.clock.now());
  }

  get carriedBytes(): number {
    return this.sentBytes + this.receivedBytes;
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

  reset(reason: string): void {
    if (this.hasEnded) return;
    this.hasEnded = true;
    this.stream.close();
    this.endpoint.close();
    const { context, target, request, link } = this;
    context.connections.remove(this);
    const { namespace, service, id } = target.endpoint;
    const port = { serviceKey: toServiceKey(namespace, service), name: request.port };
    logAccess(context, port, reason, () => ({
      startMs: this.startMs,
      protocol: 'udp',
      side: 'exit',
      client: request.client,
      clientIdentity: `${request.identity} via ${link.peerNodeId}`,
      endpoint: id,
      endpointIdentity: identifyEndpoint(context, target),
      path: link.path,
      sentBytes: this.sentBytes,
      receivedBytes: this.receivedBytes,
      attempts: 1,
      result: reason,
    }));
  }
}
