import { fromBinary } from '@bufbuild/protobuf';
import {
  OrderSchema,
  requestsIdentity,
  WORKLOAD_IDENTITY_CAPABILITY,
  type WorkloadSpec,
} from '@cloudless/api';
import { CloudlessError, definedFields } from '@cloudless/base';
import type { AgentOptions } from '../agent-options.js';
import { listFileCapabilities } from '../files/agent-files.js';
import type { IdentityCalls } from '../session/coordinator-transport.js';
import type { StoredReplica } from '../store/agent-store.js';
import { WorkloadIdentities } from './workload-identities.js';

/**
 * Returns the identities of replicas; undefined on a node that gives replicas none: a node without
 * an identity cannot request certificates.
 * @param findCalls - Returns the calls over the connection of the session; undefined without one.
 */
export function createWorkloadIdentities(
  { workloadIdentity, nodeIdentity, nodeId, clock, random, log, meter }: AgentOptions,
  findCalls: () => IdentityCalls | undefined,
): WorkloadIdentities | undefined {
  if (workloadIdentity === undefined || nodeIdentity === undefined) return undefined;
  return new WorkloadIdentities({
    ...workloadIdentity,
    issue: async (request) => {
      const calls = findCalls();
      if (calls === undefined)
        throw new CloudlessError('unavailable', 'this node has no session with a coordinator');
      return calls.issueWorkloadCertificate(request);
    },
    trustBundlePem: () => nodeIdentity.keeper.current?.trustBundle.pem,
    ...{ nodeId, clock, random, ...definedFields({ meter }) },
    log: log.child({ component: 'workload-identity' }),
  });
}

/** Returns the capabilities of the runtimes, and those of the agent itself. */
export function listCapabilities(options: AgentOptions): readonly string[] {
  const { runtime, workloadIdentity, nodeIdentity, deniesProcesses = false } = options;
  const capabilities = [...runtime.capabilities(), ...listFileCapabilities(options)];
  const hasIdentity = workloadIdentity !== undefined && nodeIdentity !== undefined;
  const isIsolated = capabilities.includes('runtime.cri') && deniesProcesses;
  return hasIdentity && isIsolated ? [...capabilities, WORKLOAD_IDENTITY_CAPABILITY] : capabilities;
}

/** Returns the specs of the replicas that request an identity, by replica id. */
export function listIdentitySpecs(
  stored: readonly StoredReplica[],
): ReadonlyMap<string, WorkloadSpec> {
  return new Map(
    stored.flatMap(({ replicaId, start }) => {
      const order = start === undefined ? undefined : fromBinary(OrderSchema, start).order;
      const spec = order?.case === 'start' ? order.value.spec : undefined;
      return spec !== undefined && requestsIdentity(spec) ? [[replicaId, spec] as const] : [];
    }),
  );
}
