import { createClient, type Client, type Transport } from '@connectrpc/connect';
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
} from '../gen.js';

/** Client of CoordinatorService, the public API of a coordinator. */
export type CoordinatorClient = Client<typeof CoordinatorService>;
/**
 * Client of AgentService: logs, commands and status of containers. Coordinators and agents serve
 * it.
 */
export type AgentClient = Client<typeof AgentService>;
/** Client of AdminService, the operator API of a coordinator. */
export type AdminClient = Client<typeof AdminService>;
/**
 * Client of IdentityService: join tokens, certificates of nodes, bans and the certificate
 * authority.
 */
export type IdentityClient = Client<typeof IdentityService>;
/** Client of NetworkService: services, endpoints and load balancing. */
export type NetworkClient = Client<typeof NetworkService>;
/** Client of NodeNetworkService, which network proxies call. */
export type NodeNetworkClient = Client<typeof NodeNetworkService>;
/** Client of ConfigsService: configs of workloads. */
export type ConfigsClient = Client<typeof ConfigsService>;
/** Client of PolicyService: policies, and what they decide about workloads. */
export type PolicyClient = Client<typeof PolicyService>;
/** Client of SecretsService: secrets, access tokens and master keys. */
export type SecretsClient = Client<typeof SecretsService>;
/** Client of UserService: users, roles and credentials. */
export type UserClient = Client<typeof UserService>;

/**
 * Creates a client of the public API.
 * @param transport - From `@connectrpc/connect-node` (programs) or `@connectrpc/connect-web`
 *   (browsers).
 * @example
 * ```ts
 * const transport = createGrpcTransport({ baseUrl: 'http://localhost:8080' });
 * const client = createCoordinatorClient(transport);
 * const { workloads } = await client.listWorkloads({ namespace: 'default' });
 * ```
 */
export function createCoordinatorClient(transport: Transport): CoordinatorClient {
  return createClient(CoordinatorService, transport);
}

/**
 * Creates a client of AgentService, which accesses running containers.
 * @param transport - As for {@link createCoordinatorClient}.
 */
export function createAgentClient(transport: Transport): AgentClient {
  return createClient(AgentService, transport);
}

/**
 * Creates a client of AdminService.
 * @param transport - As for {@link createCoordinatorClient}.
 */
export function createAdminClient(transport: Transport): AdminClient {
  return createClient(AdminService, transport);
}

/**
 * Creates a client of IdentityService.
 * @param transport - As for {@link createCoordinatorClient}.
 */
export function createIdentityClient(transport: Transport): IdentityClient {
  return createClient(IdentityService, transport);
}

/**
 * Creates a client of ConfigsService.
 * @param transport - As for {@link createCoordinatorClient}.
 */
export function createConfigsClient(transport: Transport): ConfigsClient {
  return createClient(ConfigsService, transport);
}

/**
 * Creates a client of PolicyService.
 * @param transport - As for {@link createCoordinatorClient}.
 */
export function createPolicyClient(transport: Transport): PolicyClient {
  return createClient(PolicyService, transport);
}

/**
 * Creates a client of SecretsService.
 * @param transport - As for {@link createCoordinatorClient}.
 */
export function createSecretsClient(transport: Transport): SecretsClient {
  return createClient(SecretsService, transport);
}

/**
 * Creates a client of UserService.
 * @param transport - As for {@link createCoordinatorClient}.
 */
export function createUserClient(transport: Transport): UserClient {
  return createClient(UserService, transport);
}

/**
 * Creates a client of NetworkService.
 * @param transport - As for {@link createCoordinatorClient}.
 */
export function createNetworkClient(transport: Transport): NetworkClient {
  return createClient(NetworkService, transport);
}

/**
 * Creates a client of NodeNetworkService.
 * @param transport - As for {@link createCoordinatorClient}.
 */
export function createNodeNetworkClient(transport: Transport): NodeNetworkClient {
  return createClient(NodeNetworkService, transport);
}
