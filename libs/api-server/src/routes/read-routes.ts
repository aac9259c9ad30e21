import type { ServiceImpl } from '@connectrpc/connect';
import {
  CoordinatorService,
  type AgentService,
  type IdentityService,
  type UserService,
} from '@cloudless/api';
import { CertificateAuthorityHandlers } from '../identity/certificate-authority-handlers.js';
import { JoinTokenHandlers } from '../identity/join-token-handlers.js';
import { NodeBanHandlers } from '../identity/node-ban-handlers.js';
import { KeyedMutex } from '../mutation/keyed-mutex.js';
import { RouteReads } from '../network/ingress-routes/route-reads.js';
import { ServiceReads } from '../network/service-reads.js';
import { NodePictures } from '../node/node-pictures.js';
import { NodeReads } from '../node/node-reads.js';
import { PlanReads } from '../plan/plan-reads.js';
import { ConfigReads } from '../files/config-reads.js';
import { PolicyReads } from '../policy/policy-reads.js';
import { PolicySets } from '../policy/policy-sets.js';
import { PolicyTests } from '../policy/policy-tests.js';
import type { ReadDeps } from '../ports.js';
import { SecretKeys } from '../secret/secret-keys.js';
import { SecretReads } from '../secret/secret-reads.js';
import { StoredSecretValues } from '../secret/secret-values.js';
import { createServerInfo } from '../server-info.js';
import { CredentialHandlers } from '../user/credential-handlers.js';
import { requireIdentity } from '../user/user-change.js';
import { UserHandlers } from '../user/user-handlers.js';
import { EndpointAndEventHandlers } from '../watch/endpoint-and-event-handlers.js';
import { LivenessChanges } from '../watch/liveness-changes.js';
import { withSlowReaderTimeout } from '../watch/slow-reader-timeout.js';
import { WorkloadReads } from '../workload/workload-reads.js';
import type { CallAccess } from '../access/call-access.js';
import { readWorkload, requireWorkloadRole } from './call-routes.js';
import { createNetworkReads } from './network-routes.js';
import { createConfigReads } from './config-routes.js';
import { createPolicyReads } from './policy-routes.js';
import { createSecretReads } from './secret-routes.js';

const calls = CoordinatorService.method;

/** The reads of all services, by service. Close them after the last call. */
export interface ReadRoutes {
  readonly coordinator: ReturnType<typeof createCoordinatorReads>;
  readonly agent: Pick<ServiceImpl<typeof AgentService>, 'listContainers'>;
  readonly identity: ReturnType<typeof createIdentityReads>;
  readonly network: ReturnType<typeof createNetworkReads>;
  readonly configs: ReturnType<typeof createConfigReads>;
  readonly policy: ReturnType<typeof createPolicyReads>;
  readonly secret: ReturnType<typeof createSecretReads>;
  readonly user: ReturnType<typeof createUserReads>;
  readonly secretReads: SecretReads;
  /** The keys and values of secrets. */
  readonly secretStore: { readonly keys: SecretKeys; readonly values: StoredSecretValues };
  /** The stored policies, prepared for evaluation. */
  readonly policySets: PolicySets;
  close(): void;
}

/**
 * Creates the reads that follow from the records and the live status of nodes alone: every
 * coordinator serves them, whether it leads or follows.
 */
export function createReadRoutes(access: CallAccess, deps: ReadDeps): ReadRoutes {
  const livenessChanges = new LivenessChanges(deps.state, deps.nodes);
  const nodePictures = new NodePictures(deps);
  const workloads = new WorkloadReads({ ...deps, livenessChanges });
  const policySets = new PolicySets({ ...deps, log: deps.log.child({ component: 'policy' }) });
  const keys = deps.secretKeys ?? new SecretKeys();
  const unfollowKeys = keys.follow(deps.state);
  const secretReads = new SecretReads({ ...deps, keys });
  return {
    coordinator: createCoordinatorReads(access, deps, {
      workloads,
      nodes: new NodeReads({ ...deps, livenessChanges, nodePictures }),
      plans: new PlanReads(deps),
      endpointsAndEvents: new EndpointAndEventHandlers({ ...deps, livenessChanges }),
    }),
    agent: { listContainers: (_request, context) => workloads.listContainers(context) },
    identity: createIdentityReads(deps),
    network: createNetworkReads(access, deps, {
      services: new ServiceReads({ ...deps, livenessChanges }),
      ingress: new RouteReads(deps),
    }),
    configs: createConfigReads(access, deps, new ConfigReads({ ...deps, livenessChanges })),
    policy: createPolicyReads(deps, {
      reads: new PolicyReads({ ...deps, livenessChanges }),
      tests: new PolicyTests(deps, policySets),
    }),
    secret: createSecretReads(secretReads),
    user: createUserReads(access, deps),
    secretReads,
    secretStore: { keys, values: new StoredSecretValues({ ...deps, keys }) },
    policySets,
    close: () => {
      livenessChanges.close();
      nodePictures.close();
      policySets.close();
      unfollowKeys();
    },
  };
}

function createCoordinatorReads(
  access: CallAccess,
  deps: ReadDeps,
  {
    workloads,
    nodes,
    plans,
    endpointsAndEvents,
  }: {
    readonly workloads: WorkloadReads;
    readonly nodes: NodeReads;
    readonly plans: PlanReads;
    readonly endpointsAndEvents: EndpointAndEventHandlers;
  },
) {
  const { clock } = deps;
  return {
    getServerInfo: () => createServerInfo(deps),
    getNode: (request, context) => nodes.getNode(request, context),
    listNodes: (request, context) => nodes.listNodes(request, context),
    watchNodes: (request, context) =>
      withSlowReaderTimeout(nodes.watchNodes(request, context), clock),
    getWorkload: readWorkload(access, calls.getWorkload, (request, context) =>
      workloads.getWorkload(request, context),
    ),
    listWorkloads: (request, context) => workloads.listWorkloads(request, context),
    watchWorkloads: (request, context) =>
      withSlowReaderTimeout(workloads.watchWorkloads(request, context), clock),
    watchReplicas: (request, context) =>
      withSlowReaderTimeout(workloads.watchReplicas(request, context), clock),
    listReplicas: (request, context) => workloads.listReplicas(request, context),
    getWorkloadVersion: readWorkload(access, calls.getWorkloadVersion, (request) =>
      workloads.getWorkloadVersion(request),
    ),
    getPlan: (request, context) => plans.getPlan(request, context),
    listPlans: (request, context) => plans.listPlans(request, context),
    listEndpoints: readWorkload(access, calls.listEndpoints, (request) =>
      endpointsAndEvents.listEndpoints(request),
    ),
    watchEndpoints: (request, context) => {
      requireWorkloadRole(access, calls.watchEndpoints, request, context);
      return withSlowReaderTimeout(endpointsAndEvents.watchEndpoints(request, context), clock);
    },
    listEvents: (request, context) => endpointsAndEvents.listEvents(request, context),
    watchEvents: (request, context) =>
      withSlowReaderTimeout(endpointsAndEvents.watchEvents(request, context), clock),
  } satisfies Partial<ServiceImpl<typeof CoordinatorService>>;
}

function createIdentityReads(deps: ReadDeps) {
  // The changes of these handlers are no reads, so nothing waits for the mutex.
  const changeDeps = { ...deps, mutex: new KeyedMutex() };
  const bans = new NodeBanHandlers(changeDeps);
  const createTokens = (): JoinTokenHandlers =>
    new JoinTokenHandlers(changeDeps, requireIdentity(deps));
  const createAuthority = (): CertificateAuthorityHandlers =>
    new CertificateAuthorityHandlers(changeDeps, requireIdentity(deps));
  return {
    listJoinTokens: (request) => createTokens().listJoinTokens(request),
    listNodeBans: (request) => {
      requireIdentity(deps);
      return bans.listNodeBans(request);
    },
    getCertificateAuthority: () => createAuthority().getCertificateAuthority(),
  } satisfies Partial<ServiceImpl<typeof IdentityService>>;
}

function createUserReads(access: CallAccess, deps: ReadDeps) {
  const changeDeps = { ...deps, access, mutex: new KeyedMutex() };
  const users = new UserHandlers(changeDeps);
  const credentials = new CredentialHandlers(changeDeps);
  return {
    listUsers: (request, context) => users.listUsers(request, context),
    listUserTokens: (request, context) => credentials.listUserTokens(request, context),
    whoAmI: (_request, context) => users.whoAmI(context),
  } satisfies Partial<ServiceImpl<typeof UserService>>;
}
