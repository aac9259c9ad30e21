import type { CallOptions } from '@connectrpc/connect';
import type { UserClient } from '@cloudless/api';
import { CloudlessError } from '@cloudless/base';
import { createKeyAndCsr } from '@cloudless/identity/csr';
import { timestampMs } from '../output/timestamp.js';
import { readValidity } from './stored-identity.js';
import type { StoredIdentity } from './stored-identity.js';

/** A new key, and the request for its certificate. */
export interface PendingKey {
  readonly keyPem: string;
  /** Certificate signing request in DER. */
  readonly csr: Uint8Array;
}

/** Creates a key on this machine; only the public key leaves the machine. */
export async function createPendingKey(): Promise<PendingKey> {
  const { keyPem, csr } = await createKeyAndCsr();
  return { keyPem, csr };
}

/**
 * Asks the coordinator for a certificate.
 * @param server - Address of the coordinator, which is stored in the identity.
 * @param description - Name of the machine, for lists of credentials.
 */
export async function issueIdentity(
  client: UserClient,
  server: string,
  { keyPem, csr }: PendingKey,
  description: string,
  options: CallOptions,
): Promise<StoredIdentity> {
  const response = await client.issueUserCertificate({ csr, description }, options);
  const { certificateChain, trustBundle, coordinatorIds, trustDomain, credential } = response;
  if (credential === undefined)
    throw new CloudlessError('internal', 'the coordinator returned no credential');
  const validity = readValidity(certificateChain);
  return {
    server,
    principal: `user/${credential.user}`,
    credentialId: credential.id,
    loginExpiresAtMs:
      credential.expiresAt === undefined ? validity.notAfterMs : timestampMs(credential.expiresAt),
    ...validity,
    trustDomain,
    serverIds: [...coordinatorIds],
    keyPem,
    chainPem: certificateChain,
    bundlePem: trustBundle,
  };
}
