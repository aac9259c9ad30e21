import { isIP } from 'node:net';
import { CloudlessError } from '@cloudless/base';
import type { SpiffeId } from '../spiffe/spiffe-id.js';
import type { CertificateAuthority, CertificateChain } from './certificate-authority.js';
import { createKeyAndCsr, readCsr } from './csr.js';

/** A private key with its certificate. */
export interface KeyAndChain {
  /** PKCS #8. Secret. */
  readonly keyPem: string;
  readonly chain: CertificateChain;
}

/**
 * Creates a key and the certificate of a server. The certificate is also valid as one of a client,
 * because a coordinator calls others in its own name.
 * @param server - `hosts`: names and addresses under which clients reach the server, beside the
 *   SPIFFE ID; in any case, with or without brackets around IPv6, each counted once.
 * @throws {@link CloudlessError} of kind `invalid` when a host is neither a DNS name nor an address.
 */
export async function createServerCertificate(
  authority: CertificateAuthority,
  server: {
    readonly id: SpiffeId;
    readonly hosts: readonly string[];
    readonly lifetimeMs: number;
    readonly nowMs: number;
  },
): Promise<KeyAndChain> {
  const { id, hosts, lifetimeMs, nowMs } = server;
  const { keyPem, csr } = await createKeyAndCsr();
  const { publicKey } = await readCsr(csr);
  const names = splitHosts(hosts);
  const chain = await authority.issue({
    ...{ id, publicKey, lifetimeMs, nowMs, usage: 'both' },
    ...names,
  });
  return { keyPem, chain };
}

/** Separates DNS names from addresses, for the alternative names of a certificate. */
export function splitHosts(hosts: readonly string[]): {
  readonly dnsNames: readonly string[];
  readonly ipAddresses: readonly string[];
} {
  const plain = hosts.map((host) =>
    host.startsWith('[') && host.endsWith(']') ? host.slice(1, -1) : host.toLowerCase(),
  );
  if (plain.includes(''))
    throw new CloudlessError('invalid', 'a host of a server certificate is empty');
  const unique = [...new Set(plain)];
  return {
    dnsNames: unique.filter((host) => isIP(host) === 0),
    ipAddresses: unique.filter((host) => isIP(host) !== 0),
  };
}
