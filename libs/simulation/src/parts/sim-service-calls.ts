import type { MessageInitShape } from '@bufbuild/protobuf';
import { createClient, type Transport } from '@connectrpc/connect';
import { NetworkService, type ServiceSpecSchema } from '@cloudless/api';
import type { SimRandom } from './sim-random.js';

/** Names of the services that users create. */
export const SERVICES = ['front', 'back'] as const;
/** Label by which services select several workloads. */
export const TIER_LABEL = 'tier';
const TIERS = ['odd', 'even'] as const;

/** A call about a service. */
export interface ServiceCall {
  readonly description: string;
  readonly call: (transport: Transport, requestId: string) => Promise<unknown>;
}

/** Random calls about services. */
export class SimServiceCalls {
  constructor(
    private readonly random: SimRandom,
    private readonly workloads: readonly [string, ...string[]],
  ) {}

  /** Returns the labels of a new workload. */
  labels(): Readonly<Record<string, string>> {
    return { [TIER_LABEL]: this.random.pick(TIERS) };
  }

  /** Returns the `expose` of a workload: its port, or nothing. */
  expose(): readonly { readonly name: string; readonly port: number }[] {
    return this.random.chance(0.7) ? [{ name: 'http', port: 80 }] : [];
  }

  /** Returns a random creation, update or deletion. */
  next(): ServiceCall {
    const { random } = this;
    const name = random.pick(SERVICES);
    switch (random.pickWeighted({ create: 4, update: 2, delete: 1.5 })) {
      case 'create': {
        const spec = this.spec();
        return {
          description: `create-service ${name} for ${spec.workload ?? 'a tier'}`,
          call: (transport, requestId) =>
            createClient(NetworkService, transport).createService({ name, spec, requestId }),
        };
      }
      case 'update': {
        const { workload = '', selector = {} } = this.spec();
        return {
          description: `update-service ${name} to ${workload || 'a tier'}`,
          call: (transport, requestId) =>
            createClient(NetworkService, transport).updateService({
              name,
              requestId,
              spec: { workload, selector },
              updateMask: { paths: ['workload', 'selector'] },
            }),
        };
      }
      case 'delete':
        return {
          description: `delete-service ${name}`,
          call: (transport, requestId) =>
            createClient(NetworkService, transport).deleteService({ name, requestId }),
        };
    }
  }

  private spec(): Exclude<MessageInitShape<typeof ServiceSpecSchema>, { $typeName: string }> {
    const { random } = this;
    return {
      ports: [{ name: 'http', port: 80 }],
      ...(random.chance(0.6)
        ? { workload: random.pick(this.workloads) }
        : { selector: { [TIER_LABEL]: random.pick(TIERS) } }),
      ...(random.chance(0.2) ? { headless: true } : {}),
    };
  }
}
