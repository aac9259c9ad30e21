import { definedFields } from '@cloudless/base';
import {
  CertificateClient,
  type CertificateClientOptions,
  type NodeIdentityOptions,
} from './certificate-client.js';
import { registerCertificateMetrics } from './certificate-metrics.js';

/**
 * Creates the client of a node in a cluster with identities.
 * @param nodeIdentity - Undefined: the cluster has none.
 */
export function createCertificateClient(
  nodeIdentity: NodeIdentityOptions | undefined,
  options: Omit<CertificateClientOptions, keyof NodeIdentityOptions | 'meter'> & {
    readonly meter: CertificateClientOptions['meter'] | undefined;
  },
): CertificateClient | undefined {
  const { meter, log, ...rest } = options;
  if (nodeIdentity === undefined) {
    // An agent has the same metrics in every cluster.
    if (meter !== undefined) registerCertificateMetrics(meter, () => undefined);
    return undefined;
  }
  return new CertificateClient({
    ...nodeIdentity,
    ...rest,
    log: log.child({ component: 'identity' }),
    ...definedFields({ meter }),
  });
}
