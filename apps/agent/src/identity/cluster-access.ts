import { CloudlessError, type Clock, type Log } from '@cloudless/base';
import type { Agent, NodeIdentityKeeper, NodeIdentityOptions } from '@cloudless/agent-core';
import { createCoordinatorTransport, type CallInterceptors } from '@cloudless/rpc-node/client';
import type { AgentServiceSecurity } from '../agent-service.js';
import type { AgentConfig } from '../agent-config.js';
import type { DiskReserve } from '../data/disk-reserve.js';
import { usesTls } from '../tls-settings.js';
import type { LeaseIdentity } from '../lease/lease-thread.js';
import { AgentAuthorizer } from './agent-authorizer.js';
import { connectToJoin } from './join-connection.js';
import { JoinTokenReader } from './join-token.js';
import {
  openNodeIdentity,
  requireNodeIdentity,
  toClientTls,
  toServerTls,
} from './node-identity.js';

/** How an agent reaches its cluster, and who may reach the agent. */
export interface ClusterAccess {
  readonly transport: ReturnType<typeof createCoordinatorTransport>;
  /** In plaintext, this and the next two fields are undefined. */
  readonly nodeIdentity: NodeIdentityOptions | undefined;
  readonly leaseIdentity: LeaseIdentity | undefined;
  readonly security: AgentServiceSecurity | undefined;
  /** True when this machine has joined a cluster with identities. */
  readonly hasIdentity: () => boolean;
}

export interface ClusterAccessOptions {
  readonly config: AgentConfig;
  readonly resetCommand: string;
  /** Space for a renewal of the certificate on a full disk. */
  readonly reserve: DiskReserve;
  readonly interceptors: CallInterceptors;
  readonly clock: Clock;
  readonly log: Log;
  /** Returns undefined while the agent is starting. */
  readonly agent: () => Agent | undefined;
  readonly onJoined: () => Promise<void>;
  readonly onRefused: (reason: CloudlessError) => void;
}

/**
 * Opens the identity of the node when its coordinators have addresses with `https://`.
 * @throws kind `invalid` when there is neither an identity nor a join token, or the join token is
 *   malformed; and as {@link openNodeIdentity}.
 */
export async function openClusterAccess(options: ClusterAccessOptions): Promise<ClusterAccess> {
  const { config, interceptors, clock, log, agent } = options;
  if (!usesTls(config))
    return {
      transport: createCoordinatorTransport({ interceptors }),
      nodeIdentity: undefined,
      leaseIdentity: undefined,
      security: undefined,
      hasIdentity: () => false,
    };
  const { resetCommand, reserve } = options;
  const keeper = await openNodeIdentity(config.dataDir, config.name, resetCommand, { reserve });
  const token = new JoinTokenReader(config);
  await requireWayIn(keeper, token, options);
  const authorizer = new AgentAuthorizer({
    nodeId: config.name,
    keeper,
    clock,
    ask: async (request) => {
      const calls = agent()?.identityCalls;
      if (calls === undefined)
        throw new CloudlessError('unavailable', 'there is no session with a coordinator');
      return calls.authorizeAgentCall(request);
    },
  });
  const getTls = () => toClientTls(requireNodeIdentity(keeper));
  log.debug('identity opened', { hasJoined: keeper.current !== undefined });
  return {
    transport: createCoordinatorTransport({ interceptors, tls: getTls }),
    nodeIdentity: {
      keeper,
      readJoinToken: () => token.read(),
      connectToJoin: (address, text, signal) => connectToJoin(address, text, signal, interceptors),
      onJoined: options.onJoined,
      onRefused: options.onRefused,
    },
    leaseIdentity: {
      getTls: () => (keeper.current === undefined ? undefined : toClientTls(keeper.current)),
      onChange: (listener) => keeper.onChange(listener),
    },
    security: { tls: toServerTls(keeper), authorizer },
    hasIdentity: () => keeper.current !== undefined,
  };
}

/** Requires an identity, or a join token to get an identity. */
async function requireWayIn(
  keeper: NodeIdentityKeeper,
  token: JoinTokenReader,
  { config, log }: ClusterAccessOptions,
): Promise<void> {
  if (keeper.current !== undefined) {
    if (token.isConfigured)
      log.info(
        'this node has joined its cluster; its identity takes precedence over the join token',
        {
          clusterId: keeper.current.clusterId,
        },
      );
    return;
  }
  if ((await token.read()) !== undefined) return;
  throw new CloudlessError(
    'invalid',
    config.joinTokenFile === undefined
      ? `node ${config.name} has not joined its cluster; create a join token with cloudlessctl token create, and start the agent with --join-token-file FILE`
      : `node ${config.name} has not joined its cluster, and the file of the join token does not exist: ${config.joinTokenFile}`,
  );
}
