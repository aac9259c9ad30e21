import type { Duplex } from 'node:stream';
import type { TLSSocket } from 'node:tls';
import type { NetworkNodeEntry } from '@cloudless/api';
import { errorFields, type Clock, type Log, type Timer } from '@cloudless/base';
import type { PeerIdentity } from '@cloudless/identity/verify';
import type { CoordinatorConnection, IdentitySource, LinkStatus, ProxyLimits } from '../ports.js';
import { openMeshSocket, secureDialled } from './dial-link.js';
import { Link, type LinkOptions } from './link.js';
import { explainRefusedPeer, hasNewerCertificate, LinkTls } from './link-tls.js';
import { MeshAcceptor } from './mesh-acceptor.js';
import { MAX_RENEWED, type Hello } from './open-request.js';
import { PeerLinks, PeerRefusedError } from './peer-links.js';
import { RelayStream } from './relay-stream.js';

/** Reason for a node that the coordinator has removed, which reaches no other node. */
const REMOVED = 'this node is not, or no longer, a node of this cluster';
/** Why the connections of a proxy end that another process replaces. */
const LEAVING = 'the proxy of the node is about to stop';
/** Id of a connection, by TLS (RFC 8446, section 7.5). */
const LINK_ID_LABEL = 'EXPORTER-cloudless-mesh-link';
const LINK_ID_BYTES = 16;
/** Interval at which the certificates of open connections are checked, milliseconds. */
const CERTIFICATE_CHECK_MS = 2_000;

export interface LinkPoolOptions {
  readonly nodeId: string;
  readonly identity: IdentitySource;
  readonly node: (nodeId: string) => NetworkNodeEntry | undefined;
  readonly coordinator: () => CoordinatorConnection | undefined;
  readonly onOpen: LinkOptions['onOpen'];
  readonly limits: ProxyLimits;
  readonly clock: Clock;
  readonly log: Log;
}

/**
 * Time for which a connection with streams outlasts the certificate of its peer when the cluster
 * knows another one, milliseconds: the peer proves within this time that it has the newer one.
 */
const RENEWAL_MS = 2_500;
/** Multiple of the connections of a peer up to which draining connections do not count. */
const DRAINING_FACTOR = 4;

/** The certificates of an open connection. A later connection between both nodes may renew them. */
interface Peer {
  /** Secret that only the ends of the connection know, derived by TLS. */
  readonly id: string;
  identity: PeerIdentity;
  /** End of the validity of the certificate that this node presented. */
  ownNotAfterMs: number;
  /** Since when the certificate of the peer is replaced. */
  replacedAtMs?: number | undefined;
}

/** All connections between this proxy and those of other nodes. */
export class LinkPool {
  private readonly peers = new Map<string, PeerLinks>();
  /** All open connections in both directions. */
  private readonly open = new Map<Link, Peer>();
  private readonly acceptor: MeshAcceptor;
  private tls: LinkTls | undefined;
  private isLeaving = false;
  private readonly onEnded: (() => void)[] = [];
  /** True when the coordinator has removed this node, such as by a ban. */
  private isRemoved = false;
  private timer: Timer | undefined;

  constructor(private readonly options: LinkPoolOptions) {
    const { limits, clock, log, identity } = options;
    this.acceptor = new MeshAcceptor({
      ...{ limits, clock, log },
      tls: () => (this.isLeaving || this.isRemoved ? undefined : this.tls),
      check: (peer) => this.explainRefusal(peer),
      onSecure: ({ socket, peer }, path) => {
        if (this.hasTooMany(peer.id.id)) return void socket.destroy();
        const link = this.createLink(socket, peer, false, path);
        // The handshake began before: the peer takes another connection.
        if (this.isLeaving) link.leave(LEAVING);
      },
      onSettled: () => this.checkEnded(),
    });
    this.loadIdentity();
    identity.onChange(() => {
      this.loadIdentity();
      // New streams use the new certificate before peers refuse the earlier one.
      for (const link of [...this.open.keys()])
        if (link.isDialler) link.leave('the certificate of the node was renewed');
      this.renewOpen();
    });
    this.watchCertificates();
  }

  get trustDomain(): string | undefined {
    return this.tls?.trustDomain;
  }

  get pendingHandshakes(): number {
    return this.acceptor.pending;
  }

  get failedHandshakes(): number {
    return this.acceptor.failed;
  }

  /**
   * Returns a connection to the proxy of a node.
   * @throws Error with the reason, for people.
   */
  get(nodeId: string): Promise<Link> {
    return this.linksTo(nodeId).get();
  }

  private linksTo(nodeId: string): PeerLinks {
    let peer = this.peers.get(nodeId);
    if (peer === undefined) {
      peer = new PeerLinks({
        nodeId,
        maxLinks: this.options.limits.linksPerPeer,
        clock: this.options.clock,
        dialDirect: () => this.dialDirect(nodeId),
        dialRelay: () => this.dialRelay(nodeId),
      });
      this.peers.set(nodeId, peer);
    }
    return peer;
  }

  /** Accepts a connection at the mesh address, or through the relay. */
  accept(transport: Duplex, path: 'link' | 'relay', from: string): void {
    this.acceptor.accept(transport, path, from);
  }

  /** Ends connections with nodes that are gone or whose certificate is refused by now. */
  check(nodeIds: ReadonlySet<string>): void {
    for (const nodeId of nodeIds) {
      if (this.options.node(nodeId) !== undefined) continue;
      this.peers.get(nodeId)?.close(`the node "${nodeId}" is gone`);
      this.peers.delete(nodeId);
    }
    const { nodeId } = this.options;
    if (nodeIds.has(nodeId)) this.isRemoved = this.options.node(nodeId) === undefined;
    this.endRefused((link) => this.isRemoved || nodeIds.has(link.peerNodeId));
  }

  /**
   * Accepts no further streams, and opens none on the present connections. Connections that are
   * dialled afterwards serve clients that were accepted before; call again when these have ended.
   */
  leave(): void {
    this.isLeaving = true;
    for (const link of [...this.open.keys()]) link.leave(LEAVING);
  }

  /** Resolves when no connection and no incomplete handshake is left, after {@link leave}. */
  ended(): Promise<void> {
    return new Promise((resolve) => {
      this.onEnded.push(resolve);
      this.checkEnded();
    });
  }

  private checkEnded(): void {
    if (this.open.size === 0 && this.acceptor.pending === 0)
      for (const resolve of this.onEnded.splice(0)) resolve();
  }

  close(): void {
    this.isLeaving = true;
    this.timer?.cancel();
    this.acceptor.close();
    for (const peer of this.peers.values()) peer.close('the proxy stops');
    for (const link of [...this.open.keys()]) link.close('the proxy stops');
  }

  status(): readonly LinkStatus[] {
    return [...this.open.keys()].map((link) => ({
      nodeId: link.peerNodeId,
      direction: link.isDialler ? 'out' : 'in',
      path: link.path,
      streams: link.streamCount,
    }));
  }

  /** Ends open connections whose certificates have expired or were replaced. */
  private watchCertificates(): void {
    this.timer = this.options.clock.setTimer(CERTIFICATE_CHECK_MS, () => {
      this.renewOpen();
      this.endRefused(() => true);
      this.watchCertificates();
    });
  }

  private endRefused(isConcerned: (link: Link) => boolean): void {
    for (const [link, peer] of [...this.open]) {
      if (!isConcerned(link)) continue;
      const reason = this.explainEnd(peer) ?? this.explainReplaced(link, peer);
      if (reason === undefined) continue;
      this.options.log.info('a connection between two nodes is ended', {
        ...{ peerNodeId: link.peerNodeId, reason, streams: link.streamCount },
      });
      link.close(reason);
    }
  }

  /** Returns why an open connection ends now; undefined: its certificates are accepted. */
  private explainEnd({ identity, ownNotAfterMs }: Peer): string | undefined {
    const nowMs = this.options.clock.wallTime();
    if (this.isRemoved) return REMOVED;
    if (ownNotAfterMs < nowMs) return 'the certificate of this node has expired';
    if (identity.notAfterMs < nowMs)
      return `the certificate ${identity.serial} of the node "${identity.id.id}" has expired`;
    return this.options.node(identity.id.id) === undefined
      ? this.explainRefusal(identity)
      : undefined;
  }

  /**
   * Returns why an open connection ends now because the cluster knows another certificate of its
   * peer. A node that has renewed its certificate gets the time to show the new one, for the
   * streams.
   */
  private explainReplaced(link: Link, peer: Peer): string | undefined {
    const refusal = this.explainRefusal(peer.identity);
    const isRenewed = hasNewerCertificate(this.options.node(link.peerNodeId), peer.identity);
    if (refusal === undefined || link.streamCount === 0 || !isRenewed) return refusal;
    const nowMs = this.options.clock.now();
    if (peer.replacedAtMs === undefined) {
      peer.replacedAtMs = nowMs;
      if (link.isDialler) link.leave('the certificate of the peer was replaced');
      this.renewWith(link.peerNodeId);
    }
    return nowMs - peer.replacedAtMs < RENEWAL_MS ? undefined : refusal;
  }

  /** Shows the newest certificate of this node to the peers of open connections with streams. */
  private renewOpen(): void {
    const notAfterMs = this.tls?.notAfterMs ?? 0;
    const peers = new Set<string>();
    for (const [link, { ownNotAfterMs }] of this.open)
      if (link.streamCount > 0 && ownNotAfterMs < notAfterMs) peers.add(link.peerNodeId);
    for (const nodeId of peers) this.renewWith(nodeId);
  }

  /**
   * Dials a node: both sides show their newest certificates, which count for open connections too.
   */
  private renewWith(nodeId: string): void {
    if (this.isLeaving || this.isRemoved) return;
    this.linksTo(nodeId)
      .renew()
      .catch(() => undefined); // the next check tries again
  }

  private explainRefusal(peer: PeerIdentity): string | undefined {
    return explainRefusedPeer(this.options.node(peer.id.id), peer);
  }

  /**
   * Connections that end with their streams, such as after renewals, count only when they are many.
   */
  private hasTooMany(nodeId: string): boolean {
    const { maxLinksPerPeer } = this.options.limits;
    let count = 0;
    let draining = 0;
    for (const link of this.open.keys())
      if (!link.isDialler && link.peerNodeId === nodeId) {
        if (link.isDraining) draining += 1;
        else count += 1;
      }
    return count >= maxLinksPerPeer || count + draining >= DRAINING_FACTOR * maxLinksPerPeer;
  }

  /** Lets the certificates of a new connection count for the connections that both sides renew. */
  private renew(renewed: Peer, own: readonly Peer[], hello: Hello): void {
    for (const peer of own)
      peer.ownNotAfterMs = Math.max(peer.ownNotAfterMs, renewed.ownNotAfterMs);
    const ids = new Set(hello.renews);
    for (const peer of own) {
      if (!ids.has(peer.id) || peer.identity.notAfterMs > renewed.identity.notAfterMs) continue;
      peer.identity = renewed.identity;
      peer.replacedAtMs = undefined;
    }
  }

  private loadIdentity(): void {
    const identity = this.options.identity.current();
    if (identity === undefined) return;
    try {
      this.tls = new LinkTls(identity);
    } catch (reason) {
      this.options.log.error(
        'the new certificate of the node is not valid; the earlier one stays in use',
        errorFields(reason),
      );
    }
  }

  private dialDirect(nodeId: string): Promise<Link> | undefined {
    const address = this.options.node(nodeId)?.network?.address ?? '';
    if (address === '') return undefined;
    const socket = openMeshSocket(address);
    return socket === undefined
      ? Promise.reject(new Error(`the mesh address "${address}" is no address and port`))
      : this.secure(socket, nodeId, 'link');
  }

  private dialRelay(nodeId: string): Promise<Link> | undefined {
    const client = this.options.coordinator()?.client;
    if (client === undefined) return undefined;
    return this.secure(new RelayStream(client, this.options.nodeId, nodeId), nodeId, 'relay');
  }

  private async secure(transport: Duplex, nodeId: string, path: 'link' | 'relay'): Promise<Link> {
    const { tls } = this;
    if (tls === undefined) {
      transport.destroy();
      throw new PeerRefusedError('this node has no certificate; nothing is sent without TLS');
    }
    if (this.isRemoved) {
      transport.destroy();
      throw new PeerRefusedError(REMOVED);
    }
    const { clock } = this.options;
    const check = (peer: PeerIdentity): string | undefined => this.explainRefusal(peer);
    const result = await secureDialled(transport, { tls, nodeId, check, clock });
    if (result.kind === 'failed')
      throw result.isRefused ? new PeerRefusedError(result.reason) : new Error(result.reason);
    const link = this.createLink(result.socket, result.peer, true, path);
    await link.ready();
    return link;
  }

  private createLink(
    socket: TLSSocket,
    identity: PeerIdentity,
    isDialler: boolean,
    path: 'link' | 'relay',
  ): Link {
    const { nodeId, clock, limits, onOpen, log } = this.options;
    const peerNodeId = identity.id.id;
    const id = toLinkId(socket);
    const peer: Peer = { id, identity, ownNotAfterMs: this.tls?.notAfterMs ?? 0 };
    const earlier = [...this.open]
      .filter(([each]) => each.peerNodeId === peerNodeId)
      .map(([, each]) => each)
      .slice(-MAX_RENEWED);
    const link: Link = new Link({
      ...{ socket, isDialler, nodeId, peerNodeId, path, clock, onOpen },
      renews: earlier.map((each) => each.id),
      onHello: (hello) => this.renew(peer, earlier, hello),
      maxStreams: limits.maxStreamsPerLink,
      onUnusable: (each) => this.peers.get(peerNodeId)?.remove(each),
      onClose: (each, reason) => {
        this.open.delete(each);
        this.checkEnded();
        log.debug('a connection between two nodes ended', { peerNodeId, isDialler, path, reason });
      },
    });
    this.open.set(link, peer);
    log.debug('a connection between two nodes is open', { peerNodeId, isDialler, path });
    return link;
  }
}

/** Derives an id that is equal at both ends of a connection, and that no other node knows. */
function toLinkId(socket: TLSSocket): string {
  return socket.exportKeyingMaterial(LINK_ID_BYTES, LINK_ID_LABEL, Buffer.alloc(0)).toString('hex');
}
