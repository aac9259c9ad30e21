import type { Clock } from '@cloudless/base';
import type { Metrics } from '@cloudless/observability';

/** The certificates of a cluster, as far as their expiry is concerned. */
export interface ExpiringCertificates {
  readonly identities: {
    /** Returns wall-clock milliseconds. */
    getAuthorityExpiry(): Promise<number>;
    onChange(listener: () => void): () => void;
  };
  /** `notAfterMs`: wall-clock milliseconds. */
  readonly server: { readonly notAfterMs: number };
}

const DAY_MS = 86_400_000;

/** Registers the days until the certificates of the cluster expire. */
export function registerIdentityMetrics(
  metrics: Metrics,
  { identities, server }: ExpiringCertificates,
  clock: Clock,
): void {
  const days = metrics.gauge({
    name: 'cloudless_certificate_expiry_days',
    help: 'Days until a certificate of the cluster expires: of the certificate authority, or of this coordinator.',
    labels: ['certificate'],
  });
  let authorityExpiryMs: number | undefined;
  const readExpiry = (): void => {
    identities.getAuthorityExpiry().then(
      (expiryMs) => (authorityExpiryMs = expiryMs),
      // The log has the cause; the metric keeps the last known value.
      () => undefined,
    );
  };
  readExpiry();
  identities.onChange(readExpiry);
  metrics.onExpose(() => {
    const toDays = (atMs: number): number => (atMs - clock.wallTime()) / DAY_MS;
    days.set(toDays(server.notAfterMs), { certificate: 'server' });
    if (authorityExpiryMs !== undefined)
      days.set(toDays(authorityExpiryMs), { certificate: 'authority' });
  });
}
