import type { MessageInitShape } from '@bufbuild/protobuf';
import { resolvePortName } from '@cloudless/api';
import type { Event, ListWorkloadsRequestSchema, Node, Workload } from '@cloudless/api';
import type { CliSession } from '../call/cli-session.js';
import type { LocalSession } from '../call/local-session.js';
import { openSession } from '../call/open-session.js';
import { findKind } from '../kinds.js';
import { getConfigPath, readContexts } from '../config/contexts.js';
import { DEFAULT_SERVER } from '../config/settings.js';
import { parseWorkloadName } from '../names.js';
import { parseObjectName } from '../object-name.js';
import { formatCount } from '../output/human.js';
import type { Candidate } from './candidate.js';
import type { ValueKind } from './value-kinds.js';

/** Time limit of the calls for one completion: the shell is blocked until the completion ends. */
const LOOKUP_TIMEOUT_MS = 1_000;

/** Most objects that one completion requests from the coordinator: one page of a list. */
const MAX_OBJECTS = 200;

/** Number of newest events that completion offers. */
const MAX_EVENTS = 50;

/** Hex digits of a container id that select the container. */
const CONTAINER_ID_LENGTH = 12;

/** Longest description of a candidate, which is shown on the same line. */
const MAX_DESCRIPTION_LENGTH = 80;

/** Returns the names of one kind. Throws when the coordinator cannot be reached. */
type Lookup = (session: CliSession, operands: readonly string[]) => Promise<readonly Candidate[]>;

const LOOKUPS: Readonly<Partial<Record<ValueKind, Lookup>>> = {
  workload: findWorkloads,
  kindOrWorkload: findWorkloads,
  node: async (session) => (await listNodes(session)).map(toNodeCandidate),
  region: async (session) => countValues((await listNodes(session)).map(({ region }) => region)),
  zone: async (session) => countValues((await listNodes(session)).map(({ zone }) => zone)),
  namespace: findNamespaces,
  event: findEvents,
  plan: findPlans,
  user: findUsers,
  secret: findSecrets,
  accessToken: findAccessTokens,
  config: findConfigs,
  service: findServices,
  route: findRoutes,
  joinToken: findJoinTokens,
  credential: findCredentials,
  port: findPorts,
  nameOfKind: findNamesOfKind,
};

/**
 * Returns the names of a kind with descriptions. Returns no names when the configuration is invalid
 * or the coordinator cannot be reached: an error message would disturb the command line.
 * @param operands - The operands before the word that is completed.
 * @param open - Creates the session to use.
 */
export async function findNames(
  kind: ValueKind,
  operands: readonly string[],
  open: () => Promise<LocalSession>,
): Promise<readonly Candidate[]> {
  try {
    const local = await open();
    if (kind === 'context') return await findContexts(local);
    const session = await openSession(local);
    try {
      return (await LOOKUPS[kind]?.(session, operands)) ?? [];
    } finally {
      await session.close();
    }
  } catch {
    return [];
  }
}

async function findContexts({ io }: LocalSession): Promise<readonly Candidate[]> {
  const { contexts } = await readContexts(io.files, getConfigPath(io.env));
  return [...contexts].map(([value, { server = DEFAULT_SERVER }]) => ({
    value,
    description: server,
  }));
}

async function listWorkloads(session: CliSession, namespace: string): Promise<readonly Workload[]> {
  return listPage(session, { namespace, pageSize: MAX_OBJECTS });
}

async function listPage(
  session: CliSession,
  request: MessageInitShape<typeof ListWorkloadsRequestSchema>,
): Promise<readonly Workload[]> {
  return (await session.client.listWorkloads(request, session.getCallOptions(LOOKUP_TIMEOUT_MS)))
    .workloads;
}

async function findWorkloads(session: CliSession): Promise<readonly Candidate[]> {
  const workloads = await listWorkloads(session, session.settings.namespace);
  return workloads.map(({ name, spec, status }) => ({
    value: name,
    description: shorten(
      `${status?.readyReplicas ?? 0}/${status?.desiredReplicas ?? 0} ready ${spec?.image ?? ''}`,
    ),
  }));
}

async function findNamespaces(session: CliSession): Promise<readonly Candidate[]> {
  const workloads = await listWorkloads(session, '');
  return countValues(
    workloads.map(({ namespace }) => namespace),
    'workload',
  );
}

async function listNodes(session: CliSession): Promise<readonly Node[]> {
  const request = { pageSize: MAX_OBJECTS };
  return (await session.client.listNodes(request, session.getCallOptions(LOOKUP_TIMEOUT_MS))).nodes;
}

function toNodeCandidate({ id, zone, status }: Node): Candidate {
  const replicas = status?.replicaCount ?? 0;
  return { value: id, description: `zone ${zone}, ${formatCount(replicas, 'replica')}` };
}

async function findEvents(session: CliSession): Promise<readonly Candidate[]> {
  const { events } = await session.client.listEvents(
    { pageSize: MAX_EVENTS, newestFirst: true },
    session.getCallOptions(LOOKUP_TIMEOUT_MS),
  );
  return events.map(({ id, reason, message }: Event) => ({
    value: id,
    description: shorten(`${reason}: ${message}`),
  }));
}

async function findPlans(session: CliSession): Promise<readonly Candidate[]> {
  const { plans } = await session.client.listPlans(
    { pageSize: MAX_OBJECTS },
    session.getCallOptions(LOOKUP_TIMEOUT_MS),
  );
  return plans
    .filter(({ executedAt }) => executedAt === undefined)
    .map(({ id, summary }) => ({ value: id, description: shorten(summary) }));
}

async function findUsers(session: CliSession): Promise<readonly Candidate[]> {
  const { users } = await session.users.listUsers(
    { pageSize: MAX_OBJECTS },
    session.getCallOptions(LOOKUP_TIMEOUT_MS),
  );
  return users.map(({ name, grants }) => ({
    value: name,
    description: formatCount(grants.length, 'role'),
  }));
}

async function findSecrets(session: CliSession): Promise<readonly Candidate[]> {
  const { secrets } = await session.secrets.listSecrets(
    { namespace: session.settings.namespace, pageSize: MAX_OBJECTS },
    session.getCallOptions(LOOKUP_TIMEOUT_MS),
  );
  return secrets.map(({ name, version }) => ({ value: name, description: `version ${version}` }));
}

/** Returns the valid access tokens of the secret that the first operand names. */
async function findAccessTokens(
  session: CliSession,
  [secret = '']: readonly string[],
): Promise<readonly Candidate[]> {
  const { accessTokens } = await session.secrets.getSecret(
    parseObjectName(secret, session.settings.namespace, 'secret'),
    session.getCallOptions(LOOKUP_TIMEOUT_MS),
  );
  return accessTokens.map(({ id, audience }) => ({ value: id, description: shorten(audience) }));
}

async function findConfigs(session: CliSession): Promise<readonly Candidate[]> {
  const { configs } = await session.configs.listConfigs(
    { namespace: session.settings.namespace, pageSize: MAX_OBJECTS },
    session.getCallOptions(LOOKUP_TIMEOUT_MS),
  );
  return configs.map(({ name, version }) => ({ value: name, description: `version ${version}` }));
}

async function findServices(session: CliSession): Promise<readonly Candidate[]> {
  const { services } = await session.network.listServices(
    { namespace: session.settings.namespace, pageSize: MAX_OBJECTS },
    session.getCallOptions(LOOKUP_TIMEOUT_MS),
  );
  return services.map(({ name, status }) => ({
    value: name,
    description: formatCount(status?.readyEndpoints ?? 0, 'ready endpoint'),
  }));
}

async function findRoutes(session: CliSession): Promise<readonly Candidate[]> {
  const { routes } = await session.network.listRoutes(
    { namespace: session.settings.namespace, pageSize: MAX_OBJECTS },
    session.getCallOptions(LOOKUP_TIMEOUT_MS),
  );
  return routes.map(({ name, spec }) => ({
    value: name,
    description: shorten(spec?.hosts.join(', ') || 'every host'),
  }));
}

async function findPolicies(session: CliSession): Promise<readonly Candidate[]> {
  const { policies } = await session.policies.listPolicies(
    { pageSize: MAX_OBJECTS },
    session.getCallOptions(LOOKUP_TIMEOUT_MS),
  );
  return policies.map(({ name, spec }) => ({
    value: name,
    description: formatCount(spec?.rules.length ?? 0, 'rule'),
  }));
}

async function findJoinTokens(session: CliSession): Promise<readonly Candidate[]> {
  const { tokens } = await session.identities.listJoinTokens(
    { pageSize: MAX_OBJECTS },
    session.getCallOptions(LOOKUP_TIMEOUT_MS),
  );
  return tokens
    .filter(({ revokedAt }) => revokedAt === undefined)
    .map(({ id, description }) => ({ value: id, description: shorten(description) }));
}

async function findCredentials(session: CliSession): Promise<readonly Candidate[]> {
  const { credentials } = await session.users.listUserTokens(
    { pageSize: MAX_OBJECTS },
    session.getCallOptions(LOOKUP_TIMEOUT_MS),
  );
  return credentials
    .filter(({ revokedAt }) => revokedAt === undefined)
    .map(({ id, description }) => ({ value: id, description: shorten(description) }));
}

/** Returns the ports of the workload that the first operand names. */
async function findPorts(
  session: CliSession,
  [target = '']: readonly string[],
): Promise<readonly Candidate[]> {
  const { spec } = await session.client.getWorkload(
    parseWorkloadName(target, session.settings.namespace),
    session.getCallOptions(LOOKUP_TIMEOUT_MS),
  );
  return (spec?.ports ?? []).map((port) => ({
    value: resolvePortName(port),
    description: `port ${port.containerPort}`,
  }));
}

/** Returns the objects of the kind that the first operand names. */
async function findNamesOfKind(
  session: CliSession,
  [kind = '']: readonly string[],
): Promise<readonly Candidate[]> {
  switch (findKind(kind)) {
    case 'workload':
      return findWorkloads(session);
    case 'node':
      return (await listNodes(session)).map(toNodeCandidate);
    case 'container':
      return findContainers(session);
    case 'replica':
      return findReplicas(session);
    case 'namespace':
      return findNamespaces(session);
    case 'user':
      return findUsers(session);
    case 'service':
      return findServices(session);
    case 'route':
      return findRoutes(session);
    case 'secret':
      return findSecrets(session);
    case 'config':
      return findConfigs(session);
    case 'policy':
      return findPolicies(session);
    case 'plan':
      return findPlans(session);
    default:
      return [];
  }
}

/** Workloads whose replicas are completed; a workload may have thousands of replicas. */
const WORKLOADS_WITH_REPLICAS = 50;

async function findReplicas(session: CliSession): Promise<readonly Candidate[]> {
  const workloads = await listPage(session, {
    namespace: session.settings.namespace,
    pageSize: WORKLOADS_WITH_REPLICAS,
    includeReplicas: true,
  });
  return workloads.flatMap(({ name, status }) =>
    (status?.replicas ?? []).map(({ id, nodeId }) => ({
      value: id,
      description: `${name} on ${nodeId === '' ? 'no node' : nodeId}`,
    })),
  );
}

async function findContainers(session: CliSession): Promise<readonly Candidate[]> {
  const { containers } = await session.agents.listContainers(
    {},
    session.getCallOptions(LOOKUP_TIMEOUT_MS),
  );
  return containers
    .filter(({ namespace }) => namespace === session.settings.namespace)
    .map(({ containerId, workload, nodeId }) => ({
      value: containerId.slice(0, CONTAINER_ID_LENGTH),
      description: `${workload} on ${nodeId}`,
    }));
}

/** Returns each different value with the number of objects that have it, sorted. */
function countValues(values: readonly string[], noun = 'node'): readonly Candidate[] {
  const counts = new Map<string, number>();
  for (const value of values) counts.set(value, (counts.get(value) ?? 0) + 1);
  return [...counts]
    .sort(([a], [b]) => (a < b ? -1 : 1))
    .map(([value, count]) => ({ value, description: formatCount(count, noun) }));
}

/** Returns the first line of a text, of limited length. */
function shorten(text: string): string {
  const [line = ''] = text.split('\n');
  return line.length <= MAX_DESCRIPTION_LENGTH
    ? line.trim()
    : `${line.slice(0, MAX_DESCRIPTION_LENGTH - 1)}…`;
}
