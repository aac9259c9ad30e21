import { createUsageFailure } from './call/failure.js';
import { suggestSimilar } from './suggest.js';

/** A kind of object that `get` lists. */
export type Kind =
  | 'workload'
  | 'replica'
  | 'container'
  | 'service'
  | 'route'
  | 'secret'
  | 'config'
  | 'policy'
  | 'plan'
  | 'node'
  | 'event'
  | 'namespace'
  | 'user'
  | 'token';

/** The kinds by each accepted word; for services, routes and configs also those of Kubernetes. */
const KINDS: Readonly<Record<string, Kind>> = {
  workload: 'workload',
  workloads: 'workload',
  wl: 'workload',
  node: 'node',
  nodes: 'node',
  no: 'node',
  replica: 'replica',
  replicas: 'replica',
  container: 'container',
  containers: 'container',
  event: 'event',
  events: 'event',
  ev: 'event',
  namespace: 'namespace',
  namespaces: 'namespace',
  ns: 'namespace',
  user: 'user',
  users: 'user',
  token: 'token',
  tokens: 'token',
  service: 'service',
  services: 'service',
  svc: 'service',
  route: 'route',
  routes: 'route',
  ingress: 'route',
  ingresses: 'route',
  ing: 'route',
  secret: 'secret',
  secrets: 'secret',
  config: 'config',
  configs: 'config',
  configmap: 'config',
  configmaps: 'config',
  cm: 'config',
  policy: 'policy',
  policies: 'policy',
  plan: 'plan',
  plans: 'plan',
};

/** The kind of this cluster that corresponds to each kind of other systems. */
const FOREIGN_KINDS: Readonly<Record<string, string>> = {
  po: 'replicas',
  pod: 'replicas',
  pods: 'replicas',
  alloc: 'replicas',
  allocs: 'replicas',
  task: 'replicas',
  tasks: 'replicas',
  ps: 'replicas',
  deploy: 'workloads',
  deployment: 'workloads',
  deployments: 'workloads',
  daemonset: 'workloads',
  daemonsets: 'workloads',
  statefulset: 'workloads',
  statefulsets: 'workloads',
  job: 'workloads',
  jobs: 'workloads',
  ds: 'workloads',
  sts: 'workloads',
  endpoints: 'cloudlessctl network endpoint list',
  ep: 'cloudlessctl network endpoint list',
  machine: 'nodes',
  machines: 'nodes',
};

/** The plural of each kind, as in the texts and in JSON. */
export const PLURALS: Readonly<Record<Kind, string>> = {
  workload: 'workloads',
  replica: 'replicas',
  container: 'containers',
  service: 'services',
  route: 'routes',
  secret: 'secrets',
  config: 'configs',
  policy: 'policies',
  plan: 'plans',
  node: 'nodes',
  event: 'events',
  namespace: 'namespaces',
  user: 'users',
  token: 'tokens',
};

/** The kinds for help texts and messages. */
export const KIND_LIST =
  'workloads, replicas, containers, services, routes, secrets, configs, policies, plans, nodes, events, namespaces, users or tokens';

/** Returns the kind that a word names; undefined for another word. */
export function findKind(word: string): Kind | undefined {
  const key = word.toLowerCase();
  return Object.hasOwn(KINDS, key) ? KINDS[key] : undefined;
}

/**
 * Parses a kind, singular or plural, in any case.
 * @throws {@link CliFailure} with exit code 2 for another word; the message names the kind that
 *   takes the place of a kind of another system.
 */
export function parseKind(word: string): Kind {
  const kind = findKind(word);
  if (kind !== undefined) return kind;
  const key = word.toLowerCase();
  const here = Object.hasOwn(FOREIGN_KINDS, key) ? FOREIGN_KINDS[key] : undefined;
  const hint = here === undefined ? suggestSimilar(word, Object.keys(KINDS)) : `; here: ${here}`;
  throw createUsageFailure(`unknown kind ${JSON.stringify(word)}: expected ${KIND_LIST}${hint}`);
}
