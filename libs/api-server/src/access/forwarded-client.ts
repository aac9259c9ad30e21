import { getCertificatesKey } from '../roles/forwarding-headers.js';
import { ConnectionCertificates } from './certificate-authentication.js';
import { RefusedCallError } from './refusal.js';

/** Most clients whose verified certificates are kept, about 5 KB each. */
const MAX_KEPT_CLIENTS = 1_000;

/**
 * The certificates of the clients of forwarded calls. Kept, so that the signatures of a certificate
 * are verified once and not for each call.
 */
export class ForwardedCertificates {
  private readonly kept = new Map<string, ConnectionCertificates>();

  /** @param chainDer - The certificates in `header`. */
  get(header: Headers, chainDer: readonly Uint8Array[]): ConnectionCertificates {
    const key = getCertificatesKey(header) ?? '';
    const certificates = this.kept.get(key) ?? new ConnectionCertificates(chainDer);
    this.kept.delete(key);
    this.kept.set(key, certificates);
    for (const [oldest] of this.kept) {
      if (this.kept.size <= MAX_KEPT_CLIENTS) break;
      this.kept.delete(oldest);
    }
    return certificates;
  }
}

/** Returns the error for a call with the headers of a forwarded call that no coordinator sends. */
export function createForgedForwardError(principal: string): RefusedCallError {
  return new RefusedCallError(
    'forwarded by no coordinator',
    'PERMISSION_DENIED',
    `${principal} may not forward calls: only coordinators send the headers cloudless-forwarded-*`,
    { principal },
  );
}
