import { connect } from 'node:net';
import type { Duplex } from 'node:stream';
import { errorCodeOf, errorMessageOf, type Clock, type StopSignal } from '@cloudless/base';
import type { LinkPool } from '../link/link-pool.js';
import { LinkUnusableError } from '../link/link.js';
import type { OpenRequest } from '../link/open-request.js';
import type { NetworkView } from '../model/network-model.js';
import type { EndpointTarget } from '../service/service-port.js';
import { encodeProxyHeader, parseAddress } from '../stream/proxy-header.js';

/** Time without data after which the kernel checks whether a peer is still there, milliseconds. */
export const KEEP_ALIVE_MS = 60_000;
/** Connections between two proxies that one attempt uses, one after the other. */
const MAX_LINKS_TRIED = 4;

/** Result of an attempt to connect. */
export type Dialled =
  | {
      readonly kind: 'connected';
      readonly stream: Duplex;
      readonly path: 'direct' | 'link' | 'relay';
    }
  | { readonly kind: 'failed'; readonly reason: string };

/** Path to an endpoint. */
export type Route =
  | { readonly kind: 'direct' }
  | { readonly kind: 'link'; readonly nodeId: string }
  | { readonly kind: 'refused'; readonly reason: string };

export interface EndpointDiallerOptions {
  readonly nodeId: string;
  readonly hostId: string;
  readonly view: NetworkView;
  /** Absent in a plaintext cluster. */
  readonly links: LinkPool | undefined;
  readonly clock: Clock;
  /** Returns why an address outside the cluster is not dialled; undefined: it may be dialled. */
  readonly explainRefusedAddress: (address: string) => string | undefined;
}

/** Connects to endpoints: of this network namespace without TLS, of other nodes through a link. */
export class EndpointDialler {
  private localNodes: ReadonlySet<string>;

  constructor(private readonly options: EndpointDiallerOptions) {
    this.localNodes = new Set([options.nodeId]);
  }

  setLocalNodes(nodeIds: readonly string[]): void {
    this.localNodes = new Set([this.options.nodeId, ...nodeIds]);
  }

  /**
   * Returns true when the endpoints of a node are in this network namespace. In a cluster with
   * certificates an equal host id proves nothing: every node could claim ours, and have this proxy
   * connect to loopback ports of this machine.
   */
  isLocal(nodeId: string): boolean {
    if (this.localNodes.has(nodeId)) return true;
    const { links, hostId, view } = this.options;
    return links === undefined && view.nodes.get(nodeId)?.network?.hostId === hostId;
  }

  /** Decides how an endpoint is reached. */
  route({ endpoint, ip }: EndpointTarget): Route {
    const { nodeId } = endpoint;
    if (nodeId === '') {
      const reason = this.options.explainRefusedAddress(ip);
      return reason === undefined ? { kind: 'direct' } : { kind: 'refused', reason };
    }
    if (this.isLocal(nodeId)) return { kind: 'direct' };
    const node = this.options.view.nodes.get(nodeId);
    if (node === undefined)
      return { kind: 'refused', reason: `the node "${nodeId}" is not a node of this cluster` };
    if (this.options.links === undefined)
      return {
        kind: 'refused',
        reason: `the endpoint is on another machine (node "${nodeId}"), and this cluster has no TLS; nothing is sent in plaintext`,
      };
    if (node.network === undefined)
      return { kind: 'refused', reason: `the node "${nodeId}" has no network proxy` };
    return { kind: 'link', nodeId };
  }

  /**
   * Connects to an endpoint over TCP, or opens a stream of datagrams to another node.
   * @param describe - Returns the request for another node, or for the PROXY header.
   * @param done - Called once. The stream has a handler of errors and is paused.
   */
  dial(
    target: EndpointTarget,
    describe: () => OpenRequest,
    options: { readonly timeoutMs: number; readonly proxyProtocol: boolean },
    done: (result: Dialled) => void,
  ): void {
    const route = this.route(target);
    if (route.kind === 'refused') done({ kind: 'failed', reason: route.reason });
    else if (route.kind === 'direct') this.dialDirect(target, describe, options, done);
    else void this.dialLink(route.nodeId, describe(), options.timeoutMs, done);
  }

  private dialDirect(
    { ip, port, endpoint }: EndpointTarget,
    describe: () => OpenRequest,
    { timeoutMs, proxyProtocol }: { readonly timeoutMs: number; readonly proxyProtocol: boolean },
    done: (result: Dialled) => void,
  ): void {
    const socket = connect({
      ...{ host: ip, port, allowHalfOpen: true, noDelay: true },
      // The kernel answers for a replica of this machine, so there is nothing to find out.
      keepAlive: endpoint.nodeId === '',
      keepAliveInitialDelay: KEEP_ALIVE_MS,
    });
    let isDone = false;
    const settle = (result: Dialled): void => {
      if (isDone) return;
      isDone = true;
      timer.cancel();
      done(result);
    };
    const timer = this.options.clock.setTimer(timeoutMs, () => {
      socket.destroy();
      settle({ kind: 'failed', reason: `no answer within ${timeoutMs} ms` });
    });
    socket.once('error', (reason) =>
      settle({ kind: 'failed', reason: errorCodeOf(reason) ?? reason.message }),
    );
    socket.once('connect', () => {
      if (proxyProtocol) {
        const { client, virtual } = describe();
        socket.write(encodeProxyHeader(parseAddress(client), parseAddress(virtual)));
      }
      settle({ kind: 'connected', stream: socket, path: 'direct' });
    });
  }

  private async dialLink(
    nodeId: string,
    request: OpenRequest,
    timeoutMs: number,
    done: (result: Dialled) => void,
  ): Promise<void> {
    const stop = new DialStop();
    let isLate = false;
    const timer = this.options.clock.setTimer(timeoutMs, () => {
      isLate = true;
      stop.abort();
      done({
        kind: 'failed',
        reason: `the node "${nodeId}" gave no answer within ${timeoutMs} ms`,
      });
    });
    try {
      const opened = await this.openStream(nodeId, request, stop);
      if (opened === undefined) return;
      timer.cancel();
      if (isLate) opened.stream.destroy();
      else done({ kind: 'connected', ...opened });
    } catch (reason) {
      timer.cancel();
      if (!isLate) done({ kind: 'failed', reason: errorMessageOf(reason) });
    }
  }

  /**
   * Takes another connection when one ends before its proxy has accepted the stream, such as during
   * the replacement of that proxy.
   */
  private async openStream(
    nodeId: string,
    request: OpenRequest,
    signal: StopSignal,
  ): Promise<Pick<Extract<Dialled, { kind: 'connected' }>, 'stream' | 'path'> | undefined> {
    for (let attempt = 1; ; attempt += 1) {
      const link = await this.options.links?.get(nodeId);
      if (link === undefined || signal.aborted) return undefined;
      try {
        return { stream: await link.open(request, signal), path: link.path };
      } catch (reason) {
        if (attempt >= MAX_LINKS_TRIED || !(reason instanceof LinkUnusableError)) throw reason;
        if (signal.aborted) return undefined;
      }
    }
  }
}

/** Ends one attempt. An AbortController costs several times as much, for each connection. */
class DialStop implements StopSignal {
  aborted = false;
  private listener: (() => void) | undefined;

  addEventListener(_type: 'abort', listener: () => void): void {
    this.listener = listener;
  }

  removeEventListener(): void {
    this.listener = undefined;
  }

  abort(): void {
    this.aborted = true;
    this.listener?.();
  }
}
