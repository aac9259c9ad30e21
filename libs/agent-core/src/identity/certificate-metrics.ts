import type { Meter } from '@cloudless/base';
import type { IdentityFacts } from './node-identity.js';

/** Counters about the certificate of this node. */
export interface CertificateCounters {
  readonly renewals: ReturnType<Meter['counter']>;
}

/** Registers the metrics about the certificate of this node. */
export function registerCertificateMetrics(
  meter: Meter,
  current: () => Pick<IdentityFacts, 'notAfterMs'> | undefined,
): CertificateCounters {
  const expiry = meter.gauge({
    name: 'cloudless_agent_certificate_expiry_timestamp_seconds',
    help: 'End of the validity of the certificate of this node, Unix time; 0 without an identity',
  });
  meter.onExpose(() => expiry.set((current()?.notAfterMs ?? 0) / 1_000));
  return {
    renewals: meter.counter({
      name: 'cloudless_agent_certificate_renewals_total',
      help: 'Renewals of the certificate of this node, by result: ok or failed',
      labels: ['result'],
    }),
  };
}
