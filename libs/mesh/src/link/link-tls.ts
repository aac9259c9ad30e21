import { constants, X509Certificate } from 'node:crypto';
import type { Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import * as tls from 'node:tls';
import type { NetworkNodeEntry } from '@cloudless/api';
import { CloudlessError } from '@cloudless/base';
import { PeerVerifier, type PeerIdentity } from '@cloudless/identity/verify';
import type { ProxyIdentity } from '../ports.js';
import { encodeText, FrameType } from './frames.js';

/** Name of the protocol between proxies in the TLS handshake (ALPN). */
export const MESH_PROTOCOL = 'cloudless-mesh/1';
/** Most certificates and bytes that a peer may present. A chain of a cluster takes 2 KB. */
const MAX_CHAIN_LENGTH = 4;
const MAX_CHAIN_BYTES = 16 * 1024;

/** TLS of one identity of this node, for both directions. */
export class LinkTls {
  private readonly context: tls.SecureContext;
  private readonly verifier: PeerVerifier;
  /** End of the validity of the certificate of this node, milliseconds since the Unix epoch. */
  readonly notAfterMs: number;

  /** @throws CloudlessError CERTIFICATE_INVALID when the key, chain or bundle is damaged. */
  constructor(private readonly identity: ProxyIdentity) {
    const { keyPem, chainPem, bundlePem, trustDomain } = identity;
    this.verifier = new PeerVerifier({ bundlePem, trustDomain });
    try {
      this.notAfterMs = Date.parse(new X509Certificate(chainPem).validTo);
      this.context = tls.createSecureContext({
        key: keyPem,
        cert: chainPem,
        ca: bundlePem,
        ...{ minVersion: 'TLSv1.3', maxVersion: 'TLSv1.3' },
        // Each connection presents its certificate.
        secureOptions: constants.SSL_OP_NO_TICKET,
      });
    } catch {
      // The cause may repeat parts of the key.
      throw new CloudlessError(
        'CERTIFICATE_INVALID',
        'the key and the certificate of the node do not fit together or are damaged',
      );
    }
  }

  get trustDomain(): string {
    return this.identity.trustDomain;
  }

  /**
   * Makes the handshake as the dialler. The peer must be exactly the node `nodeId`.
   * @param check - Returns why a peer is refused whose chain is valid; undefined: accepted.
   * @param done - Called once.
   */
  dial(
    transport: Duplex,
    nodeId: string,
    check: (peer: PeerIdentity) => string | undefined,
    nowMs: () => number,
    done: (result: SecureResult) => void,
  ): Handshake {
    const socket = tls.connect({
      socket: transport,
      secureContext: this.context,
      ALPNProtocols: [MESH_PROTOCOL],
      // The verifier checks the chain and the exact SPIFFE ID.
      rejectUnauthorized: false,
      checkServerIdentity: () => undefined,
    });
    const ids = [`spiffe://${this.trustDomain}/node/${nodeId}`];
    return this.finish(socket, 'secureConnect', done, check, (chain) =>
      this.verifier.verify(chain, nowMs(), { usage: 'server', ids }),
    );
  }

  /** Makes the handshake as the acceptor. The peer must be a node. */
  accept(
    transport: Duplex,
    check: (peer: PeerIdentity) => string | undefined,
    nowMs: () => number,
    done: (result: SecureResult) => void,
  ): Handshake {
    const socket = new tls.TLSSocket(transport as Socket, {
      isServer: true,
      secureContext: this.context,
      ALPNProtocols: [MESH_PROTOCOL],
      requestCert: true,
      rejectUnauthorized: false,
    });
    return this.finish(socket, 'secure', done, check, (chain) =>
      this.verifier.verify(chain, nowMs(), { usage: 'client', kinds: ['node'] }),
    );
  }

  private finish(
    socket: tls.TLSSocket,
    event: 'secure' | 'secureConnect',
    done: (result: SecureResult) => void,
    check: (peer: PeerIdentity) => string | undefined,
    verify: (chain: readonly Uint8Array[]) => PeerIdentity,
  ): Handshake {
    let failure = 'the connection was closed during the TLS handshake';
    let isDone = false;
    const settle = (result: SecureResult): void => {
      if (isDone) return;
      isDone = true;
      done(result);
    };
    socket.on('error', (reason) => (failure = `the TLS handshake failed: ${reason.message}`));
    socket.on(
      '_tlsError',
      (reason: Error) => (failure = `the TLS handshake failed: ${reason.message}`),
    );
    socket.once('close', () => settle({ kind: 'failed', reason: failure, isRefused: false }));
    const fail = (reason: string, isRefused: boolean): void => {
      settle({ kind: 'failed', reason, isRefused });
      // The dialler learns why; the acceptor sends nothing to a peer without a certificate.
      if (event === 'secure' && socket.getPeerX509Certificate() !== undefined)
        socket.write(encodeText(FrameType.goAway, 0, reason));
      socket.destroySoon();
    };
    socket.once(event, () => {
      try {
        if (socket.alpnProtocol !== MESH_PROTOCOL)
          throw new CloudlessError('CERTIFICATE_INVALID', 'the peer is no network proxy');
        const peer = verify(readChain(socket));
        const refusal = check(peer);
        if (refusal === undefined) settle({ kind: 'secure', socket, peer });
        else fail(refusal, true);
      } catch (reason) {
        if (!(reason instanceof CloudlessError)) throw reason;
        fail(reason.message, false);
      }
    });
    return { cancel: () => socket.destroy() };
  }
}

/** A handshake that is under way. `cancel` ends the connection unless the handshake is complete. */
export interface Handshake {
  cancel(): void;
}

/**
 * Result of a handshake. `isRefused`: the peer has proved which node it is, and the cluster refuses
 * its certificate. False for all else, such as another machine that has the address by now.
 */
export type SecureResult =
  | { readonly kind: 'secure'; readonly socket: tls.TLSSocket; readonly peer: PeerIdentity }
  | { readonly kind: 'failed'; readonly reason: string; readonly isRefused: boolean };

/**
 * Returns why the certificate of a node is refused, by what the cluster knows of the node;
 * undefined when the certificate is accepted.
 */
export function explainRefusedPeer(
  node: NetworkNodeEntry | undefined,
  peer: PeerIdentity,
): string | undefined {
  const { id } = peer.id;
  if (node === undefined) return `the node "${id}" is not, or no longer, a node of this cluster`;
  if (node.acceptedSerials.includes(peer.serial)) return undefined;
  const newest = node.newestNotAfter;
  if (newest !== undefined && peer.notAfterMs > Number(newest.seconds) * 1_000) return undefined;
  return `the certificate ${peer.serial} of the node "${id}" is revoked or was replaced`;
}

/**
 * Returns true when the cluster has issued a certificate to a node that ends after the one that it
 * showed.
 */
export function hasNewerCertificate(
  node: NetworkNodeEntry | undefined,
  peer: PeerIdentity,
): boolean {
  return Number(node?.newestNotAfter?.seconds ?? 0) * 1_000 > peer.notAfterMs;
}

function readChain(socket: tls.TLSSocket): readonly Uint8Array[] {
  const chain: Uint8Array[] = [];
  let bytes = 0;
  let certificate: X509Certificate | undefined = socket.getPeerX509Certificate();
  while (certificate !== undefined) {
    bytes += certificate.raw.length;
    if (chain.length >= MAX_CHAIN_LENGTH || bytes > MAX_CHAIN_BYTES)
      throw new CloudlessError('CERTIFICATE_INVALID', 'the certificates of the peer are too large');
    chain.push(certificate.raw);
    certificate = certificate.issuerCertificate;
  }
  return chain;
}
