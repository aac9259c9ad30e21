import type { ConnectRouter } from '@connectrpc/connect';
import {
  AdminService,
  AgentService,
  ConfigsService,
  CoordinatorService,
  IdentityService,
  NetworkService,
  NodeNetworkService,
  PolicyService,
  SecretsService,
  UserService,
} from '@cloudless/api';
import { CallAccess } from './access/call-access.js';
import { AdminHandlers } from './admin-handlers.js';
import { AuditLog } from './audit/audit-log.js';
import { createIdentityRoutes } from './identity/identity-routes.js';
import { KeyedMutex } from './mutation/keyed-mutex.js';
import { EndpointHandlers } from './network/endpoint-handlers.js';
import { RouteHandlers } from './network/ingress-routes/route-handlers.js';
import { ServiceHandlers } from './network/service-handlers.js';
import { NetworkRelay } from './node-network/network-relay.js';
import { NetworkSync } from './node-network/network-sync.js';
import { RouteCertificateHandler } from './node-network/route-certificates.js';
import { NodeHandlers } from './node/node-handlers.js';
import { PlanHandlers } from './plan/plan-handlers.js';
import { ConfigHandlers } from './files/config-handlers.js';
import { FileChanges } from './files/file-changes.js';
import { ReplicaFiles } from './files/replica-files.js';
import { PolicyAdmission } from './policy/policy-admission.js';
import { PolicyHandlers } from './policy/policy-handlers.js';
import type { ApiServerDeps, ReadDeps } from './ports.js';
import { createCallHandlers, type CallHandlers } from './roles/call-handlers.js';
import { RolloutHandlers } from './rollout/rollout-handlers.js';
import { createAdminRoutes } from './routes/admin-routes.js';
import { createAgentRoutes } from './routes/agent-routes.js';
import { CallRoutes } from './routes/call-routes.js';
import { createConfigRoutes } from './routes/config-routes.js';
import { createCoordinatorRoutes } from './routes/coordinator-routes.js';
import { createNetworkRoutes } from './routes/network-routes.js';
import { createNodeNetworkRoutes } from './routes/node-network-routes.js';
import { createPolicyRoutes } from './routes/policy-routes.js';
import { createReadRoutes } from './routes/read-routes.js';
import { createSecretRoutes } from './routes/secret-routes.js';
import { guardService } from './routes/service-guard.js';
import { createUserRoutes } from './routes/user-routes.js';
import { AccessTokenHandlers } from './secret/access-token-handlers.js';
import { AccessTokenUses } from './secret/access-token-use.js';
import { MasterKeyHandlers } from './secret/master-key-handlers.js';
import { MasterKeyReconciler } from './secret/master-key-reconciler.js';
import { SecretHandlers } from './secret/secret-handlers.js';
import { ForeignAgents } from './session/foreign-agents.js';
import { LOG_CHANNEL_PROTOCOL } from './session/node-admission.js';
import { SessionHub } from './session/session-hub.js';
import { InteractiveHandlers } from './stream/interactive-handlers.js';
import { NodeLogReader } from './stream/node-log-reader.js';
import { StatisticsHandlers } from './stream/statistics-handlers.js';
import { StreamHandlers } from './stream/stream-handlers.js';
import { TunnelHub } from './stream/tunnel-hub.js';
import { CredentialHandlers } from './user/credential-handlers.js';
import { UserHandlers } from './user/user-handlers.js';
import { WhatIfHandlers } from './what-if/what-if-handlers.js';
import { WorkloadHandlers } from './workload/workload-handlers.js';

/** The API of a leader, ready to be mounted on a Connect router. */
export interface ApiServer {
  /**
   * Registers CoordinatorService, AgentService for the containers of all nodes, AdminService,
   * ConfigsService, IdentityService, NetworkService, NodeNetworkService, PolicyService,
   * SecretsService and UserService, for a coordinator that leads as long as it serves.
   */
  readonly registerRoutes: (router: ConnectRouter) => void;
  /** The handlers of all calls, for a `RoleRouter`. */
  readonly calls: CallHandlers;
  /**
   * Returns warnings for operators about problems that do not prevent calls from being served, one
   * sentence each. The `/ready` endpoint shows them. Empty without problems.
   */
  listWarnings(): readonly string[];
  /** Ends all sessions and tunnels and waits for reports that are being written. */
  close(): Promise<void>;
}

/**
 * Creates the handlers of all calls, and the reconciler of the master keys. Close the result when the
 * leadership ends.
 */
export function createApiServer(deps: ApiServerDeps): ApiServer {
  const access = new CallAccess(deps);
  const routes = new CallRoutes(access, new AuditLog(deps, access));
  const reads = createReadRoutes(access, deps);
  const mutex = new KeyedMutex();
  const changes = { mutex, admission: new PolicyAdmission(reads.policySets) };
  const foreignAgents = new ForeignAgents(deps);
  const sessions = new SessionHub({ ...deps, foreignAgents });
  const fileChanges = new FileChanges(deps.state, sessions);
  const tunnels = new TunnelHub(deps, sessions, (nodeId, context) =>
    access.isNode(access.getCaller(context), nodeId),
  );
  const logs = new NodeLogReader(
    tunnels,
    (nodeId) => (sessions.getProtocol(nodeId) ?? 0) >= LOG_CHANNEL_PROTOCOL,
  );
  const streams = new StreamHandlers(deps, tunnels, logs);
  const interactive = new InteractiveHandlers(deps, tunnels);
  const statistics = new StatisticsHandlers(deps, tunnels);
  const coordinator = createCoordinatorRoutes(routes, {
    reads: reads.coordinator,
    sessions,
    tunnels,
    replicaFiles: new ReplicaFiles({
      ...{ ...deps, access, audit: routes.audit },
      secretValues: reads.secretStore.values,
    }),
    nodes: new NodeHandlers({ ...deps, mutex }),
    workloads: new WorkloadHandlers({ ...deps, ...changes }),
    rollouts: new RolloutHandlers({ ...deps, ...changes }),
    plans: new PlanHandlers({ ...deps, ...changes }),
    whatIf: new WhatIfHandlers(deps),
    streams,
    interactive,
  });
  const agent = createAgentRoutes(routes, {
    reads: reads.agent,
    streams,
    interactive,
    statistics,
  });
  const admin = createAdminRoutes(routes, new AdminHandlers(deps));
  const identity = createIdentityRoutes(routes, { ...deps, mutex }, reads.identity);
  const userDeps = { ...deps, access, mutex };
  const user = createUserRoutes(routes, {
    users: new UserHandlers(userDeps),
    credentials: new CredentialHandlers(userDeps),
    reads: reads.user,
  });
  const network = createNetworkRoutes(routes, {
    services: new ServiceHandlers({ ...deps, mutex }),
    endpoints: new EndpointHandlers({ ...deps, mutex }),
    ingress: new RouteHandlers({ ...deps, mutex, values: reads.secretStore.values }),
    reads: reads.network,
  });
  const policy = createPolicyRoutes(routes, new PolicyHandlers({ ...deps, mutex }), reads.policy);
  const configs = createConfigRoutes(routes, new ConfigHandlers({ ...deps, mutex }), reads.configs);
  const secretDeps = { ...deps, mutex, ...reads.secretStore };
  const masterKeys = new MasterKeyReconciler({
    ...{ ...deps, keys: reads.secretStore.keys },
    log: deps.log.child({ component: 'secrets' }),
  });
  const secret = createSecretRoutes(routes, {
    secrets: new SecretHandlers(secretDeps),
    accessTokens: new AccessTokenHandlers(secretDeps),
    uses: new AccessTokenUses(secretDeps),
    masterKeys: new MasterKeyHandlers({ ...secretDeps, reconciler: masterKeys }),
    reads: reads.secretReads,
  });
  const sync = new NetworkSync({ ...deps, access });
  const relay = new NetworkRelay({ ...deps, access, tunnels });
  const certificates = new RouteCertificateHandler({
    ...{ ...deps, access, audit: routes.audit },
    values: reads.secretStore.values,
  });
  const nodeNetwork = createNodeNetworkRoutes(routes, { sync, relay, certificates });
  return {
    calls: createCallHandlers(
      [CoordinatorService, coordinator],
      [AgentService, agent],
      [AdminService, admin],
      [IdentityService, identity],
      [NetworkService, network],
      [NodeNetworkService, nodeNetwork],
      [ConfigsService, configs],
      [PolicyService, policy],
      [SecretsService, secret],
      [UserService, user],
    ),
    registerRoutes: (router) => {
      router.service(CoordinatorService, guardService(access, CoordinatorService, coordinator));
      router.service(AgentService, guardService(access, AgentService, agent));
      router.service(AdminService, guardService(access, AdminService, admin));
      router.service(IdentityService, guardService(access, IdentityService, identity));
      router.service(NetworkService, guardService(access, NetworkService, network));
      router.service(NodeNetworkService, guardService(access, NodeNetworkService, nodeNetwork));
      router.service(ConfigsService, guardService(access, ConfigsService, configs));
      router.service(PolicyService, guardService(access, PolicyService, policy));
      router.service(SecretsService, guardService(access, SecretsService, secret));
      router.service(UserService, guardService(access, UserService, user));
    },
    listWarnings: () => foreignAgents.listWarnings(),
    close: async () => {
      reads.close();
      fileChanges.close();
      sync.close();
      tunnels.close();
      await Promise.all([sessions.close(), masterKeys.close()]);
    },
  };
}

/** The reads that a coordinator serves that does not lead. */
export interface ReadServer {
  /** The handlers of the reads, for a `RoleRouter`. */
  readonly calls: CallHandlers;
  close(): void;
}

/** Creates the handlers of the reads of a coordinator that follows. */
export function createReadServer(deps: ReadDeps): ReadServer {
  const access = new CallAccess(deps);
  const reads = createReadRoutes(access, deps);
  return {
    calls: createCallHandlers(
      [CoordinatorService, reads.coordinator],
      [AgentService, reads.agent],
      [IdentityService, reads.identity],
      [NetworkService, reads.network],
      [ConfigsService, reads.configs],
      [PolicyService, reads.policy],
      [SecretsService, reads.secret],
      [UserService, reads.user],
    ),
    close: () => reads.close(),
  };
}
