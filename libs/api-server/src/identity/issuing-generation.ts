import { CloudlessError } from '@cloudless/base';
import type { IdentityPort, IssuedCertificate } from '../access/identity-port.js';
import type { ApiServerDeps } from '../ports.js';

/** Returns the record of the certificate authority. */
export function requireAuthority({ state }: Pick<ApiServerDeps, 'state'>): { revision: bigint } {
  const stored = state.view().certificateAuthority();
  if (stored !== undefined) return stored;
  throw new CloudlessError('internal', 'the record of the certificate authority is missing');
}

/**
 * Refuses a certificate that another generation has issued while its request was processed: the
 * root of that generation may be retired before the certificate is used.
 * @throws kind `unavailable`: the next attempt succeeds.
 */
export function requireIssuingGeneration(
  { issuingGeneration }: IdentityPort,
  { generation }: IssuedCertificate,
): void {
  if (generation === issuingGeneration) return;
  throw new CloudlessError(
    'unavailable',
    'the certificate authority has changed to its next generation just now; try again',
    { retryAfterMs: 100 },
  );
}
