import type { X509Certificate } from 'node:crypto';
import { isIP } from 'node:net';
import type { TLSSocket } from 'node:tls';
import type { SpiffeKind } from '@cloudless/identity';

/**
 * What a client needs to reach a server with TLS. Plain data, so that a worker thread can receive a
 * copy.
 */
export interface ClientTls {
  /** Private key of the client in PEM; absent for a client without a certificate. */
  readonly keyPem?: string | undefined;
  /** Certificate of the client and its issuers in PEM; present if and only if `keyPem` is. */
  readonly chainPem?: string | undefined;
  /** The root certificates that the client trusts, in PEM. No other root is trusted. */
  readonly bundlePem: string;
  /** SPIFFE IDs of the servers that the client accepts, unless `serverKinds` is set. */
  readonly serverIds: readonly string[];
  /**
   * Kinds of servers that the client accepts with any id, in place of {@link serverIds}. A client of
   * coordinators accepts each `controller`: every coordinator has the keys of the certificate
   * authority, so a list of ids would protect nothing, and would lock out a client that was off
   * while coordinators were replaced. Default: only the servers of `serverIds`.
   */
  readonly serverKinds?: readonly SpiffeKind[];
  readonly trustDomain: string;
}

/** Host and port of a base URL, for `tls.connect`. */
export interface TlsEndpoint {
  readonly host: string;
  readonly port: number;
  /** Name that the client sends to the server; absent for an IP address (RFC 6066, section 3). */
  readonly servername?: string;
}

/** Ports of a base URL that names none. */
const DEFAULT_PORTS: Readonly<Record<string, number>> = { 'http:': 80, 'https:': 443 };

/** @param address - Base URL, such as `https://10.0.0.1:8080`. */
export function toEndpoint(address: string): TlsEndpoint {
  const { hostname, port, protocol } = new URL(address);
  const host = hostname.replace(/^\[(.*)\]$/, '$1');
  return {
    host,
    port: port === '' ? (DEFAULT_PORTS[protocol] ?? 0) : Number(port),
    ...(isIP(host) === 0 ? { servername: host } : {}),
  };
}

/**
 * Returns the certificates that the peer of a connection presented, in DER: its own first, then the
 * issuer of each certificate before. Empty when the peer has not presented any yet.
 */
export function readChain(socket: TLSSocket): readonly Uint8Array[] {
  const chain: Uint8Array[] = [];
  let certificate: X509Certificate | undefined = socket.getPeerX509Certificate();
  while (certificate !== undefined && chain.length < MAX_CHAIN_LENGTH) {
    chain.push(certificate.raw);
    certificate = certificate.issuerCertificate;
  }
  return chain;
}

/** Most certificates that are read of a chain; chains of a cluster have three. */
const MAX_CHAIN_LENGTH = 8;
