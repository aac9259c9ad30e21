import { createClient, type Client, type Transport } from '@connectrpc/connect';
import { AdminService, AgentService, CoordinatorService } from './gen.js';

/** Calls the coordinator's public API. */
export type CoordinatorClient = Client<typeof CoordinatorService>;
/** Calls an agent's own service, or the coordinator's forwarding of it. */
export type AgentClient = Client<typeof AgentService>;
/** Calls what operators do on a coordinator. */
export type AdminClient = Client<typeof AdminService>;

/**
 * @param transport - From `@connectrpc/connect-node` (programs) or `@connectrpc/connect-web`
 * (browsers).
 */
export function createCoordinatorClient(transport: Transport): CoordinatorClient {
  return createClient(CoordinatorService, transport);
}

/** @param transport - As for {@link createCoordinatorClient}. */
export function createAgentClient(transport: Transport): AgentClient {
  return createClient(AgentService, transport);
}

/** @param transport - As for {@link createCoordinatorClient}. */
export function createAdminClient(transport: Transport): AdminClient {
  return createClient(AdminService, transport);
}
